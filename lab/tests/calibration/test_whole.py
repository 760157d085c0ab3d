"""Whole audits: every case can be played, and the quick verdict is the true one."""

from dataclasses import replace

import numpy as np
import pytest

from dpaudit.bounds.bets import BettingBound
from dpaudit.bounds.ranked import RankedBound
from dpaudit.bounds.readings import Weighted
from dpaudit.bounds.rounds import RoundsBound
from dpaudit.game.design import Design
from dpaudit.game.result import judge
from dpaudit.game.rules import AdaptiveClasses, WeightClasses
from dpaudit.mechanisms.local import LocalRandomisedResponse
from dpaudit.mechanisms.noise import GeometricNoise
from dpaudit.mechanisms.sets import CountInSets
from dpaudit.privacy.guarantees import ApproxDP
from dpaudit.stats.binomial import rate_limits
from dpaudit_lab.calibration import whole
from dpaudit_lab.calibration.subjects import OFTEN, Subject, _claim, subject
from dpaudit_lab.calibration.whole import WholeCase, trial, whole_cases

pytestmark = pytest.mark.nightly
CASES = whole_cases()


def name(case):
    return f"{case.auditor}-{case.guesser}-{case.mechanism}".replace(" ", "_")


def test_every_auditor_meets_every_mechanism_that_it_can():
    assert {case.auditor for case in CASES} == {
        "one run",
        "adaptive",
        "classic",
        "scores",
    }
    assert len(set(CASES)) == len(CASES) > 240
    for mechanism in {case.mechanism for case in CASES}:
        guessers = [c for c in CASES if c.mechanism == mechanism]
        assert len(guessers) >= (1 if mechanism.startswith("DP-SGD") else 8)


def test_training_meets_every_kind_of_audit():
    met = {(c.auditor, c.guesser) for c in CASES if c.mechanism.startswith("DP-SGD")}
    assert met >= {
        ("one run", "everyone"),
        ("one run", "ranked"),
        ("one run", "weighed"),
        ("adaptive", "count"),
        ("adaptive", "classes"),
        ("adaptive", "rounds"),
        ("adaptive", "limited rounds"),
        ("adaptive", "bets"),
    }


# Bounds on weights take long; the table itself plays them on every mechanism.
SLOW = ("weighed", "classes", "stopping, classes")
PLAYED = [
    case
    for case in CASES
    if case.guesser not in SLOW or case.mechanism in ("attaining", "sets, geometric")
]


@pytest.mark.parametrize("case", PLAYED, ids=name)
def test_true_claims_stand(case):
    """Ten audits each; a valid one fails here less than once in 10^7 cases."""
    found = trial({**case.setting(), "audits": 10}, np.random.default_rng(1))
    assert max(found["refuted"], found["above"]) <= found["wrong"]
    assert rate_limits(found["wrong"], 10, alpha=2e-7)[0] <= 0.05


@pytest.mark.parametrize(
    "case",
    [c for c in CASES if c.mechanism.startswith("DP-SGD") and c.mechanism != OFTEN],
    ids=name,
)
def test_training_is_refuted_whenever_it_is_heard(case, monkeypatch):
    """So the rate of its rows is the chance that it is heard: it bites."""
    audited = subject(case.mechanism)
    loud = replace(audited.mechanism, probability=1.0)
    monkeypatch.setattr(whole, "subject", lambda _: replace(audited, mechanism=loud))
    found = trial({**case.setting(), "audits": 5}, np.random.default_rng(3))
    assert found["refuted"] >= 3


GUESSERS = {
    (c.auditor, c.guesser): c for c in CASES if not c.mechanism.startswith("DP-SGD")
}


@pytest.mark.parametrize("case", GUESSERS.values(), ids=name)
def test_no_guesser_is_idle(case, monkeypatch):
    """Each refutes a claim far from the truth; one that never could tests nothing."""
    counts = CountInSets(elements=100, set_size=5, noise=GeometricNoise(epsilon=2.0))
    lying = Subject(mechanism=counts, claim=_claim(0.0, 0.0))
    monkeypatch.setattr(whole, "subject", lambda _: lying)
    monkeypatch.setattr(whole, "_small", lambda _: LocalRandomisedResponse(epsilon=2.0))
    whole._learned.cache_clear()  # it is to learn what is audited here
    played = replace(case, mechanism="local randomised response")
    found = trial({**played.setting(), "audits": 100}, np.random.default_rng(1))
    whole._learned.cache_clear()
    assert found["refuted"] >= 1


@pytest.mark.parametrize(
    "rules",
    [
        WeightClasses(weights=(3.0, 1.0), guesses=(10, 15)),
        AdaptiveClasses(weights=(1.0, 2.0), guesses=(10, 10)),
    ],
    ids=repr,
)
def test_the_verdict_on_weights_depends_on_their_sum_alone(rules):
    claim = ApproxDP(epsilon=0.3, delta=1e-4)
    design = Design(canaries=100, rules=rules, claim=claim, alpha=0.05)
    rng, kinds = np.random.default_rng(4), set()
    for _ in range(8):
        correct = tuple(int(rng.integers(r // 2, r + 1)) for r in rules.guesses)
        reading = Weighted(
            canaries=100,
            weights=rules.weights,
            guesses=rules.guesses,
            correct=correct,
            committed=True,
            adaptive=isinstance(rules, AdaptiveClasses),
        )
        moved = whole._heavy_first(reading)
        assert moved.score == reading.score
        full = judge(reading, design=design, commitment=None)
        quick = whole._verdict(reading, design)
        assert quick == whole._of(full, claim)
        kinds.add(quick.refuted)
    assert kinds == {True, False}


@pytest.mark.parametrize(
    ("guesser", "bound"),
    [
        ("ranked", RankedBound()),
        ("bets", BettingBound()),
        ("limited rounds", RoundsBound()),
    ],
)
def test_the_quick_verdict_says_above_whenever_the_scan_does(
    guesser, bound, monkeypatch
):
    """The mechanism claims too little here, so that both kinds of verdict occur."""
    verdict, kinds = whole._verdict, set()

    def compared(reading, design):
        quick = verdict(reading, design)
        full = whole._of(judge(reading, design=design, commitment=None), design.claim)
        assert full.refuted == quick.refuted
        assert full.above <= quick.above
        kinds.add((full.refuted, full.above))
        return quick

    monkeypatch.setattr(whole, "_verdict", compared)
    true = subject("local randomised response")
    lying = Subject(mechanism=true.mechanism, claim=_claim(0.3, 0.0))
    monkeypatch.setattr(whole, "subject", lambda _name: lying)
    auditor = "one run" if guesser == "ranked" else "adaptive"
    case = WholeCase(auditor=auditor, guesser=guesser, mechanism="any")
    trial({**case.setting(), "audits": 25}, np.random.default_rng(2))
    assert {(True, True), (False, False)} <= kinds
    assert bound.method
