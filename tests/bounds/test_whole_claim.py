"""The bound for guesses decided call by call."""

import numpy as np
import pytest

from dpaudit import ApproxDP, GaussianDP, PrivacyCurve, PureDP, RenyiDP
from dpaudit import ZeroConcentratedDP as Zcdp
from dpaudit.bounds import Counts, EventCounts, SeparateRunsBound, WholeClaimBound
from dpaudit.bounds.whole_claim import event_limit
from dpaudit.errors import InvalidInputError

BOUND = WholeClaimBound()


def counts(correct, wrong, canaries=2000, *, at=0.05, one_sided=False, claim=None):
    claim = ApproxDP(epsilon=1.0, delta=0.02) if claim is None else claim
    line = event_limit(claim, one_sided=one_sided).tangent(at)
    return EventCounts(
        canaries=canaries,
        correct=correct,
        wrong=wrong,
        slope=line.slope,
        intercept=line.intercept,
        one_sided=one_sided,
    )


CLAIMS = [
    PureDP(epsilon=1.0),
    ApproxDP(epsilon=1.0, delta=0.02),
    GaussianDP(mu=0.8),
    Zcdp(rho=0.3),
    RenyiDP(orders=np.array([2.0, 4.0, 16.0]), epsilons=np.array([0.6, 1.2, 4.8])),
    PrivacyCurve(epsilons=np.array([0.5, 1.5]), deltas=np.array([0.05, 1e-3])),
]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.kind)
def test_every_kind_of_claim_is_refuted_by_enough_and_not_by_less(claim):
    limit = event_limit(claim, one_sided=False)
    allowed = float(limit(0.05))
    inside = counts(round(2000 * allowed) - 5, 100, claim=claim)
    outside = counts(round(2000 * min(allowed * 1.7, 0.94)), 100, claim=claim)
    assert not BOUND.judge_claim(inside, claim, alpha=0.05).refuted
    assert BOUND.judge_claim(outside, claim, alpha=1e-4).refuted


def test_a_curve_is_at_least_as_strong_as_its_points():
    claim = GaussianDP(mu=0.8)
    seen = counts(700, 180, claim=claim, at=0.09)
    whole = BOUND.log_p_claim(seen, claim, alpha=0.05)
    epsilons, deltas = claim.points()
    points = [
        BOUND.log_p_value(seen, epsilon=epsilons[k], delta=deltas[k])
        for k in range(0, 60, 6)
    ]
    assert whole <= min(points) + 0.1


def test_one_sided_events_have_half_the_delta():
    claim = ApproxDP(epsilon=1.0, delta=0.02)
    one, both = (event_limit(claim, one_sided=s) for s in (True, False))
    assert one(0.0) == pytest.approx(0.01)
    assert both(0.0) == pytest.approx(0.02)
    seen = counts(50, 0, one_sided=True)
    assert BOUND.judge_claim(seen, claim, alpha=1e-3).refuted
    assert not BOUND.judge_claim(counts(50, 0), claim, alpha=1e-3).refuted


def test_delta_is_not_paid_for_again():
    """At delta = 0.02 of 0.035 the classic bound sees nothing."""
    claim = ApproxDP(epsilon=1.0, delta=0.02)
    seen = counts(105, 0, 6000, one_sided=True, at=0.0)
    assert BOUND.judge_claim(seen, claim, alpha=1e-3).refuted
    fixed = Counts(canaries=6000, guesses=105, correct=105)
    assert not SeparateRunsBound().judge_claim(fixed, claim, alpha=1e-3).refuted


@pytest.mark.parametrize("delta", [0.0, 1e-5, 0.02])
def test_the_bound_and_the_tests_agree(delta):
    seen = counts(420, 60)
    lower = BOUND.epsilon_lower(seen, delta=delta, alpha=0.05).epsilon_lower
    assert lower > 1
    for epsilon, refuted in ((lower * 0.99, True), (lower * 1.01, False)):
        claim = ApproxDP(epsilon=epsilon, delta=delta)
        assert BOUND.judge_claim(seen, claim, alpha=0.05).refuted is refuted


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"correct": 1990, "wrong": 20}, "correct \\+ wrong <= canaries"),
        ({"slope": -1.0}, "slope must be"),
        ({"intercept": 1.0}, "intercept must be in"),
        ({"one_sided": 1}, "one_sided must be true or false"),
    ],
)
def test_what_is_no_reading_is_refused(change, message):
    fields = {"canaries": 2000, "correct": 5, "wrong": 5, "slope": 1, "intercept": 0.0}
    with pytest.raises(InvalidInputError, match=message):
        EventCounts(**{**fields, **change})
