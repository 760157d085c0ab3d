"""A rule or an audit that ignores delta fails; so the table would find it out.

Each of ours is judged by its own bound with delta set to 0, on the nulls that the table
shows it. Exact sums are exact. Simulated rates have fixed seeds, and the limits of the
table itself: a rule that keeps its level fails here with a chance of at most 0.001.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from sweep_tools import InOrder

from dpaudit.bounds.bets import BettingBound
from dpaudit.bounds.hypergeometric import HypergeometricBound
from dpaudit.bounds.methods import judge_claim as verdict_on
from dpaudit.bounds.ranked import RankedBound
from dpaudit.bounds.rounds import RoundsBound
from dpaudit.bounds.unequal import BiasedCoinsBound
from dpaudit.game.design import Design
from dpaudit.game.result import judge
from dpaudit.privacy.guarantees import ApproxDP
from dpaudit.stats.binomial import rate_limits
from dpaudit_lab.calibration import cases as cases_of
from dpaudit_lab.calibration import half, sequences, unequal, whole
from dpaudit_lab.calibration.cases import Case, cases
from dpaudit_lab.calibration.named import null_named
from dpaudit_lab.calibration.nulls import right_tail
from dpaudit_lab.calibration.ours import OURS
from dpaudit_lab.calibration.rules import CountRule, WeightedRule
from dpaudit_lab.calibration.several import CurveRule, IndependentRule
from dpaudit_lab.calibration.subjects import OFTEN, subject
from dpaudit_lab.calibration.table import (
    ASKED,
    FALSE_ALARM,
    Plan,
    plan,
    sweeps,
    table,
)
from dpaudit_lab.calibration.whole import trial, whole_cases
from dpaudit_lab.sweeps.store import Store
from dpaudit_lab.sweeps.sweep import run

pytestmark = pytest.mark.nightly

ALPHA, AUDITS = 0.05, 600
# A curve whose deltas are all 0 begins at epsilon 0.
NOTHING = ApproxDP(epsilon=0.0, delta=0.0)
TRAINING = "DP-SGD, all or nothing"
WITH_DELTA = [rule for rule in OURS if rule.name != "pure, r = n"]
SHOWN = {(case.rule, case.null) for case in cases()}


@dataclass(frozen=True)
class Forgets:
    """A bound that sets delta to 0."""

    bound: Any
    method = "forgets delta"
    reference = ""

    def log_p_value(self, reading, *, epsilon, delta):
        del delta
        return self.bound.log_p_value(reading, epsilon=epsilon, delta=0.0)


def forgetful(rule, monkeypatch):
    """Return the rule without its delta, under another name, as one of the table's."""
    name = f"{rule.name}, forgetful"
    match rule:
        case CountRule() | WeightedRule() | IndependentRule():
            broken = replace(rule, name=name, bound=Forgets(rule.bound))
        case CurveRule():
            broken = replace(
                rule,
                name=name,
                refutes=lambda counts, _, alpha: rule.refutes(counts, NOTHING, alpha),
            )
        case _:
            broken = replace(rule, name=name)
    for module, bound in (
        (sequences, BettingBound),
        (sequences, RankedBound),
        (sequences, RoundsBound),
        (half, HypergeometricBound),
        (unequal, BiasedCoinsBound),
    ):
        monkeypatch.setattr(
            module,
            bound.__name__,
            lambda bound=bound, **given: Forgets(bound(**given)),
        )
    monkeypatch.setitem(cases_of.RULES, name, broken)
    return broken


def row_of(case):
    planned = Plan(rules=(case,), whole=(), audits=AUDITS)
    with Store(":memory:") as store:
        for sweep in sweeps(planned):
            run(sweep, engine=InOrder(), store=store)
        return table(planned, store)[0]


def loud_null(rule):
    """The null that is meant to find the rule out."""
    return {
        "classic, n runs": "exposed coins",
        "classic, n runs, r = n/10": "exposed coins",
        "random half, r = n/10": "all at 2 alpha, a random half",
        "unequal coins, 9 in 10 included": "all at 2 alpha, 9 in 10 included",
    }.get(rule.name, "all or nothing, 2 alpha")


@pytest.mark.parametrize("rule", WITH_DELTA, ids=lambda rule: rule.name)
def test_a_rule_that_ignores_delta_fails(rule, monkeypatch):
    null = loud_null(rule)
    assert (rule.name, null) in SHOWN
    honest = row_of(Case(rule=rule.name, null=null, canaries=100, alpha=ALPHA))
    assert not honest.fails
    broken = forgetful(rule, monkeypatch)
    # The very null of the rule, not one that is made for the broken one.
    monkeypatch.setattr(
        cases_of,
        "null_named",
        lambda name, _, n, alpha: null_named(name, rule, n, alpha),
    )
    found = row_of(Case(rule=broken.name, null=null, canaries=100, alpha=ALPHA))
    assert (found.epsilon, found.delta) == (honest.epsilon, honest.delta)
    assert found.fails


@pytest.mark.parametrize("alpha", [0.05, 0.001])
@pytest.mark.parametrize("canaries", [1000, 10_000])
@pytest.mark.parametrize(
    "rule",
    [rule for rule in WITH_DELTA if isinstance(rule, CountRule | WeightedRule)],
    ids=lambda rule: rule.name,
)
def test_with_more_canaries_and_at_other_levels_too(rule, canaries, alpha, monkeypatch):
    null = null_named(loud_null(rule), rule, canaries, alpha)
    broken = forgetful(rule, monkeypatch)
    critical = broken.critical(canaries, null.claim, alpha)
    if isinstance(rule, WeightedRule):
        rate = broken.chance(null, canaries=canaries, score=critical)
    else:
        r = rule.guesses(canaries)
        rate = right_tail(null, canaries=canaries, guesses=r, correct=critical)
    assert rate > 1.2 * alpha


@pytest.mark.parametrize(
    "rule",
    [rule for rule in OURS if (rule.name, TRAINING) in SHOWN],
    ids=lambda rule: rule.name,
)
def test_training_finds_out_a_rule_that_ignores_delta(rule, monkeypatch):
    """It is tuned to the rule that it meets, and stops above alpha for this one."""
    broken = forgetful(rule, monkeypatch)
    case = Case(rule=broken.name, null=TRAINING, canaries=100, alpha=ALPHA)
    assert case.parts()[1].chance > 1.4 * ALPHA
    assert row_of(case).fails


def test_rules_without_scores_of_their_own_are_not_shown_training():
    left_out = [r for r in WITH_DELTA if (r.name, TRAINING) not in SHOWN]
    assert {rule.name for rule in left_out} == {
        IndependentRule().name,
        "two pooled runs, r = n",
        "classic, n runs",
        "classic, n runs, r = n/10",
        "unequal coins, 9 in 10 included",
        "random half, r = n/10",
    }


LOUD = [c for c in whole_cases() if c.mechanism in ("all or nothing, 1 in 10", OFTEN)]


def test_every_audit_but_rounds_and_bets_meets_what_is_heard_too_often():
    every = {(c.auditor, c.guesser) for c in whole_cases() if "stop" not in c.guesser}
    met = {(c.auditor, c.guesser) for c in LOUD}
    refused = {("adaptive", g) for g in ("rounds", "limited rounds", "bets")}
    assert every - met == refused | {("classic", "likelier")}


def forgets(monkeypatch):
    """Let whole audits judge a claim without its delta."""

    def forgetful_judge(reading, *, design, commitment):
        claim = replace(design.claim, delta=0.0)
        pure = Design(
            canaries=design.canaries,
            rules=design.rules,
            claim=claim,
            alpha=design.alpha,
        )
        return judge(reading, design=pure, commitment=commitment)

    monkeypatch.setattr(whole, "judge", forgetful_judge)
    monkeypatch.setattr(
        whole,
        "judge_claim",
        lambda claim, reading, *, alpha, bound: verdict_on(
            replace(claim, delta=0.0), reading, alpha=alpha
        ),
    )


@pytest.mark.parametrize(
    "case", LOUD, ids=lambda c: f"{c.auditor}-{c.guesser}-{c.mechanism}"
)
def test_a_whole_audit_that_ignores_delta_fails(case, monkeypatch):
    """It is wrong whenever it hears something, which is one time in ten.

    Here the mechanism always speaks, so that few audits show it.
    """
    if case.guesser == "learned":
        whole._learned(case.mechanism)  # from the mechanism as it is
    audited = subject(case.mechanism)
    loud = replace(audited.mechanism, probability=1.0)
    monkeypatch.setattr(whole, "subject", lambda _: replace(audited, mechanism=loud))
    setting = {**case.setting(), "audits": 4}
    assert trial(setting, np.random.default_rng(1))["wrong"] == 0
    forgets(monkeypatch)
    assert trial(setting, np.random.default_rng(1))["refuted"] == 4


def test_so_many_wrong_audits_fail_a_row():
    """Heard one time in ten and refuted then, by the limits of the whole table."""
    level = 2 * FALSE_ALARM / plan().rates
    assert rate_limits(800, ASKED, alpha=level)[0] > ALPHA
