"""``dpaudit which``: it says what there is, and nothing that there is not."""

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

import dpaudit
from dpaudit.cli import app
from dpaudit.cli.which import ANSWERS, Have
from dpaudit.training import black_box, opacus

FLOWER = "FlowerAudit"
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
    assert "no coin was tossed" in said


@pytest.mark.parametrize("have", Have)
def test_what_is_to_be_typed_exists(have):
    answer = ANSWERS[have]
    assert (DOCS / answer.page).is_file()
    for line in answer.lines:
        if line.startswith("dpaudit "):
            _, name, *options = shlex.split(line)
            get_command(app).commands[name].make_context(name, options)
        for name in re.findall(r"= (\w+)\(", line):
            modules = (dpaudit, opacus, black_box)
            # Flower is not installed beside the others.
            assert name == FLOWER or any(hasattr(each, name) for each in modules)


def test_the_audit_of_flower_is_where_its_page_says_it_is():
    source = Path(dpaudit.__file__).parent / "training" / "flower" / "__init__.py"
    assert f'"{FLOWER}"' in source.read_text()


def test_something_else_is_refused_with_the_choices(dpaudit):
    said = dpaudit("which", "nothing", code=2).stderr
    assert "training" in said
    assert "evidence" in said
