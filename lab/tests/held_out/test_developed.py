"""The cases that the checks were developed with are what they say."""

import re

import pytest

from dpaudit_lab.held_out.sets.developed import FAULTS_26
from dpaudit_lab.held_out.sets.developed_correct import CORRECT
from dpaudit_lab.held_out.sets.developed_earlier import ATTACKS_8, EARLIER

FAULTS = [*FAULTS_26, *ATTACKS_8, *EARLIER]


def test_cases_are_told_apart_and_say_what_they_are():
    assert (len(FAULTS_26), len(ATTACKS_8)) == (26, 8)
    every = [*FAULTS, *CORRECT]
    assert len({case.name for case in every}) == len(every)
    for case in every:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", case.name)
        assert case.what.endswith(".")
        assert case.true_epsilon.endswith(".")
    assert all(case.breaks for case in FAULTS)
    assert not any(case.breaks for case in CORRECT)


def trained(case, seed):
    """Run a case's step twice, and then its loop; return the program."""
    program = case.build(seed)
    batch = next(iter(program.loader))
    program.step(batch)
    program.step(batch)
    if program.after_opening is not None:
        program.after_opening()
    program.train()
    return program


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_programs_run():
    every = {case.name: case for case in [*FAULTS, *CORRECT]}
    for name in ("cycle-of-loader", "unclips-once-opened", "ghost-clipping"):
        program = trained(every[name], seed=0)
        told = sum(steps for *_, steps in program.engine.accountant.history)
        assert told == program.steps + 2


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [0, 1])
def test_all_programs_run(seed):
    for case in [*FAULTS, *CORRECT]:
        trained(case, seed)
