"""The nulls: legal, exactly at their claim, and drawn as their laws say."""

from itertools import combinations, product
from math import comb, exp

import numpy as np
import pytest

from dpaudit.bounds.exact import ExactBound
from dpaudit.bounds.readings import Counts
from dpaudit.errors import InvalidInputError
from dpaudit.privacy.guarantees import ApproxDP, GaussianDP
from dpaudit.stats.binomial import rate_limits
from dpaudit.theory.adaptive import stopping_distribution, surprising_counts
from dpaudit_lab.calibration.counting import (
    CountsAtTheEdge,
    Parity,
)
from dpaudit_lab.calibration.draws import binomial_tail
from dpaudit_lab.calibration.mixtures import (
    AllOrNothing,
    RandomisedResponse,
    SharedScore,
    Silent,
    Sometimes,
    Unbalanced,
)
from dpaudit_lab.calibration.nulls import (
    Attaining,
    Exposed,
    Stopping,
    curve_of,
    right_tail,
)
from dpaudit_lab.calibration.unequal import BiasedCoins

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


def geometric(most, true, epsilon):
    """The law of a noisy count, clipped to its edges, by summing the noise."""
    a, law = exp(-epsilon), np.zeros(most + 1)
    for noise in range(-400, 401):
        chance = (1 - a) / (1 + a) * a ** abs(noise)
        law[min(max(true + noise, 0), most)] += chance
    return law


@pytest.mark.parametrize("epsilon", [0.5, 1.0])
def test_noisy_counts_are_exactly_as_private_as_their_noise(epsilon):
    laws = [geometric(5, true, epsilon) for true in range(6)]
    ratios = [laws[i] / laws[j] for i in range(6) for j in (i - 1, i + 1) if 0 <= j < 6]
    assert np.max(ratios) == pytest.approx(exp(epsilon), rel=1e-12)


def test_a_count_says_of_a_coin_what_bayes_says():
    null = CountsAtTheEdge(epsilon=1.0, set_size=4)
    one, zero = np.zeros(5), np.zeros(5)
    for bits in product((0, 1), repeat=4):
        law = geometric(4, sum(bits), 1.0) / 16
        if bits[0]:
            one += law
        else:
            zero += law
    np.testing.assert_allclose(null.log_odds(), np.log(one / zero), rtol=1e-12)
    assert null.log_odds()[[0, 4]] == pytest.approx([-1.0, 1.0], rel=1e-12)


def test_at_the_edge_coins_are_right_with_the_odds_of_the_claim():
    """A chance of 1e-6 to fail if the claim's odds are attained."""
    null, rng = CountsAtTheEdge(epsilon=1.0), np.random.default_rng(7)
    draws = null.draw(rng, canaries=100, audits=500)
    edge = np.abs(draws.log_odds) > 1.9999
    hits, made = int((draws.right & edge).sum()), int(edge.sum())
    low, high = rate_limits(hits, made, alpha=1e-6)
    assert made > 10_000
    assert low <= expit(1.0) <= high


@pytest.mark.parametrize("share", [1, 10])
def test_what_speaks_with_a_chance_does(share):
    null = AllOrNothing.speaking(chance=0.1, epsilon=1.0, loud=3.0, share=share)
    ratio = exp(3.0)
    delta = 0.1 / share * (ratio - exp(1.0)) / (ratio + 1)
    assert null.claim.delta == pytest.approx(delta, rel=1e-12)
    assert null.chance == pytest.approx(0.1, rel=1e-12)


def test_parity_tells_the_last_coin_to_who_knows_the_others():
    brute = 0.0
    for bits in product((0, 1), repeat=4):
        for lies in (0, 1):
            said = sum(bits) % 2 ^ lies
            guess = (said + sum(bits[:-1])) % 2
            right = sum(bits[:-1]) + (guess == bits[-1])
            brute += (expit(-1.0) if lies else expit(1.0)) / 16 * (right >= 3)
    null = Parity(epsilon=1.0, told=True)
    found = right_tail(null, canaries=4, guesses=4, correct=3)
    assert found == pytest.approx(brute, rel=1e-12)


def test_biased_coins_meet_their_claim_exactly():
    """The mechanism does not look at the bias: it publishes, or answers."""
    null = BiasedCoins(inclusion=0.9, claim=CLAIM)
    delta, worst = null.claim.delta, 0.0

    def law(bits):
        found = {("published", bits): delta}
        for given, chance in answers(bits, [1.0] * len(bits)):
            found["answered", given] = (1 - delta) * chance
        return found

    for bits in product((0, 1), repeat=3):
        for i in range(3):
            p, q = law(bits), law((*bits[:i], 1 - bits[i], *bits[i + 1 :]))
            excess = sum(max(0.0, p[o] - exp(1.0) * q.get(o, 0.0)) for o in p)
            worst = max(worst, excess)
    assert worst == pytest.approx(CLAIM.delta, abs=1e-12)


def test_biased_coins_state_exact_log_odds():
    """In classes of one stated log-odds, as many are in; false alarms 1e-6 each."""
    null = BiasedCoins(inclusion=0.9, claim=ApproxDP(epsilon=1.0, delta=0.0))
    draws = null.draw(np.random.default_rng(8), canaries=100, audits=500)
    stated = np.unique(draws.log_odds.round(9))
    assert len(stated) == 2
    for odds in stated:
        these = np.abs(draws.log_odds - odds) < 1e-6
        low, high = rate_limits(
            int(draws.bits[these].sum()), int(these.sum()), alpha=1e-6
        )
        assert low <= expit(odds) <= high


def test_what_answers_sometimes_is_gaussian_private_too():
    null = Sometimes(epsilon=1.5, chance=0.386, delta=1e-5)
    for epsilon in np.linspace(0.0, 1.5, 200):
        delta = 0.386 * (exp(1.5) - exp(epsilon)) / (1 + exp(1.5))
        assert delta <= GaussianDP(mu=1.0).delta_at(float(epsilon))
    assert null.claim.epsilon == 1.5


@pytest.mark.parametrize("epsilon", [0.0, 0.7, 1.0, 2.9, 3.0, 4.0])
def test_the_curve_of_all_or_nothing_is_that_of_its_response(epsilon):
    null = AllOrNothing(claim=CLAIM, loud=3.0)
    truth = null.chance * max(0.0, exp(3.0) - exp(epsilon)) / (1 + exp(3.0))
    found = curve_of(null).delta_at(epsilon)
    assert found == pytest.approx(truth, rel=1e-9, abs=1e-300)


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
    expected = ExactBound().p_value(counts, epsilon=1.0, delta=0.02)
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
    found = stopping_distribution(n, level)
    np.testing.assert_allclose(found[0], stopped, atol=1e-15)
    np.testing.assert_allclose(found[1], going, atol=1e-15)


def test_surprising_counts_are_the_least():
    for guesses, count in enumerate(surprising_counts(50, 1.0, 0.05), start=1):
        assert binomial_tail(count, guesses, 1.0) <= 0.05
        assert binomial_tail(count - 1, guesses, 1.0) > 0.05


def test_draws_follow_the_law(subtests):
    for null, guesses in [
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
        (Sometimes(epsilon=1.5, chance=0.4, delta=0.0), 40),
        (Parity(epsilon=1.0, told=True), 40),
        (Parity(epsilon=1.0, told=False), 10),
        (AllOrNothing(claim=ApproxDP(epsilon=1.0, delta=0.2), loud=np.inf), 40),
    ]:
        with subtests.test(null=null, guesses=guesses):
            audits = 4000
            draws = null.draw(np.random.default_rng(1), canaries=40, audits=audits)
            made = np.arange(40) < draws.made[:, np.newaxis]
            order = np.argsort(-np.abs(draws.log_odds), axis=1, kind="stable")[
                :, :guesses
            ]
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
    monkeypatch.setattr("dpaudit_lab.calibration.mixtures._PANELS", 1000)
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
        lambda: right_tail(
            CountsAtTheEdge(epsilon=1.0), canaries=10, guesses=10, correct=1
        ),
        lambda: CountsAtTheEdge(epsilon=1.0).draw(
            np.random.default_rng(0), canaries=12, audits=1
        ),
    ],
)
def test_what_no_mechanism_can_be_is_refused(make):
    with pytest.raises(InvalidInputError):
        make()
