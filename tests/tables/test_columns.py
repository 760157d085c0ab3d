"""Tables of scores from .csv and .npz files, and what is said of bad ones."""

import io
import random
import struct
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from dpaudit import Design, PureDP, Ranking
from dpaudit.errors import DpAuditError, InvalidInputError, InvalidRunError
from dpaudit.tables import columns
from dpaudit.tables.columns import ColumnNames
from dpaudit.tables.sources import ScoreTable, read_score_table, read_scores


def plain(table):
    bits = [None] * len(table.ids) if table.bits is None else table.bits.tolist()
    return list(zip(table.ids.tolist(), bits, table.scores.tolist(), strict=True))


def csv_file(folder, text):
    path = folder / "scores.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def npz_file(folder, **arrays):
    path = folder / "scores.npz"
    np.savez(path, **arrays)
    return path


def refusal(path):
    with pytest.raises(InvalidInputError) as caught:
        read_score_table(path)
    said = str(caught.value)
    assert str(path) in said
    return said


@pytest.mark.parametrize("header", ["id,bit,score", "score,bit,id", "bits,ids,scores"])
@pytest.mark.parametrize("line", ["\n", "\r\n"])
def test_a_csv_file_is_read_whatever_the_order_of_its_columns(
    tmp_path, rows, header, line
):
    fields = [dict(zip(("id", "bit", "score"), row, strict=True)) for row in rows]
    names = [name.removesuffix("s") for name in header.split(",")]
    lines = [header, *(",".join(str(row[n]) for n in names) for row in fields)]
    assert plain(read_score_table(csv_file(tmp_path, line.join(lines)))) == rows


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("names", [("id", "bit", "score"), ("ids", "bits", "scores")])
def test_an_npz_file_says_the_same(tmp_path, rows, write, names):
    path = tmp_path / "scores.NPZ"
    ids, bits, scores = zip(*rows, strict=True)
    with path.open("wb") as file:
        write(file, **dict(zip(names, (ids, bits, scores), strict=True)))
    assert plain(read_score_table(path)) == rows


def test_coins_may_be_left_out_and_other_columns_are_left_alone(tmp_path):
    table = read_score_table(
        csv_file(tmp_path, 'note,score,id\n"a, b",1.5,4\n"",-inf,5\n')
    )
    assert plain(table) == [(4, None, 1.5), (5, None, -np.inf)]
    table = read_score_table(npz_file(tmp_path, id=[4, 5], score=[1, 2], loss=[[1]]))
    assert plain(table) == [(4, None, 1.0), (5, None, 2.0)]


@pytest.mark.parametrize(
    ("texts", "ids"),
    [
        (["7", "3"], [7, 3]),
        (["7", "c"], ["7", "c"]),
        (["007", "7"], ["007", "7"]),  # two ids, not one
        ([str(2**70), "1"], [str(2**70), "1"]),
        (["Zoë", "日本"], ["Zoë", "日本"]),
    ],
)
def test_ids_are_whole_numbers_if_all_are_written_so_and_else_text(
    tmp_path, texts, ids
):
    lines = "\n".join(f"{text},0.5" for text in texts)
    path = csv_file(tmp_path, f"id,score\n{lines}\n")
    assert read_score_table(path).ids.tolist() == ids


@pytest.mark.parametrize(
    "values",
    [
        np.array([1, 0, 1], "<i2"),
        np.array([1, 0, 1], ">i8"),
        np.array([1.0, 0.0, 1.0], ">f4"),
        np.array([True, False, True]),
    ],
)
def test_bits_and_scores_may_be_of_any_numeric_type_and_byte_order(tmp_path, values):
    table = read_score_table(npz_file(tmp_path, id=[1, 2, 3], bit=values, score=values))
    assert table.bits.tolist() == [1, 0, 1]
    assert table.scores.tolist() == [1.0, 0.0, 1.0]
    assert table.scores.dtype == np.float64


@pytest.mark.parametrize("ids", [["a", "b"], [b"a", b"b"]])
def test_ids_may_be_text_in_either_kind_of_array(tmp_path, ids):
    table = read_score_table(npz_file(tmp_path, id=np.array(ids), score=[1, 2]))
    assert table.ids.tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty; it must begin with a header"),
        ("\n\n", "is empty"),
        ("id,score\n", "there is no row"),
        ("id,bit\n1,1\n", "there is no column 'score'"),
        ("1,1,0.5\n2,0,0.1\n", "there is no column 'id'"),
        ("id;bit;score\n1;1;0.5\n", "divided by commas"),
        ("id,score,score\n1,1,2\n", "column 'score': there are 2 such columns"),
        ("id,score,scores\n1,1,2\n", "column 'scores': there are 2 such columns"),
        (
            "id,score\n1,0.5\n2\n",
            "row 2: expected 2 fields, got 1; is the file cut off",
        ),
        ("id,score\n1,0.5\n2,\n", "column 'score', row 2: no score"),
        ("id,score\n1,nan\n", "column 'score', row 1: the score is not a number"),
        ("id,score\n1,0.5\n2,high\n", "column 'score', row 2: 'high' is not a number"),
        ("id,score\n1,1_0\n", "column 'score', row 1: '1_0' is not a number"),
        ("id,score\n,0.5\n", "column 'id', row 1: the id is missing"),
        ("id,bit,score\n1,1,0\n2,-1,0\n", "column 'bit', row 2: '-1' is neither 0"),
        ("id,bit,score\n1,,0\n", "column 'bit', row 1: '' is neither 0 nor 1"),
        ("id,bit,score\n1,nan,0\n", "column 'bit', row 1: 'nan' is neither"),
        (b"id,score\n\xff\xfe,0.5\n", "is not UTF-8 text (byte 9)"),
        ('id,score\n"1,0.5\n', "is not a CSV file"),
        (f"id,score\n{'9' * 200_000},1\n", "is not a CSV file: field larger than"),
    ],
)
def test_a_bad_csv_file_is_refused_with_its_place(tmp_path, text, said):
    assert said in refusal(csv_file(tmp_path, text))


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"id": [1, 2]}, "there is no column 'score'"),
        ({"id": [1, 2], "score": [1.0]}, "column 'id': 2 rows beside 1 scores"),
        (
            {"id": [1], "score": [[1.0]]},
            "expected a list, got an array of shape (1, 1)",
        ),
        ({"id": [1], "score": 1.0}, "expected a list, got an array of shape ()"),
        ({"id": [], "score": []}, "there is no row"),
        ({"id": [1], "score": ["x"]}, "column 'score': it holds <U1"),
        ({"id": [1], "score": [1j]}, "column 'score': it holds complex128"),
        ({"id": [1.5], "score": [1.0]}, "ids are whole numbers or text"),
        ({"id": [1, 2], "score": [1, np.nan]}, "column 'score', row 2: the score is"),
        ({"id": [1], "score": [1], "bit": [2]}, "column 'bit', row 1: 2 is neither"),
        ({"id": [1], "score": [1], "bit": [np.nan]}, "row 1: nan is neither 0 nor 1"),
        ({"id": [1], "score": [1], "bit": ["1"]}, "column 'bit': it holds <U1"),
        ({"id": [b"\xff"], "score": [1]}, "column 'id': it is not UTF-8"),
    ],
)
def test_a_bad_npz_file_is_refused_with_its_place(tmp_path, arrays, said):
    assert said in refusal(npz_file(tmp_path, **arrays))


def test_pickle_is_never_read(tmp_path):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("pickle was read",))

    ids = np.array([Trap(), "a"], dtype=object)
    path = npz_file(tmp_path, id=ids, score=[1.0, 2.0])
    assert "Python objects, which only pickle reads" in refusal(path)


def member(shape, data, dtype="<f8"):
    """Return the bytes of an array whose header says what it likes."""
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    header = header.ljust(117) + "\n"
    return (
        b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data
    )


def archive(folder, **members):
    path = folder / "scores.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(f"{name}.npy", data)
    return path


@pytest.mark.parametrize(
    ("shape", "dtype", "said"),
    [
        ("(1000000000000,)", "<f8", "no more than 8,589,934,592 are read"),
        ("(1000000000,)", "<f8", "it declares 8,000,000,000 bytes, and 8"),
        ("(10,)", "<f8", "it declares 80 bytes, and 8 are there"),
        ("(1,)", "<U99999999", "it declares 399,999,996 bytes, and 8"),
        ("(-1,)", "<f8", "its shape is (-1,)"),
        ("(1, 1, 1)", "<f8", "expected a list"),
        ("(0,)", "<f8", "it declares 0 bytes, and 8"),
        ("'x'", "<f8", "is not an array that numpy wrote"),
        ("(1,)", "nonsense", "is not an array that numpy wrote"),
        ("(1,)", "|O", "Python objects"),
    ],
)
def test_a_declared_size_is_not_believed(tmp_path, shape, dtype, said):
    one = io.BytesIO()
    np.save(one, np.array([1]))
    path = archive(tmp_path, id=one.getvalue(), score=member(shape, bytes(8), dtype))
    assert said in refusal(path)


def test_a_column_beyond_the_limit_is_refused_unread(tmp_path, monkeypatch):
    monkeypatch.setattr(columns, "MOST_BYTES", 79)
    path = npz_file(tmp_path, id=np.arange(10), score=np.zeros(10))
    assert "declares 80 bytes, and no more than 79 are read" in refusal(path)


def test_a_truncated_npz_file_is_named_wherever_it_was_cut(tmp_path):
    whole = npz_file(tmp_path, id=np.arange(50), score=np.arange(50.0)).read_bytes()
    path = tmp_path / "cut.npz"
    for cut in range(0, len(whole), 7):
        path.write_bytes(whole[:cut])
        assert "is not a .npz file, or it is cut off" in refusal(path)


def test_flipped_bytes_give_a_table_or_a_typed_error(tmp_path):
    """1,000 mutants with a fixed seed: no other exception, whatever is flipped."""
    rng = random.Random(8)
    path = npz_file(tmp_path, id=np.arange(9), score=np.arange(9.0), bit=[0] * 9)
    whole, refused = path.read_bytes(), 0
    for _ in range(1000):
        mutant = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            mutant[rng.randrange(len(mutant))] = rng.randrange(256)
        path.write_bytes(mutant)
        try:
            read_score_table(path)
        except DpAuditError:
            refused += 1
    assert refused > 500


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("scores.xlsx", "the name must end in .parquet or .csv or .npz"),
        ("scores.csv.gz", "the name must end in"),
        ("none.csv", "there is no file"),
    ],
)
def test_a_file_that_is_not_there_or_of_another_kind_is_named(tmp_path, name, said):
    assert said in refusal(tmp_path / name)


def test_a_directory_is_named_as_one(tmp_path):
    (tmp_path / "part.npz").mkdir()
    assert "is a directory; name one file" in refusal(tmp_path / "part.npz")


def test_a_table_of_different_lengths_cannot_be_built():
    with pytest.raises(InvalidInputError, match="must have one length, got \\[1, 2\\]"):
        ScoreTable(ids=np.arange(2), bits=None, scores=np.zeros(1))


NAMED = ColumnNames(id="sample", included="member", score="signal")


def test_columns_may_be_called_anything(tmp_path):
    """The usual names are then columns like any other."""
    text = "score,member,sample,signal,bit\n9,1,a,0.5,0\n9,0,b,-1,0\n"
    table = read_score_table(csv_file(tmp_path, text), columns=NAMED)
    assert plain(table) == [("a", 1, 0.5), ("b", 0, -1.0)]
    path = npz_file(tmp_path, id=[1, 2], member=[1, 0], signal=[0.5, 1], score=[7, 8])
    names = ColumnNames(included="member", score="signal")
    assert plain(read_score_table(path, columns=names)) == [(1, 1, 0.5), (2, 0, 1.0)]


def test_a_column_that_is_named_must_be_there(tmp_path):
    path = csv_file(tmp_path, "id,bit,score\n1,1,0.5\n")
    with pytest.raises(InvalidInputError, match=r"no column 'sample'; it has 'id', "):
        read_score_table(path, columns=NAMED)
    for odd in ({"id": "a", "score": "a"}, {"included": ""}, {"id": 5}):
        with pytest.raises(InvalidInputError, match="column"):
            ColumnNames(**odd)


def test_a_folder_of_csv_files_is_one_table(tmp_path):
    """However it is divided: the audit is that of one file of all rows."""
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 2, 300)
    scores = (bits + rng.normal(size=300)).round(1)
    rows = [f"c{i},{b},{s}" for i, (b, s) in enumerate(zip(bits, scores, strict=True))]
    claim, rules = PureDP(epsilon=1.0), Ranking(guesses=300)
    design = Design(canaries=300, rules=rules, claim=claim)
    found = set()
    for name, parts in (("whole", 1), ("in three", 3)):
        (tmp_path / name / "deeper").mkdir(parents=True)
        for i, part in enumerate(np.array_split(rng.permutation(rows), parts)):
            place = tmp_path / name / ("deeper" if i == 1 else "") / f"{i}.csv"
            place.write_text("\n".join(["id,bit,score", *part]))
        (tmp_path / name / ".hidden.parquet").touch()
        found.add(read_scores(tmp_path / name).audit(design).to_json())
    assert len(found) == 1
    (tmp_path / "in three" / "_again.csv").write_text("left alone")
    assert read_scores(tmp_path / "in three").canaries == 300
    (tmp_path / "in three" / "again.csv").write_text(f"id,bit,score\n{rows[7]}\n")
    twice = read_scores(tmp_path / "in three")
    with pytest.raises(InvalidRunError, match="an id appears twice"):
        twice.audit(replace(design, canaries=301))
    (tmp_path / "in three" / "a.parquet").write_bytes(b"")
    with pytest.raises(InvalidInputError, match="one kind"):
        read_scores(tmp_path / "in three")


def test_some_files_with_coins_and_some_without_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("id,bit,score\n1,1,0.5\n")
    (tmp_path / "b.csv").write_text("id,score\n2,0.5\n")
    with pytest.raises(InvalidRunError, match="some files hold coins"):
        read_scores(tmp_path)


def test_an_id_that_numpy_would_shorten_is_refused(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text("id,bit,score\na,0,1.0\na\0,1,2.0\n")
    with pytest.raises(InvalidInputError, match="ends in a NUL character"):
        read_score_table(path)
