"""The commands as one tool: help, versions, how they end, what they do not import."""

import os
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from io import StringIO
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from dpaudit import _progress
from dpaudit.cli import _COMMANDS, app
from dpaudit.cli._outputs import check_writable
from dpaudit.cli._shared import read_text, reported
from dpaudit.errors import InvalidInputError, InvalidRunError, UncertifiedError

NAMES = [command.__name__ for group in _COMMANDS.values() for command in group]
PATHS = [[name] for name in NAMES]
TOOL = [sys.executable, "-c", "from dpaudit.cli import app; app(prog_name='dpaudit')"]
WIDE = {"COLUMNS": "200", "TERM": "dumb"}


def shown(*arguments):
    done = CliRunner().invoke(app, arguments, env=WIDE)
    assert done.exit_code == 0, done.exception
    return done.stdout


def test_help_groups_the_commands_by_purpose_and_tells_the_exit_codes():
    said = shown("--help")
    order = [
        "Before a run", "which", "plan", "register", "After a run", "audit", "bound",
        "explain", "report", "Check and combine", "evidence", "verify", "combine",
        "Study a mechanism", "gaps",
    ]  # fmt: skip
    lines = [line.strip("│╭─╮ \n") for line in said.splitlines()]
    firsts = [line if line in order else line.split(" ")[0] for line in lines]
    assert [each for each in firsts if each in order] == order
    assert "Exit codes: 0 on success" in said


@pytest.mark.parametrize("path", PATHS)
def test_every_command_explains_itself_and_says_how_it_ends(path):
    said = shown(*path, "--help")
    assert f"dpaudit {' '.join(path)}" in said or f"root {' '.join(path)}" in said
    assert "Exit codes: 0 on success" in " ".join(said.split())


@pytest.mark.parametrize("path", PATHS)
def test_options_that_commands_share_are_described_alike(path):
    said = shown(*path, "--help")
    for option, described in (
        ("--alpha", "Significance level"),
        ("--json", "Print JSON."),
        ("--picture", "Also write a figure to this .svg file."),
    ):
        assert (f" {option} " in said) == (described in said), option


def test_the_version_is_that_of_the_package():
    assert shown("--version") == f"dpaudit {version('dpaudit')}\n"


def test_neither_help_nor_a_version_loads_numpy():
    code = (
        "import sys; from typer.testing import CliRunner; from dpaudit.cli import app;"
        "[CliRunner().invoke(app, a) for a in (['--help'], ['audit', '--help'])];"
        "print({'numpy', 'scipy', 'pyarrow', 'jinja2'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("name", ["audi", "versify"])
def test_a_command_that_does_not_exist_exits_with_2(name):
    assert CliRunner().invoke(app, [name]).exit_code == 2


def test_shells_can_complete_commands_and_options():
    for words, wanted in (
        ("dpaudit com", "combine"),
        ("dpaudit audit --coi", "--coins"),
    ):
        done = subprocess.run(
            TOOL,
            env=os.environ
            | {
                "_DPAUDIT_COMPLETE": "complete_bash",
                "COMP_WORDS": words,
                "COMP_CWORD": str(len(words.split()) - 1),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout.startswith(wanted), done.stderr


# How every command ends.


def ended(error):
    """Run a command that raises, and return its code and what it said."""
    tool = typer.Typer()

    @tool.command()
    @reported("dpaudit sleep")
    def sleep() -> None:
        """Raise."""
        raise error

    done = CliRunner().invoke(tool, [])
    return done.exit_code, done.stderr


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (InvalidInputError("no"), 2, "dpaudit sleep: no\n"),
        (UncertifiedError("no"), 2, "dpaudit sleep: no\n"),
        (InvalidRunError("no"), 4, "dpaudit sleep: invalid run: no\n"),
        (
            FileNotFoundError(2, "No such file", "x"),
            2,
            "dpaudit sleep: x: No such file\n",
        ),
        (OSError("odd"), 2, "dpaudit sleep: odd\n"),
        (MemoryError(), 2, "dpaudit sleep: there is not enough memory for this\n"),
        (KeyboardInterrupt(), 130, "dpaudit sleep: stopped\n"),
        (BrokenPipeError(), 141, ""),
        (typer.Exit(1), 1, ""),
    ],
)
def test_what_a_user_can_mend_is_one_line_and_no_traceback(error, code, said):
    assert ended(error) == (code, said)


def test_a_fault_of_our_own_is_not_hidden():
    tool = typer.Typer()
    tool.command()(reported("dpaudit fail")(lambda: 1 / 0))  # type: ignore[arg-type]
    assert isinstance(CliRunner().invoke(tool, []).exception, ZeroDivisionError)


def test_a_reader_that_has_seen_enough_is_no_error():
    reading, writing = os.pipe()
    os.close(reading)
    counts = ["--canaries=100", "--guesses=100", "--correct=90"]
    process = subprocess.Popen(
        [*TOOL, "bound", *counts], stdout=writing, stderr=subprocess.PIPE, text=True
    )
    os.close(writing)
    assert process.communicate()[1] == ""
    assert process.returncode == 141


def test_an_interrupt_ends_with_130_and_a_word(tmp_path):
    """Interrupted while it waits for its input, once it has begun to."""
    fifo = tmp_path / "reading.json"
    os.mkfifo(fifo)
    process = subprocess.Popen(
        [*TOOL, "bound", f"--reading={fifo}"],
        stderr=subprocess.PIPE,
        text=True,
        # A shell starts what it runs in the background with interrupts ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    with fifo.open("w"):  # opens when the command has opened it too
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=60)[1] == "dpaudit bound: stopped\n"
    assert process.returncode == 130


# Files.


def test_text_that_cannot_be_read_is_named(tmp_path):
    path = tmp_path / "x.json"
    for content, said in (
        (None, "No such file"),
        (b"ab\xff", "not UTF-8 text (byte 2)"),
    ):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(InvalidInputError, match="cannot read") as caught:
            read_text(path)
        assert said in str(caught.value)
    with pytest.raises(InvalidInputError, match="Is a directory"):
        read_text(tmp_path)


def test_a_file_is_tried_before_the_work_and_left_as_it_was(tmp_path):
    path = tmp_path / "x.json"
    check_writable(path, "--save")
    assert not path.exists()
    path.write_text("kept")
    check_writable(path, "--save")
    assert path.read_text() == "kept"
    with pytest.raises(InvalidInputError, match="name another place with --save"):
        check_writable(tmp_path, "--save")


def test_no_folder_is_made_unasked(tmp_path):
    """A name with a slip would leave a folder that nobody looks for."""
    path = tmp_path / "new" / "x.json"
    with pytest.raises(InvalidInputError, match=r"no folder .*new; make it, or name"):
        check_writable(path, "--save")
    assert not path.parent.exists()


def test_no_command_ends_by_itself():
    """All errors go through one place: no command prints one, or catches all."""
    folder = Path(sys.modules["dpaudit.cli"].__file__).parent
    for path in folder.glob("*.py"):
        text = path.read_text("utf-8")
        assert path.name == "_shared.py" or "err=True" not in text, path.name
        assert "Exit(2)" not in text, path.name


class _Watched(StringIO):
    """A terminal that somebody watches."""

    def isatty(self):
        return True


def test_what_takes_long_says_what_it_does_and_takes_it_back(monkeypatch):
    monkeypatch.setattr(_progress, "_SECONDS_BEFORE_NOTE", 0.01)
    for stream, said in (
        (_Watched(), "dpaudit: counting ...\r\x1b[K"),
        (StringIO(), ""),
    ):
        monkeypatch.setattr("sys.stderr", stream)
        with _progress.progress_note("counting"):
            _progress.progress_note("one by one")(time.sleep)(
                0.2
            )  # the outermost speaks
        assert stream.getvalue() == said


def test_what_is_soon_done_says_nothing(monkeypatch):
    monkeypatch.setattr("sys.stderr", _Watched())
    with pytest.raises(ZeroDivisionError), _progress.progress_note("dividing"):
        1 / 0  # noqa: B018
    assert sys.stderr.getvalue() == ""
    assert not _progress._busy
