"""Files that are whole or not there, and keys that stay."""

import ast
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import dpaudit
from dpaudit import ApproxDP, Design, Key, OneRun, _files
from dpaudit.errors import InvalidInputError
from dpaudit.training.any_loop import SumsAudit

OLD, NEW = b"as it was", "as it is"


def state(path):
    claim = ApproxDP(epsilon=1.0, delta=1e-5)
    design = Design(canaries=3, rules=OneRun(guesses=1), claim=claim)
    key = Key(bytes(32))
    SumsAudit(design=design, key=key, dimension=3, sample_rate=1.0).save(path)


def text(path):
    _files.write(path, NEW)


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize("write", [text, state])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_a_stop_before_the_last_byte_is_on_the_disk_changes_nothing(
    tmp_path, monkeypatch, write, there, error
):
    path = tmp_path / "a"
    if there:
        path.write_bytes(OLD)

    def stop(_descriptor):
        raise error

    monkeypatch.setattr(os, "fsync", stop)
    with pytest.raises(error):
        write(path)
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [OLD] * there


def test_a_file_that_is_killed_half_way_is_the_old_one(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(OLD)
    code = (
        "import sys, time; from dpaudit import _files\n"
        "with _files.whole_file(sys.argv[1]) as draft, draft.open('w') as file:\n"
        "    file.write('half'); file.flush(); print(flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, path]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        running.stdout.readline()
        running.send_signal(signal.SIGKILL)
    assert path.read_bytes() == OLD
    text(path)
    assert path.read_text() == NEW


def test_a_draft_is_beside_its_file_and_gone_at_the_end(tmp_path):
    path = tmp_path / ("a" * 250 + ".json")
    with _files.whole_file(path) as draft:
        assert draft.parent == tmp_path
        assert not path.exists()
        draft.write_text(NEW)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_a_file_keeps_its_mode_and_its_draft_has_no_other(tmp_path, mode):
    path = tmp_path / "a"
    path.write_bytes(OLD)
    path.chmod(mode)
    with _files.whole_file(path) as draft:
        assert draft.stat().st_mode & 0o777 == mode
    assert path.stat().st_mode & 0o777 == mode


def test_a_new_file_has_the_mode_that_open_gives(tmp_path):
    text(tmp_path / "a")
    (tmp_path / "b").write_text("b")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_a_link_is_followed_and_stays(tmp_path):
    (tmp_path / "folder").mkdir()
    path, link = tmp_path / "folder" / "a", tmp_path / "link"
    link.symlink_to(path)
    text(link)
    assert link.is_symlink()
    assert path.read_text() == NEW


def test_a_pipe_is_written_to_and_stays_one(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    _files.check_replaceable(path)  # waits for no reader
    writer = threading.Thread(target=text, args=(path,), daemon=True)
    writer.start()
    assert path.read_text() == NEW
    writer.join(10)
    assert path.is_fifo()


@pytest.mark.parametrize("write", [text, _files.check_replaceable])
@pytest.mark.parametrize(
    ("name", "error"),
    [("none/a", FileNotFoundError), ("folder", IsADirectoryError)],
)
def test_what_cannot_be_written_is_named_as_it_was_asked_for(
    tmp_path, write, name, error
):
    (tmp_path / "folder").mkdir()
    path = tmp_path / name
    with pytest.raises(error) as raised:
        write(path)
    assert raised.value.filename == str(path)
    assert list(tmp_path.rglob("*")) == [tmp_path / "folder"]


def test_a_file_that_may_not_be_written_is_not_replaced(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_bytes(OLD)
    monkeypatch.setattr(os, "access", lambda *_: False)  # whoever runs the tests
    with pytest.raises(PermissionError):
        text(path)
    assert path.read_bytes() == OLD


def pem(label):
    return f"-----BEGIN {label}-----\nMC4CAQ\n-----END {label}-----\n"


@pytest.mark.parametrize(
    "held",
    [
        "0f" * 32,
        "0F" * 32 + "\n",
        pem("PRIVATE KEY"),
        pem("ENCRYPTED PRIVATE KEY"),
        pem("OPENSSH PRIVATE KEY"),
        pem("PUBLIC KEY"),
        "Bag attributes\n" + pem("RSA PRIVATE KEY"),
    ],
)
def test_what_holds_a_key_is_not_replaced(tmp_path, held):
    path, link = tmp_path / "a", tmp_path / "link"
    path.write_text(held)
    link.symlink_to(path)
    for name in (path, link):
        for write in (text, state, _files.check_replaceable):
            with pytest.raises(InvalidInputError, match="holds a key"):
                write(name)
    assert path.read_text() == held
    assert sorted(tmp_path.iterdir()) == [path, link]


@pytest.mark.parametrize(
    "held",
    ["", "0f" * 31, "0f" * 33, "0g" * 32, "of a -----BEGIN PRIVATE KEY-----", "\xff"],
)
def test_other_files_are_replaced(tmp_path, held):
    path = tmp_path / "a"
    path.write_text(held, "latin-1")
    text(path)
    assert path.read_text() == NEW


@pytest.mark.parametrize("links", [True, False])
def test_a_new_file_replaces_nothing_even_what_came_meanwhile(
    tmp_path, monkeypatch, links
):
    def unable(*_):
        raise PermissionError

    if not links:
        monkeypatch.setattr(os, "link", unable)
    path = tmp_path / "a"
    with _files.new_file(path, mode=_files.SECRET) as draft:
        assert draft.stat().st_mode & 0o777 == 0o600
        draft.write_text("first")
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError), _files.new_file(path):
        pass
    other = tmp_path / "b"

    def late():
        with _files.new_file(other) as draft:
            draft.write_text("second")
            other.write_text("meanwhile")

    with pytest.raises(FileExistsError):
        late()
    assert other.read_text() == "meanwhile"
    assert path.read_text() == "first"
    assert sorted(tmp_path.iterdir()) == [path, other]


def test_a_key_is_whole_or_not_there(tmp_path, monkeypatch):
    def stop(_descriptor):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", stop)
        with pytest.raises(KeyboardInterrupt):
            Key(bytes(32)).write(tmp_path / "a.key")
    assert list(tmp_path.iterdir()) == []
    Key(bytes(32)).write(tmp_path / "a.key")
    assert _files.holds_key(tmp_path / "a.key")


# Files in folders of their own that are gone at the end, and one of the kernel's.
ELSEWHERE = {
    "experiments/benchmark/memory.py",
    "experiments/calibration/roads.py",
    "training/bugzoo/processes.py",
    "training/opacus/trainer.py",
}
WRITERS = {"write_text", "write_bytes", "savez", "savefig", "ParquetWriter", "touch"}


def writes(call):
    """Return whether a call writes a file that is not a draft."""
    function = call.func
    name = getattr(function, "attr", getattr(function, "id", ""))
    receiver = getattr(getattr(function, "value", None), "id", "")
    inside = {each.id for each in ast.walk(call) if isinstance(each, ast.Name)}
    if "draft" in inside:
        return False
    if name in WRITERS:
        return receiver != "np"  # arrays go to a file that is open
    modes = [
        each.value
        for each in [*call.args, *(keyword.value for keyword in call.keywords)]
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    ]
    return name == "open" and any(
        set(mode) <= set("rwxabt+") and set(mode) & set("wxa") for mode in modes
    )


def test_nothing_else_in_the_package_writes_a_file():
    package = Path(dpaudit.__file__).parent
    found = {
        f"{path.relative_to(package).as_posix()}:{node.lineno}"
        for path in package.rglob("*.py")
        if path.relative_to(package).as_posix() not in {*ELSEWHERE, "_files.py"}
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and writes(node)
    }
    assert found == set()
