"""``dpaudit which``: it says what there is, and nothing that there is not."""

import ast
import shlex
from inspect import signature
from pathlib import Path

import pytest
from typer.main import get_command

import dpaudit
from dpaudit.cli import app
from dpaudit.cli.which import ANSWERS, Have

DOCS = Path(__file__).parents[2] / "docs"


def test_without_an_answer_it_asks_what_you_have(dpaudit):
    said = dpaudit("which").stdout
    assert said.startswith("What do you have?")
    for have in Have:
        assert f"dpaudit which {have} " in said
    assert max(map(len, said.splitlines())) <= 100


@pytest.mark.parametrize("have", Have)
def test_an_answer_says_what_can_and_cannot_be_shown(dpaudit, have):
    said = dpaudit("which", have).stdout
    parts = ("Can be shown: ", "Cannot be shown: ", "More: docs/")
    places = [said.find(part) for part in parts]
    assert -1 not in places
    assert places == sorted(places)


def test_a_model_without_canaries_shows_nothing_and_it_is_said_why(dpaudit):
    said = " ".join(dpaudit("which", "model").stdout.split())
    assert "Nothing about epsilon" in said
    assert "membership was not randomised" in said


@pytest.mark.parametrize("have", Have)
def test_commands_are_ones_that_the_program_takes(have):
    answer = ANSWERS[have]
    assert (DOCS / answer.page).is_file()
    for line in answer.lines:
        if line.startswith("dpaudit "):
            _, name, *options = shlex.split(line)
            get_command(app).commands[name].make_context(name, options)


@pytest.mark.parametrize("have", set(Have) - {Have.FLOWER, Have.PFL})
def test_calls_import_what_they_call_and_have_its_arguments(have):
    """Flower and pfl are not installed beside the others."""
    lines = [each for each in ANSWERS[have].lines if not each.startswith("dpaudit ")]
    imported = set()
    for node in ast.walk(ast.parse("\n".join(lines))):
        if isinstance(node, ast.ImportFrom):
            imported |= {each.name for each in node.names}
        name = (
            node.func.id
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            else None
        )
        if name is None or not hasattr(dpaudit, name):
            continue
        assert name in imported
        keywords = {each.arg: None for each in node.keywords}
        signature(getattr(dpaudit, name)).bind(*node.args, **keywords)


@pytest.mark.parametrize("name", ["FlowerAudit", "PflAudit"])
def test_federated_audits_are_on_the_face(name):
    assert name in dir(dpaudit)


def test_something_else_is_refused_with_the_choices(dpaudit):
    said = dpaudit("which", "nothing", code=2).stderr
    assert "training" in said
    assert "evidence" in said
