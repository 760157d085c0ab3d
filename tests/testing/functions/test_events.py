"""Events chosen from calls with known coins, and audits of whole claims by them."""

import math
from dataclasses import replace
from math import inf

import numpy as np
import pytest
from scipy import stats

from dpaudit import (
    Adjacency,
    ApproxDP,
    GaussianDP,
    Key,
    PrivacyCurve,
    RenyiDP,
    RunByRun,
    ZeroConcentratedDP,
    evidence_of,
    seal,
    verify,
)
from dpaudit.errors import InvalidRunError
from dpaudit.game.rules import Sides
from dpaudit.testing import Calls, OneRecord, OneValue, audit_function
from dpaudit.testing.events import choose_event, detectable_epsilon, least_calls

REPLACE = Adjacency.REPLACE_ONE
CLAIM = ApproxDP(epsilon=1.0, delta=0.02, adjacency=REPLACE)


def audit(function, claim, *, calls=3000, number=0, alpha=1e-3, **options):
    key = Key(bytes([number]) + function.__name__.encode().ljust(31, b"-")[:31])
    return audit_function(
        function,
        claim=claim,
        budget=Calls(calls=calls),
        alpha=alpha,
        key=key,
        **{"neighbours": OneValue(x=0, y=1), **options},
    )


def noisy(sigma):
    def noisy(value, rng):
        return round((value + rng.normal() * sigma) * 64) / 64

    return noisy


def opened(share):
    def opened(value, rng):
        return int(value == 0 and rng.random() < share)

    return opened


def scored(shares, *, n=4000, seed=0):
    """Return scores that name the input in certain shares of the calls, and coins."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2, n)
    scores = np.zeros(n)
    for bit, share in zip((0, 1), shares, strict=True):
        shown = (bits == bit) & (rng.random(n) < share)
        scores[shown] = 2 * bit - 1
    return {"it": scores}, bits


@pytest.mark.parametrize(
    ("shares", "sides"),
    [((0.0, 0.2), Sides.INCLUDED), ((0.2, 0.0), Sides.EXCLUDED)],
)
def test_an_event_of_one_input_is_guessed_on_that_side(shares, sides):
    event = choose_event(*scored(shares), claim=CLAIM, calls=4000, alpha=1e-3)
    assert event.sides is sides
    assert event.growth > 0


def test_events_of_both_inputs_are_guessed_together():
    event = choose_event(*scored((0.2, 0.2)), claim=CLAIM, calls=4000, alpha=1e-3)
    assert event.sides is Sides.BOTH
    guesses = event.guesses(np.array([1.0, -1.0, 0.0, np.nan, inf]))
    assert guesses.tolist() == [1, -1, 0, 0, 1]


def test_a_function_that_shows_nothing_has_no_effect():
    result = audit(lambda value: 7, CLAIM)
    assert not result.refuted
    assert "no better than chance" in str(result)


@pytest.mark.parametrize("calls", [60, 400, 5000])
def test_what_is_detected_is_what_the_test_detects(calls):
    found = detectable_epsilon(CLAIM, calls=calls, alpha=1e-3, power=0.97)
    most = 1 - 1 / (1 + math.e) * (1 - 0.02)  # g(b) = 1 - b
    counts = np.arange(calls + 1)
    least = counts[stats.binom.sf(counts - 1, calls, most) <= 0.5e-3][0]
    power = stats.binom.sf(least - 1, calls, 1 / (1 + math.exp(-found)))
    assert power == pytest.approx(0.97, abs=1e-6)
    assert least_calls(CLAIM, alpha=1e-3) < calls


# Each is refuted at every seed here; rates are in lab/measure/library_audits.py.
FAULTS = {
    "delta": (opened(0.06), CLAIM),
    "gaussian": (noisy(0.5), GaussianDP(mu=1.0, adjacency=REPLACE)),
    "zcdp": (noisy(0.5), ZeroConcentratedDP(rho=0.5, adjacency=REPLACE)),
    "renyi": (
        noisy(0.4),
        RenyiDP(
            orders=np.array([2.0, 4.0]),
            epsilons=np.array([1.0, 2.0]),
            adjacency=REPLACE,
        ),
    ),
    "curve": (
        noisy(0.5),
        PrivacyCurve(
            epsilons=np.array([0.0, 1.0, 2.0]),
            deltas=np.array([0.4, 0.13, 0.03]),
            adjacency=REPLACE,
        ),
    ),
    "large delta": (opened(0.6), ApproxDP(epsilon=0.1, delta=0.4, adjacency=REPLACE)),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_faults_of_every_kind_of_claim_are_refuted(kind):
    function, claim = FAULTS[kind]
    results = [audit(function, claim, number=i) for i in range(3)]
    assert all(result.refuted for result in results)
    for result in results:
        assert result.audit.bound.method == "whole claim"
        assert result.audit.bound.delta == result.audit.design.delta
        assert "correct, made from" in str(result)


SOUND = {
    "delta": (opened(0.02), CLAIM),
    "gaussian": (noisy(1.0), GaussianDP(mu=1.0, adjacency=REPLACE)),
    "zcdp": (noisy(1.0), ZeroConcentratedDP(rho=0.5, adjacency=REPLACE)),
    "large delta": (opened(0.4), ApproxDP(epsilon=0.1, delta=0.4, adjacency=REPLACE)),
}


@pytest.mark.parametrize("kind", SOUND)
def test_mechanisms_at_their_limit_are_not_refuted(kind):
    function, claim = SOUND[kind]
    results = [audit(function, claim, number=i, calls=800) for i in range(3)]
    assert not any(result.refuted for result in results)


def test_a_data_set_can_have_any_claim_too():
    result = audit(
        lambda data, rng: round((sum(data) + rng.normal() * 0.4) * 64) / 64,
        GaussianDP(mu=1.0, adjacency=REPLACE),
        neighbours=OneRecord(data=[1, 0, 1], index=1, x=0, y=1),
    )
    assert result.refuted


def test_noise_that_calls_share_is_seen_though_no_single_call_shows_it():
    """Every second call repeats the noise of the call before."""
    noises = []

    def repeated(value, rng):
        again = len(noises) % 2
        noises.append(noises[-1] if again else rng.normal() * 50)
        return value + noises[-1]

    claim = ApproxDP(epsilon=1.0, delta=1e-6, adjacency=REPLACE)
    result = audit(repeated, claim, calls=2000)
    assert result.guesser == "steps"
    assert result.audit.bound.method == "separate"
    assert result.refuted


def test_an_audit_is_repeated_by_its_number_of_calls_and_key():
    function, claim = FAULTS["gaussian"]
    key = bytes(range(32))
    first = audit_function(
        function,
        neighbours=OneValue(x=0, y=1),
        claim=claim,
        budget=Calls(calls=1001),
        key=Key(key),
    )
    assert first.calls in (1000, 1001, 1002)


def test_evidence_of_it_can_be_verified_and_holds_no_other_rule():
    function, claim = FAULTS["zcdp"]
    key = Key(bytes(range(1, 33)))
    result = audit_function(
        function,
        neighbours=OneValue(x=0, y=1),
        claim=claim,
        alpha=1e-3,
        budget=Calls(calls=1200),
        key=key,
    )
    evidence = evidence_of(result.audit, key=key, transcript=result.transcript)
    assert "No check failed" in str(verify(seal(evidence)))
    rules = result.audit.design.rules
    easier = replace(rules, intercept=rules.intercept / 2)
    with pytest.raises(InvalidRunError, match="slope, intercept and sides"):
        easier.check_reading(result.audit.reading)


def test_guesses_of_the_other_side_are_refused():
    rules = RunByRun(slope=2.0, intercept=0.0, sides=Sides.INCLUDED)
    with pytest.raises(InvalidRunError, match='only "included"'):
        rules.stakes(np.array([1, -1, 0], np.int8), None)
    assert not rules.are_stakes(np.array([-1], np.int8), np.ones(1))


def test_calls_that_are_seen_to_differ_are_refused():
    """A budget of answers, spent in the first calls of the audit."""
    left = [1500 + 60]  # 1500 calls are learned from

    def limited(bit, rng):
        left[0] -= 1
        return response(bit, rng) if left[0] >= 0 else None

    def response(bit, rng):
        return bit if rng.random() < 0.73 else 1 - bit

    claim = ApproxDP(epsilon=1.0, delta=1e-5, adjacency=REPLACE)
    with pytest.raises(InvalidRunError, match="calls are not alike"):
        audit(limited, claim, calls=3000)
