"""The commands of the lab as one tool."""

import pytest
from typer.testing import CliRunner

from dpaudit_lab.cli import app

PATHS = [["reproduce"], ["calibrate"], ["benchmark"], ["sweep", "status"]]
PATHS += [["sweep", "export"]]


def shown(*arguments):
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "200", "TERM": "dumb"})
    assert done.exit_code == 0, done.exception
    return done.stdout


def test_help_names_every_study_and_tells_the_exit_codes():
    said = shown("--help")
    assert all(path[0] in said for path in PATHS)
    assert "Exit codes: 0 on success" in said


@pytest.mark.parametrize("path", PATHS)
def test_every_study_explains_itself_and_says_how_it_ends(path):
    said = shown(*path, "--help")
    assert f"root {' '.join(path)}" in said
    assert "Exits with" in " ".join(said.split())


@pytest.mark.parametrize("path", PATHS)
def test_options_that_studies_share_are_described_alike(path):
    said = shown(*path, "--help")
    for option, described in (
        ("--alpha", "Significance level"),
        ("--json", "Print JSON."),
        ("--picture", "Also write a figure to this .svg file."),
        ("--store", "Where trials are kept and gone on from"),
    ):
        assert (f" {option} " in said) == (described in said), option
