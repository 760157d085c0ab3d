"""The page about dependencies names all of them, with the versions asked for."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
LAB = tomllib.loads((ROOT / "lab" / "pyproject.toml").read_text("utf-8"))
PAGE = (ROOT / "docs" / "developer" / "dependencies.md").read_text("utf-8")


def requirements():
    """Return (name, versions, extra or None) of everything that is asked for."""
    groups = [(None, PROJECT["build-system"]["requires"])]
    groups += [(None, PROJECT["project"]["dependencies"])]
    groups += [("the lab", LAB["project"]["dependencies"])]
    groups += PROJECT["project"]["optional-dependencies"].items()
    groups += [(None, asked) for asked in PROJECT["dependency-groups"].values()]
    for extra, asked in groups:
        for each in asked:
            if isinstance(each, str) and not each.startswith("dpaudit["):
                name, versions = re.fullmatch(r"([\w-]+)(.*)", each).groups()
                yield name, versions, extra


def rows():
    """Return the cells of each row of the page's tables, by the package's name."""
    lines = re.findall(r"^\| `([\w-]+)` \|(.*)\|$", PAGE, re.M)
    return {name: [cell.strip() for cell in rest.split(" | ")] for name, rest in lines}


@pytest.mark.parametrize(("name", "versions", "extra"), list(requirements()))
def test_every_dependency_is_reviewed_with_the_versions_asked_for(
    name, versions, extra
):
    cells = rows()[name]
    assert any(cell.startswith(f"`{versions}`") for cell in cells), cells
    if extra is not None:
        assert extra in cells[0].split(", ")


def test_nothing_is_reviewed_that_is_not_asked_for():
    assert set(rows()) == {name for name, _, _ in requirements()}
