"""No command overwrites an input or a key; names of outputs are checked before work.

The options are those of the tool itself: each path that a command takes must be an
input by the first table below or an output by the second, and what holds of outputs is
tried with all of them. A new command, or a new option, fails here until it is in one of
the tables, and as an output until it is protected.
"""

import inspect
import os
import resource
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from dpaudit import Key
from dpaudit.cli import app

INPUTS = {
    "audit": {"scores", "included", "excluded", "design", "key"},
    "bound": {"reading"},
    "combine": {"results"},
    "evidence": {"result", "key", "scores", "sign", "files"},
    "explain": {"result"},
    "merge": {"tallies", "design"},
    "nightly": {"folder"},
    "register": {"program"},
    "report": {"result"},
    "tally": {"scores", "design", "key"},
    "verify": {"evidence", "registration", "public_key", "files"},
}
OUTPUTS = {  # and how their names end; "" is however one likes
    "audit": {"save": ".json", "report": ".html", "evidence": ".json"},
    "evidence": {"output": ".json"},
    "gaps": {"picture": ".svg"},
    "merge": {"save": ".json", "report": ".html"},
    "plan": {"picture": ".svg"},
    "register": {"design": ".json", "key": "", "coins": ".csv"},
    "report": {"output": ".html"},
    "tally": {"save": ".json"},
}
FOLDERS = {"audit": {"pictures"}, "report": {"pictures"}}  # of outputs

PAIRS = [
    (name, read, written)
    for name, outputs in OUTPUTS.items()
    for read in sorted(INPUTS.get(name, ()))
    for written in outputs
]
WRITTEN = [(name, each) for name, outputs in OUTPUTS.items() for each in outputs]
SUFFIXED = [(name, each) for name, each in WRITTEN if OUTPUTS[name][each]]


def commands(found, name=""):
    for each, command in found.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{name}{each} ")
        else:
            yield f"{name}{each}", command


COMMANDS = dict(commands(get_command(app)))
PLAIN = {int: "2", float: "0.1", str: "xor"}


def kinds(name):
    """Return the types that each parameter of a command takes, whatever holds them."""
    hints = get_type_hints(inspect.unwrap(COMMANDS[name].callback))
    return {each: set(_leaves(hint)) for each, hint in hints.items()}


def _leaves(hint):
    inner = get_args(hint)
    return [leaf for each in inner for leaf in _leaves(each)] if inner else [hint]


def spelled(name, **given):
    """Return a command line with some options, and something for all it requires."""
    options, arguments = [], []
    for param in COMMANDS[name].params:
        if param.name not in given and not param.required:
            continue
        (kind, *_) = kinds(name)[param.name]
        other = PLAIN.get(kind, f"some-{param.name}{OUTPUTS[name].get(param.name, '')}")
        value = given.get(param.name, other)
        if param.param_type_name == "argument":
            arguments.append(value)
        else:
            options.append(f"{param.opts[0]}={value}")
    return [*name.split(), *options, *arguments]


def option(name, param):
    (found,) = (each for each in COMMANDS[name].params if each.name == param)
    return param.upper() if found.param_type_name == "argument" else found.opts[0]


def everything(folder="."):
    return {
        str(path): path.read_bytes() if path.is_file() else None
        for path in sorted(Path(folder).rglob("*"))
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_every_path_of_every_command_is_known_as_an_input_or_an_output(name):
    found = {each for each, types in kinds(name).items() if Path in types}
    inputs, outputs = INPUTS.get(name, set()), set(OUTPUTS.get(name, ()))
    assert found == inputs | outputs | FOLDERS.get(name, set())
    assert not inputs & outputs


@pytest.mark.parametrize("way", ["name", "dots", "link", "hard link", "new name"])
@pytest.mark.parametrize(("name", "read", "written"), PAIRS)
def test_no_input_is_overwritten(dpaudit, name, read, written, way):
    path, other = (Path(f"{each}{OUTPUTS[name][written]}") for each in "ab")
    if way != "new name":
        path.write_bytes(b"precious")
    Path("folder").mkdir()
    match way:
        case "name" | "new name":
            other = path
        case "dots":
            other = f"folder/../{path}"
        case "link":
            other.symlink_to(path)
        case "hard link":
            os.link(path, other)
    before = everything()
    done = dpaudit(*spelled(name, **{read: path, written: other}), code=2)
    assert f"{other} would be overwritten, and {option(name, read)}" in done.stderr
    assert f"name another file with {option(name, written)}" in done.stderr
    assert done.stderr.count("\n") == 1
    assert everything() == before


@pytest.mark.parametrize("pem", [False, True])
@pytest.mark.parametrize(("name", "written"), WRITTEN)
def test_no_key_is_overwritten(dpaudit, name, written, pem):
    path = Path(f"a{OUTPUTS[name][written]}")
    if pem:
        label = "PRIVATE KEY"
        path.write_text(f"of us\n-----BEGIN {label}-----\nMC4\n-----END {label}-----\n")
    else:
        Key.generate().write(path)
    before = everything()
    done = dpaudit(*spelled(name, **{written: path}), code=2)
    assert f"{path} holds a key" in done.stderr
    assert f"name another file with {option(name, written)}" in done.stderr
    assert everything() == before


@pytest.mark.parametrize("ending", ["", ".txt", ".key", ".json.bak"])
@pytest.mark.parametrize(("name", "written"), SUFFIXED)
def test_names_are_checked_before_anything_is_read_or_made(
    dpaudit, name, written, ending
):
    path = f"new folder/a{ending}"
    done = dpaudit(*spelled(name, **{written: path}), code=2)
    assert "the name must end in ." in done.stderr
    assert f"got {path}; name another file with {option(name, written)}" in done.stderr
    assert everything() == {}


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        (name, *pair)
        for name, outputs in OUTPUTS.items()
        for pair in combinations(outputs, 2)
        if len({outputs[each] for each in pair} - {""}) == 1
    ],
)
def test_two_outputs_are_two_files(dpaudit, name, one, other):
    path = f"a{OUTPUTS[name][one] or OUTPUTS[name][other]}"
    done = dpaudit(*spelled(name, **{one: path, other: f"./{path}"}), code=2)
    assert "must be different files" in done.stderr
    assert everything() == {}


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("lost", ["key.json", "design.json", "scores.json"])
def test_a_real_audit_leaves_its_inputs_alone(lost):
    Path("audit.key").rename("key.json")
    Path("scores.json").symlink_to("scores.npz")
    before = everything()
    files = ["scores.npz", "--design=design.json", "--key=key.json"]
    done = CliRunner().invoke(app, ["audit", *files, f"--save={lost}"])
    assert everything() == before
    assert done.exit_code == 2
    assert f"{lost} would be overwritten" in done.stderr


def test_a_table_of_a_folder_that_is_read_is_an_input_too(dpaudit):
    Path("scores").mkdir()
    Path("scores/0.parquet").write_bytes(b"precious")
    Path("tally.json").symlink_to("scores/0.parquet")
    done = dpaudit(*spelled("tally", scores="scores", save="tally.json"), code=2)
    assert "tally.json would be overwritten, and SCORES reads it" in done.stderr
    assert Path("scores/0.parquet").read_bytes() == b"precious"


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("option", ["save", "evidence"])
def test_a_full_disk_leaves_the_file_of_before(option):
    """The system lets files grow to 100 bytes; a real disk that is full says no too."""
    Path("a.json").write_text("the result of yesterday")
    before = everything()
    limited = (
        f"import resource; resource.setrlimit({resource.RLIMIT_FSIZE}, (100, 100)); "
        "from dpaudit.cli import app; app(prog_name='dpaudit')"
    )
    options = ["--design=design.json", "--key=audit.key", f"--{option}=a.json"]
    done = subprocess.run(
        [sys.executable, "-B", "-c", limited, "audit", "scores.npz", *options],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2, done.stderr
    assert "File too large" in done.stderr
    assert everything() == before


def test_what_is_registered_stays_private_and_is_whole(dpaudit):
    claim = ["--canaries=400", "--epsilon=1", "--delta=0"]
    dpaudit("register", *claim, "--key=a.key", "--coins=coins.csv")
    assert sorted(everything()) == ["a.key", "coins.csv", "design.json"]
    for path in ("a.key", "coins.csv"):
        assert Path(path).stat().st_mode & 0o777 == 0o600
    assert len(Path("coins.csv").read_text().splitlines()) == 401
