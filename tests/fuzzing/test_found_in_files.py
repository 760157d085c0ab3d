"""What fuzzing found in readers of files, one test for each fault."""

import io
import struct
import zipfile

import numpy as np
import pytest
from evidence_samples import KEY
from fuzz_samples import audit, states
from typer.testing import CliRunner

from dpaudit.cli import app
from dpaudit.errors import InvalidInputError
from dpaudit.tables import columns
from dpaudit.tables.columns import read_arrays
from dpaudit.tables.sources import read_score_list, read_score_table
from dpaudit.training.any_loop import SumsAudit

# Arrays in files


def npy(descr, shape, data=b"", *, length=None):
    head = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}\n"
    size = len(head) if length is None else length
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", size) + head.encode() + data


@pytest.mark.parametrize(
    ("descr", "shape"),
    [
        ("|S0", "(9223372036854775807,)"),
        ("<U0", "(5,)"),
        ("|V0", "(" + "1," * 70 + ")"),
        ("<f8", "(0, 1000000000000000000)"),
        ("<f8", "(" + "0," * 70 + ")"),
    ],
)
def test_arrays_of_nothing_are_refused(descr, shape, tmp_path):
    """Of entries without a byte a file may say that there are as many as it likes."""
    path = tmp_path / "scores.npy"
    path.write_bytes(npy(descr, shape))
    with pytest.raises(InvalidInputError, match=r"scores\.npy, column 'score'"):
        read_score_list(path)


def archive(path, members, *, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as file:
        for name, data in members:
            file.writestr(name, data)
    return path


def test_a_header_of_gigabytes_is_not_read(tmp_path):
    """Packed, it is small: what its length said was asked for."""
    data = npy("<f8", "(1,)", b" " * (64 << 20), length=2**32 - 1)
    path = archive(tmp_path / "scores.npz", [("scores.npy", data)])
    assert path.stat().st_size < 100_000
    with pytest.raises(InvalidInputError, match="a header of 4,294,967,295 bytes"):
        read_score_list(path)


def test_an_array_that_is_packed_a_thousandfold_is_refused(tmp_path, monkeypatch):
    """From 256 MB on; here from 1 MB on. A real column is never packed so well."""
    monkeypatch.setattr(columns, "_UNPACKED", 10**6)
    data = npy("<f8", "(200000,)", bytes(1_600_000))
    path = archive(tmp_path / "scores.npz", [("scores.npy", data)])
    with pytest.raises(InvalidInputError, match="1,600,000 bytes of memory, and only"):
        read_score_list(path)
    rng = np.random.default_rng(0)
    np.savez_compressed(path, scores=rng.integers(0, 2, 200_000))  # 64 bits for one
    assert len(read_score_list(path)) == 200_000


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_arrays_are_stored_or_deflated(method, tmp_path):
    members = [("scores.npy", npy("<f8", "(1,)", bytes(8)))]
    path = archive(tmp_path / "scores.npz", members, method=method)
    with pytest.raises(InvalidInputError, match="another way than numpy's savez does"):
        read_score_list(path)


def test_an_array_that_is_there_twice_is_refused(tmp_path):
    one = npy("<f8", "(1,)", bytes(8))
    path = archive(tmp_path / "scores.npz", [("scores.npy", one), ("scores", one)])
    with pytest.raises(InvalidInputError, match="there are 2 arrays of this name"):
        read_arrays(path, ("scores",))


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_keep_the_order_of_their_axes(order, tmp_path):
    table = np.asarray(np.arange(6.0).reshape(2, 3), order=order)
    np.savez(tmp_path / "a.npz", table=table)
    read = read_arrays(tmp_path / "a.npz", ("table",))["table"]
    assert np.array_equal(read, table)


def test_names_in_an_archive_lead_nowhere(tmp_path):
    one = npy("<f8", "(1,)", bytes(8))
    names = ["../score.npy", "/score.npy", "a/../../score.npy", "score.npy"]
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    path = archive(folder / "scores.npz", [(name, one) for name in names])
    before = sorted(tmp_path.rglob("*"))
    assert read_score_list(path).tolist() == [0.0]
    assert sorted(tmp_path.rglob("*")) == before


def test_long_doubles_beyond_floats_are_infinite_without_a_warning(tmp_path):
    np.save(tmp_path / "scores.npy", np.array([np.longdouble("1e400"), 1]))
    assert read_score_list(tmp_path / "scores.npy").tolist() == [np.inf, 1.0]


def test_one_long_id_does_not_make_all_of_them_long(tmp_path):
    """A file of 600 kB asked for 12 GB, as numpy gives every text the same length."""
    path = tmp_path / "scores.csv"
    rows = "".join(f"a{i},1\n" for i in range(30_000))
    path.write_text("id,score\n" + "x" * 100_000 + ",1\n" + rows)
    with pytest.raises(InvalidInputError, match=r"12,000,400,000 bytes of memory; use"):
        read_score_table(path)


# The state of an audit


def resumed(data, tmp_path):
    path = tmp_path / "state.npz"
    path.write_bytes(data)
    fresh = SumsAudit(design=audit().design, key=KEY, dimension=20, sample_rate=0.5)
    fresh.resume(path)
    return fresh


def changed_state(which, **changes):
    """Return a state with other arrays, sealed where those that they replace are."""
    with np.load(io.BytesIO(list(states())[which])) as file:
        arrays = {name: file[name] for name in file.files}
    (number,) = arrays["seen number"]
    for name, array in changes.items():
        seen = f"seen.{name}"
        if array is None:
            del arrays[seen]
        elif seen in arrays:
            plain = np.frombuffer(array.tobytes(), np.uint8)
            sealed = KEY.sealed(seen, int(number), plain)
            arrays[seen] = sealed.view(array.dtype).reshape(array.shape)
        else:
            arrays[name] = array
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


@pytest.mark.parametrize(
    ("which", "changes", "said"),
    [
        (2, {"steps": None}, "'steps' are missing"),
        (2, {"steps": np.array([1, 2, 3])}, "'steps' must be 2 counts"),
        (2, {"steps": np.array([1.5, 2.0])}, "'steps' must be 2 counts"),
        (2, {"steps": np.array([-1, 0])}, "'steps' must be 2 counts"),
        (2, {"0.counts": np.array(3)}, "'counts' must be 4 counts"),
        (2, {"0.noise": np.array(["a", "b"])}, "'noise' must be floats"),
        (2, {"0.total": None}, "'total' are missing"),
        (2, {"0.log_likelihood": None}, "'log_likelihood' are missing"),
        (1, {"0.before": None}, "'before' are missing"),
        (2, {"format": np.array("other")}, "no state of an audit that this version"),
    ],
)
def test_a_state_with_something_missing_or_odd_is_refused(
    which, changes, said, tmp_path
):
    """There were a KeyError, a ValueError, a TypeError and a failed assertion."""
    with pytest.raises(InvalidInputError, match=said):
        resumed(changed_state(which, **changes), tmp_path)


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"x" * 99, b"\x93NUMPY"])
def test_a_state_that_is_no_archive_is_refused(data, tmp_path):
    with pytest.raises(InvalidInputError, match="holds no state of an audit"):
        resumed(data, tmp_path)


def test_a_state_is_resumed_as_it_was(tmp_path):
    assert resumed(list(states())[2], tmp_path)._audit.likelihood.steps == 3


# Names of files on the command line


@pytest.mark.parametrize("name", ["new\x1b[2J.json", "new\udcff.json", "a\nb.json"])
def test_files_are_not_written_under_names_that_cannot_be_printed(
    name, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    line = ["register", "--canaries", "9", "--epsilon", "1", "--delta", "0"]
    done = CliRunner().invoke(app, [*line, "--key", "new.key", "--design", name])
    assert done.exit_code == 2
    assert "cannot be printed" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_missing_file_is_told_without_its_escape_sequence(tmp_path):
    done = CliRunner().invoke(app, ["verify", str(tmp_path / "\x1b[2Jno.json")])
    assert done.exit_code == 2
    assert "\\x1b[2Jno.json" in done.stderr
    assert "\x1b" not in done.stderr
