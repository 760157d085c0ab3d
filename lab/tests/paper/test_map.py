"""The map in the docs names every figure, and its row's tests run its trials."""

import re

import pytest
from paper_map import failing, never_run, returned, rows, without_label

from dpaudit_lab.paper.names import FIGURES

ROWS = [row for row in rows() if row.statement.startswith("Figure ")]


def test_every_figure_is_in_the_map_with_its_number_label_and_command():
    told = [
        (int(re.match(r"Figure (\d):", row.statement)[1]), row.label, row.says)
        for row in ROWS
    ]
    assert told == [
        (figure.number, figure.label, f"`dpaudit-lab reproduce {name}`")
        for name, figure in FIGURES.items()
    ]


def test_docstrings_of_what_a_figure_names_have_its_label():
    assert not set().union(*map(without_label, ROWS))


@pytest.mark.parametrize("row", [pytest.param(row, id=row.label) for row in ROWS])
def test_the_tests_of_a_figure_run_its_trials(request, row):
    assert not never_run(row, request)


# Of the first row that names it.
FAULTS = [
    ("guesses", lambda found: {key: 0.9 * right for key, right in found.items()}),
    ("elements", lambda found: {key: 0.9 * right for key, right in found.items()}),
    (
        "adaptive_steps",
        lambda found: found | {"guesses adaptively": found["guesses at once"]},
    ),
    ("local_laplace", lambda found: {"right": found["right"] + 100}),
    ("sets", lambda found: found | {"guesses at once": 100}),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "fault"), FAULTS)
def test_the_tests_of_a_figure_find_a_fault_in_its_trials(request, name, fault):
    where = f"dpaudit_lab.paper.{name}:trial"
    row = next(row for row in ROWS if where in row.code)
    assert failing(row, request, where, returned(fault)) is not None
