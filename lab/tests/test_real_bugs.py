"""Public bugs and correct constructors: well described, and judged rightly."""

import re

import pytest

from dpaudit import Adjacency, ZeroConcentratedDP
from dpaudit.testing import Calls, OneValue, Pair, audit_sequentially
from dpaudit_lab.real_bugs.catalogue import BUGS
from dpaudit_lab.real_bugs.controls import CONTROLS
from dpaudit_lab.real_bugs.controls_plain import CONTROLS as PLAIN


def audit(case, *, calls, alpha):
    claim = case.claim
    if claim is None:
        claim = ZeroConcentratedDP(rho=case.rho, adjacency=Adjacency.REPLACE_ONE)
    return audit_sequentially(
        case.function,
        pairs=[Pair("the pair", OneValue(x=case.x, y=case.y))],
        claim=claim,
        alpha=alpha,
        budget=Calls(calls=calls),
        raising=case.raising,
    )


def test_there_are_enough_of_them_each_with_a_name():
    names = [each.name for each in (*BUGS, *CONTROLS)]
    assert len(set(names)) == len(names)
    assert len(BUGS) >= 20
    assert len(CONTROLS) >= 50


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_every_bug_is_public_and_names_a_release(bug):
    assert bug.disclosed
    assert re.fullmatch(r"https://github\.com/.+/(issues|pull)/\d+", bug.url)
    pinned = " ".join((*bug.requires, *bug.alone))
    assert f"=={bug.version}" in pinned
    assert bug.fixed != bug.version


@pytest.mark.parametrize("control", PLAIN[::6], ids=lambda control: control.name)
def test_a_correct_function_is_not_refuted(control):
    assert not audit(control.make(), calls=300, alpha=1e-6).refuted


@pytest.mark.nightly
@pytest.mark.parametrize("control", PLAIN, ids=lambda control: control.name)
def test_no_correct_function_is_refuted_by_many_calls(control):
    assert not audit(control.make(), calls=6000, alpha=1e-6).refuted
