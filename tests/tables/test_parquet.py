"""Tables of scores from Parquet; needs the extra ``tables``."""

import random

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from dpaudit.errors import DpAuditError, InvalidInputError
from dpaudit.tables.sources import read_score_list, read_score_table


def write(folder, table, **options):
    path = folder / "scores.parquet"
    parquet.write_table(table, path, **options)
    return path


def refusal(path):
    with pytest.raises(InvalidInputError) as caught:
        read_score_table(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("groups", [1, 2, 100])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_parquet_file_says_the_same_as_the_others(tmp_path, rows, groups, codec):
    ids, bits, scores = zip(*rows, strict=True)
    table = pa.table({"score": scores, "other": ["x"] * 4, "bit": bits, "id": ids})
    found = read_score_table(
        write(tmp_path, table, row_group_size=groups, compression=codec)
    )
    assert found.ids.tolist() == list(ids)
    assert found.bits.tolist() == list(bits)
    assert found.scores.tolist() == list(scores)


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())],
)
def test_ids_may_be_any_kind_of_text(tmp_path, kind):
    ids = pa.array(["b", "a", "b2"]).cast(kind)
    found = read_score_table(write(tmp_path, pa.table({"id": ids, "score": [1, 2, 3]})))
    assert found.ids.tolist() == ["b", "a", "b2"]
    assert found.bits is None


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.uint64(), pa.float32(), pa.float16(), pa.bool_()]
)
def test_bits_and_scores_may_be_of_any_numeric_type(tmp_path, kind):
    values = pa.array([1, 0, 1]).cast(pa.float32() if kind == pa.float16() else kind)
    values = values.cast(kind)
    table = pa.table({"id": [4, 5, 6], "bit": values, "score": values})
    found = read_score_table(write(tmp_path, table))
    assert found.bits.tolist() == [1, 0, 1]
    assert found.scores.tolist() == [1.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"id": [1, 2]}, "there is no column 'score'"),
        (
            {"id": [1, 2], "score": [0.5, None]},
            "column 'score', row 2: there is no val",
        ),
        ({"id": [None, 1], "score": [1, 2]}, "column 'id', row 1: there is no value"),
        ({"id": [1], "score": [float("nan")]}, "row 1: the score is not a number"),
        ({"id": [1], "score": ["0.5"]}, "column 'score': it holds <U3"),
        ({"id": [1], "score": [[0.5]]}, "column 'score': it holds list<"),
        ({"id": [0.5], "score": [0.5]}, "ids are whole numbers or text"),
        ({"id": [1], "score": [1], "bit": [7]}, "column 'bit', row 1: 7 is neither"),
        (
            {"id": pa.array([], pa.int8()), "score": pa.array([], pa.float64())},
            "there is no row",
        ),
    ],
)
def test_a_bad_column_is_refused_with_its_place(tmp_path, columns, said):
    assert said in refusal(write(tmp_path, pa.table(columns)))


def test_a_column_that_is_there_twice_is_refused(tmp_path):
    table = pa.Table.from_arrays([pa.array([1])] * 3, names=["id", "score", "score"])
    assert "there are 2 such columns" in refusal(write(tmp_path, table))


def test_a_file_that_is_cut_off_or_no_parquet_is_named(tmp_path):
    path = write(tmp_path, pa.table({"id": range(100), "score": np.arange(100.0)}))
    whole = path.read_bytes()
    for cut in (0, 3, 4, 100, len(whole) - 1):
        path.write_bytes(whole[:cut])
        assert "is not a Parquet file, or it is cut off" in refusal(path)


def test_flipped_bytes_give_a_table_or_a_typed_error(tmp_path):
    """300 mutants with a fixed seed: no other exception, whatever is flipped."""
    rng = random.Random(5)
    path = write(tmp_path, pa.table({"id": range(9), "score": np.arange(9.0)}))
    whole = path.read_bytes()
    for _ in range(300):
        mutant = bytearray(whole)
        mutant[rng.randrange(len(mutant))] = rng.randrange(256)
        path.write_bytes(mutant)
        try:
            read_score_table(path)
        except DpAuditError:
            continue


def test_one_list_may_be_a_column(tmp_path):
    path = write(tmp_path, pa.table({"score": [0.5, 1.5]}))
    assert read_score_list(path).tolist() == [0.5, 1.5]
    path = write(tmp_path, pa.table({"other": [0.5, 1.5]}))
    with pytest.raises(InvalidInputError, match="there is no column 'score'"):
        read_score_list(path)
