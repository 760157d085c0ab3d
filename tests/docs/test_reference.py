"""The reference pages leave nothing out that the package has."""

import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dpaudit.cli import app
from dpaudit_lab.cli import app as lab

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "_extensions"))

import reference

SCHEMAS = Path(sys.modules["dpaudit"].__path__[0]) / "schemas"


@pytest.fixture(scope="module")
def commands():
    return "\n".join(reference.command_lines())


def asked(app, *words):
    """Return the options that a command's own help lists, one on a line."""
    shown = CliRunner().invoke(app, [*words, "--help"]).stdout
    return set(re.findall(r"^\W*(--[a-z-]+)  ", shown, re.MULTILINE)) - {"--help"}


def test_every_option_of_a_command_is_listed(commands, subtests):
    for path in [
        *("plan", "register", "audit", "bound", "explain", "report", "evidence"),
        *(
            "tally",
            "merge",
            "verify",
            "combine",
            "gaps",
        ),
    ]:
        with subtests.test(path=path):
            check_listed(commands, f"dpaudit {path}", asked(app, path))


@pytest.mark.parametrize("path", ["reproduce", "calibrate", "benchmark"])
def test_every_option_of_a_study_is_listed(commands, path):
    check_listed(commands, f"dpaudit-lab {path}", asked(lab, path))


def check_listed(commands, command, options):
    begin = commands.index(f"\n## `{command}`\n")
    section = commands[begin:].partition("\n## ")[2].partition("\n## ")[0]
    assert options
    for option in options:
        assert f"`{option}`" in section


def test_every_schema_is_listed():
    listed = [name for name, _ in reference.schemas()]
    assert listed == sorted(file.name for file in SCHEMAS.glob("*.schema.json"))
    assert listed
