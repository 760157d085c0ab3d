"""The nulls: legal, exactly at their claim, and drawn as their laws say."""

from itertools import combinations, product
from math import comb, exp

import numpy as np
import pytest

from dpaudit.bounds.exact import Exact
from dpaudit.bounds.reads import Counts
from dpaudit.errors import InvalidInputError
from dpaudit.experiments.nulls import (
    AllOrNothing,
    Attaining,
    Exposed,
    RandomisedResponse,
    SharedScore,
    Silent,
    Stopping,
    Unbalanced,
    binomial_tail,
    right_tail,
)
from dpaudit.privacy.guarantees import ApproxDP
from dpaudit.stats.binomial import rate_limits
from dpaudit.theory.stopping import stopping_law, surprising_counts

CLAIM = ApproxDP(epsilon=1.0, delta=0.02)


def expit(x):
    return 1 / (1 + exp(-x))


def answers(bits, log_odds):
    """Yield each vector of independent answers with its chance."""
    for given in product((0, 1), repeat=len(bits)):
        chances = [
            expit(s) if a == b else expit(-s)
            for a, b, s in zip(given, bits, log_odds, strict=True)
        ]
        yield given, np.prod(chances)


def mixture_law(null, bits):
    """Every output of a null that shares one thing among the coins it speaks of."""
    share = getattr(null, "share", 1)
    spoken_sets = list(combinations(range(len(bits)), len(bits) // share))
    law = {}
    for c, (weight, s) in enumerate(zip(*null.components(), strict=True)):
        for spoken in spoken_sets:
            odds = [s if i in spoken else 0.0 for i in range(len(bits))]
            for given, chance in answers(bits, odds):
                law[c, spoken, given] = weight * chance / len(spoken_sets)
    return law


def exposed_law(null, bits):
    delta = null.claim.delta
    law = {}
    for exposed in product((False, True), repeat=len(bits)):
        chance = np.prod([delta if e else 1 - delta for e in exposed])
        odds = [700.0 if e else null.claim.epsilon for e in exposed]
        for given, likely in answers(bits, odds):
            law[exposed, given] = chance * likely
    return law


def attaining_law(null, bits):
    m, r, pi = null.canaries, null.guesses, null.law()
    law = {}
    for guess in product((-1, 0, 1), repeat=m):
        if np.count_nonzero(guess) == r:
            right = sum(g == 2 * b - 1 for g, b in zip(guess, bits, strict=True))
            law[guess] = pi[right] / (comb(m, r) * comb(r, right))
    return law


def worst_delta(law, canaries, epsilon):
    """The largest hockey-stick over all coins, all other coins, both directions."""
    found = 0.0
    for bits in product((0, 1), repeat=canaries):
        p = law(bits)
        for i in range(canaries):
            q = law((*bits[:i], 1 - bits[i], *bits[i + 1 :]))
            excess = sum(max(0.0, p[o] - exp(epsilon) * q[o]) for o in p)
            found = max(found, excess)
    return found


@pytest.mark.parametrize(
    ("null", "law", "canaries"),
    [
        (RandomisedResponse(epsilon=1.0), mixture_law, 3),
        (AllOrNothing(claim=CLAIM, loud=3.0), mixture_law, 3),
        (AllOrNothing(claim=CLAIM, loud=2.0, quiet=1.0), mixture_law, 3),
        (AllOrNothing(claim=CLAIM, loud=3.0, share=2), mixture_law, 4),
        (Exposed(claim=CLAIM), exposed_law, 3),
        (Silent(), mixture_law, 3),
        (Attaining(claim=CLAIM, canaries=4, guesses=4, correct=3), attaining_law, 4),
        (Attaining(claim=CLAIM, canaries=4, guesses=2, correct=2), attaining_law, 4),
        (Attaining(claim=CLAIM, canaries=5, guesses=3, correct=1), attaining_law, 5),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_null_meets_its_claim_exactly(null, law, canaries):
    totals = [sum(law(null, b).values()) for b in product((0, 1), repeat=canaries)]
    assert totals == pytest.approx([1.0] * 2**canaries)
    found = worst_delta(lambda b: law(null, b), canaries, null.claim.epsilon)
    assert found == pytest.approx(null.claim.delta, abs=1e-12)


@pytest.mark.parametrize("share", [1, 10])
def test_the_shared_score_meets_its_claim_exactly(share):
    null = SharedScore(mu=1.0, delta=0.002, share=share)
    chances, s = null.components()
    assert chances.sum() == pytest.approx(1.0, abs=1e-9)
    excess = np.maximum(0.0, np.exp(s) - exp(null.claim.epsilon)) / (1 + np.exp(s))
    # The integrand has a kink at epsilon, so the sum is right to 1e-3 only.
    assert chances @ excess / share == pytest.approx(null.claim.delta, rel=1e-3)


def test_the_attaining_law_attains_the_exact_p_value():
    null = Attaining(claim=CLAIM, canaries=60, guesses=20, correct=20)
    counts = Counts(canaries=60, guesses=20, correct=20)
    expected = Exact().p_value(counts, epsilon=1.0, delta=0.02)
    found = right_tail(null, canaries=60, guesses=20, correct=20)
    assert found == pytest.approx(expected, rel=1e-12)


def test_coins_given_away_are_guessed_first():
    null = Exposed(claim=ApproxDP(epsilon=1.0, delta=0.1))
    brute = 0.0
    for exposed in product((False, True), repeat=6):
        chance = np.prod([0.1 if e else 0.9 for e in exposed])
        free = min(3, sum(exposed))
        brute += chance * binomial_tail(3 - free, 3 - free, 1.0)
    found = right_tail(null, canaries=6, guesses=3, correct=3)
    assert found == pytest.approx(brute, rel=1e-12)


def test_the_stopping_law_is_what_counting_all_coins_gives():
    n, level = 12, 0.1
    enough = surprising_counts(n, 0.0, level)
    stopped, going = np.zeros(n + 1), np.zeros(n + 1)
    for bits in product((0, 1), repeat=n):
        sums = np.cumsum(bits)
        ahead = np.flatnonzero(sums >= enough)
        if len(ahead):
            stopped[sums[ahead[0]]] += 0.5**n
        else:
            going[sums[-1]] += 0.5**n
    found = stopping_law(n, level)
    np.testing.assert_allclose(found[0], stopped, atol=1e-15)
    np.testing.assert_allclose(found[1], going, atol=1e-15)


def test_surprising_counts_are_the_least():
    for guesses, count in enumerate(surprising_counts(50, 1.0, 0.05), start=1):
        assert binomial_tail(count, guesses, 1.0) <= 0.05
        assert binomial_tail(count - 1, guesses, 1.0) > 0.05


@pytest.mark.parametrize(
    ("null", "guesses"),
    [
        (RandomisedResponse(epsilon=1.0), 10),
        (SharedScore(mu=1.0, delta=0.01), 40),
        (SharedScore(mu=1.0, delta=0.001, share=4), 10),
        (AllOrNothing(claim=ApproxDP(epsilon=1.0, delta=0.2), loud=3.0), 40),
        (AllOrNothing(claim=ApproxDP(epsilon=1.0, delta=0.05), loud=3.0, share=4), 10),
        (Exposed(claim=ApproxDP(epsilon=1.0, delta=0.1)), 10),
        (Attaining(claim=CLAIM, canaries=40, guesses=10, correct=9), 10),
        (Silent(), 10),
        (Silent(clip=0.0), 10),
        (Unbalanced(inclusion=0.9), 10),
        (Stopping(level=0.05), 40),
    ],
    ids=repr,
)
def test_draws_follow_the_law(null, guesses):
    audits = 4000
    draws = null.draw(np.random.default_rng(1), canaries=40, audits=audits)
    made = np.arange(40) < draws.made[:, np.newaxis]
    order = np.argsort(-np.abs(draws.log_odds), axis=1, kind="stable")[:, :guesses]
    right = np.take_along_axis(draws.right & made, order, axis=1).sum(axis=1)
    for correct in range(1, guesses + 1):
        hits = int((right >= correct).sum())
        low, high = rate_limits(hits, audits, alpha=1e-6)
        law = right_tail(null, canaries=40, guesses=guesses, correct=correct)
        assert low <= law + 1e-6
        assert law <= high + 1e-6


def test_the_integral_over_a_shared_score_has_converged(monkeypatch):
    null = SharedScore(mu=1.0, delta=0.01)
    question = {"canaries": 10_000, "guesses": 10_000, "correct": 8_000}
    coarse = right_tail(null, **question)
    monkeypatch.setattr("dpaudit.experiments.nulls._PANELS", 1000)
    assert right_tail(null, **question) == pytest.approx(coarse, abs=1e-7)


@pytest.mark.parametrize(
    "make",
    [
        lambda: AllOrNothing(claim=CLAIM, loud=0.5),
        lambda: AllOrNothing(claim=CLAIM, loud=3.0, quiet=1.5),
        lambda: AllOrNothing(claim=CLAIM, loud=3.0, share=100),
        lambda: Attaining(claim=CLAIM, canaries=10, guesses=5, correct=6),
        lambda: Attaining(claim=CLAIM, canaries=1000, guesses=5, correct=4),
        lambda: right_tail(Stopping(level=0.1), canaries=9, guesses=3, correct=1),
        lambda: right_tail(
            SharedScore(mu=1.0, delta=0.01, share=2),
            canaries=10,
            guesses=10,
            correct=1,
        ),
    ],
)
def test_what_no_mechanism_can_be_is_refused(make):
    with pytest.raises(InvalidInputError):
        make()
