"""The gaps as numbers and in words, against closed forms and runs."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, special, stats

from dpaudit import PureDP
from dpaudit.bounds import Counts, ExactBound
from dpaudit.errors import InvalidInputError
from dpaudit.game.guessers import MostLikely
from dpaudit.mechanisms.catalogue import MECHANISMS, Parameters, named
from dpaudit.mechanisms.exposure import AllOrNothing, NameAndShame
from dpaudit.mechanisms.local import (
    LocalGaussian,
    LocalLaplace,
    LocalRandomisedResponse,
)
from dpaudit.mechanisms.parity import Xor, XorInPairs, XorRandomisedResponse
from dpaudit.mechanisms.sets import CountInSets, count
from dpaudit.mechanisms.table import FiniteTable
from dpaudit.theory.adaptive import adaptive_guesses
from dpaudit.theory.gap_levels import Estimate, GapLevel, Gaps
from dpaudit.theory.gaps import gaps

STEPS = [
    "claim",
    "confidence",
    "interference",
    "outputs",
    "elements",
    "guessing",
    "statistics",
]


def rng():
    return np.random.default_rng(11)


def level(found):
    return {level.name: level.epsilon for level in found.levels}


def clopper_pearson(v, r, alpha=0.05):
    if v == 0:
        return 0.0
    q = stats.beta.ppf(alpha, v, r - v + 1)
    return max(0.0, math.log(q / (1 - q)))


def mean_bound(law):
    return law @ [clopper_pearson(v, len(law) - 1) for v in range(len(law))]


def at(name, epsilon, low=None, high=None):
    return GapLevel(
        name=name,
        epsilon=epsilon,
        low=epsilon if low is None else low,
        high=epsilon if high is None else high,
        meaning="-",
    )


def ladder(*levels, remainder=None):
    return Gaps(
        levels=levels,
        spread=0.1,
        remainder=remainder,
        delta=0.0,
        alpha=0.05,
        elements=10,
        guesses=10,
    )


@pytest.mark.nightly
def test_every_named_mechanism_has_its_ladder(subtests):
    for name in MECHANISMS:
        with subtests.test(name=name):
            mechanism = named(name, Parameters(elements=20, set_size=5))
            found = gaps(mechanism, elements=20, guesses=10, rng=rng(), runs=200)
            assert [level.name for level in found.levels] == STEPS
            # The paper's chain, at delta = 0; room for rounding.
            chain = [level.epsilon for level in found.levels[:6]]
            assert all(a >= b - 1e-6 for a, b in pairwise(chain))


@pytest.mark.parametrize("guesses", [10, 60])
def test_randomised_response_loses_to_statistics_only(guesses):
    found = gaps(LocalRandomisedResponse(epsilon=1.5), elements=60, guesses=guesses)
    for name in STEPS[:-1]:
        assert level(found)[name] == pytest.approx(1.5, abs=1e-9)
    law = stats.binom.pmf(np.arange(guesses + 1), guesses, special.expit(1.5))
    assert level(found)["statistics"] == pytest.approx(mean_bound(law), abs=1e-7)
    assert found.largest == "statistics"
    assert str(found).count(" takes ") == 1


@pytest.mark.parametrize("n", [2, 5, 50])
def test_all_of_xor_is_lost_to_interference(n):
    found = gaps(Xor(elements=n), elements=n)
    assert found.drops["interference"] == math.inf
    assert found.drops["confidence"] == 0.0
    assert [level(found)[name] for name in STEPS[2:6]] == [0.0] * 4
    law = stats.binom.pmf(np.arange(n + 1), n, 0.5)
    assert level(found)["statistics"] == pytest.approx(mean_bound(law), abs=1e-7)
    assert str(found).startswith(
        "The mechanism claims no privacy at all (epsilon = infinity). Interference "
        "takes everything: with the other coins unknown no output reveals anything"
    )
    assert "audit adaptively" in str(found)


def test_all_or_nothing_is_lost_to_outputs():
    p, n = 0.3, 40
    found = gaps(AllOrNothing(elements=n, probability=p), elements=n)
    assert level(found)["interference"] == math.inf
    want = math.log((1 + p) / (1 - p))  # p^-1(1/2 + p/2)
    for name in ("outputs", "elements", "guessing"):
        assert level(found)[name] == pytest.approx(want, abs=1e-12)
    law = (1 - p) * stats.binom.pmf(np.arange(n + 1), n, 0.5)
    law[n] += p
    assert level(found)["statistics"] == pytest.approx(mean_bound(law), abs=1e-7)
    assert found.largest == "outputs"
    # The mean of the bounds exceeds the bound of the mean: the ladder rises.
    assert found.drops["statistics"] < -0.1
    assert "Statistics adds" in str(found)


def test_name_and_shame_is_lost_to_elements():
    n = 40
    found = gaps(NameAndShame(elements=n), elements=n)
    assert level(found)["outputs"] == math.inf
    want = special.logit(0.5 + 1 / (2 * n))
    assert level(found)["elements"] == pytest.approx(want, abs=1e-12)
    assert found.largest == "elements"
    one = gaps(NameAndShame(elements=n), elements=n, guesses=1)
    assert level(one)["elements"] == math.inf


@pytest.mark.parametrize("n", [1, 3, 30])
def test_the_levels_of_local_laplace_are_integrals(n):
    """|l| = epsilon min(|x|, 1) for x = 1 plus noise of scale 2 / epsilon."""
    epsilon = 1.5

    def below(t):
        half = epsilon / 2
        return 0.5 * (math.exp(t / 2 - half) - math.exp(-t / 2 - half))

    def slope(t):
        return special.expit(t) * special.expit(-t)

    lost, _ = integrate.quad(lambda t: below(t) ** n * slope(t), 0, epsilon)
    found = gaps(LocalLaplace(epsilon=epsilon), elements=n)
    assert level(found)["interference"] == epsilon
    most = special.logit(special.expit(epsilon) - lost)
    assert level(found)["outputs"] == pytest.approx(most, abs=1e-8)
    # The paper: 1 - e^(-epsilon / 2) / 2 without abstention.
    mean = special.logit(1 - math.exp(-epsilon / 2) / 2)
    assert level(found)["elements"] == pytest.approx(mean, abs=1e-8)


def test_delta_costs_confidence_and_interference_is_measured_beside_it():
    """4.377 and 3.616 are the published numbers; a local mechanism has no interference.

    At delta / alpha the level leaves out the rarest losses, so that the most exposed of
    many elements may lie above it.
    """
    found = gaps(LocalGaussian(sigma=1.0), elements=1000, guesses=30, delta=1e-5)
    assert level(found)["claim"] == pytest.approx(4.377, abs=6e-4)
    assert level(found)["confidence"] == pytest.approx(3.616, abs=6e-4)
    assert found.drops["interference"] == pytest.approx(0.0, abs=1e-6)
    assert found.drops["outputs"] < 0
    assert "loses more than the level at delta / alpha" in str(found)


def test_a_large_delta_leaves_nothing_to_certify():
    found = gaps(AllOrNothing(elements=10, probability=0.1), elements=10, delta=0.01)
    assert level(found)["claim"] == math.inf
    assert level(found)["confidence"] == 0.0
    assert str(found).count("Confidence takes everything") == 1


@pytest.mark.nightly
def test_the_expected_bound_of_a_count_is_measured():
    """Given the count o all sets of ones are alike: max(o, n - o) guesses are right."""
    n = 30
    found = gaps(count(n), elements=n, rng=rng(), runs=5000)
    o = np.arange(n + 1)
    chance = stats.binom.pmf(o, n, 0.5)
    accuracy = 0.5 + chance @ np.abs(o - n / 2) / n
    assert level(found)["elements"] == pytest.approx(special.logit(accuracy), abs=1e-9)
    want = chance @ [clopper_pearson(max(v, n - v), n) for v in o]
    last = found.levels[-1]
    assert last.low < want < last.high
    assert last.epsilon == pytest.approx(want, abs=0.01)


def test_the_expected_bound_agrees_with_audits_that_are_run():
    """Bounds lie in [0, 3]: Hoeffding, wrong by chance less than once in 10^6."""
    n, k, delta, runs = 80, 25, 1e-3, 4000
    mechanism, draw = LocalGaussian(sigma=0.8), rng()
    guesser = MostLikely(mechanism=mechanism, guesses=k)
    hits = []
    for _ in range(runs):
        bits = draw.integers(0, 2, n)
        made = guesser.guess(mechanism.run(mechanism.pairs.choose(bits), draw))
        hits.append(int(np.sum(made.guess == 2 * bits[made.index] - 1)))
    table = {}
    for v in set(hits):
        counts = Counts(canaries=n, guesses=k, correct=v)
        bound = ExactBound().epsilon_lower(counts, delta=delta, alpha=0.05)
        table[v] = bound.epsilon_lower
    assert max(table.values()) < 3
    found = gaps(mechanism, elements=n, guesses=k, delta=delta)
    slack = 3 * math.sqrt(math.log(2e6) / (2 * runs))
    drawn = [table[v] for v in hits]
    assert level(found)["statistics"] == pytest.approx(np.mean(drawn), abs=slack)
    assert found.spread == pytest.approx(np.std(drawn), abs=0.05)


def test_a_worse_guesser_is_a_gap_of_its_own():
    efficacy = Estimate(value=0.6, low=0.58, high=0.61)
    found = gaps(LocalRandomisedResponse(epsilon=1.0), elements=50, efficacy=efficacy)
    assert level(found)["guessing"] == pytest.approx(special.logit(0.6))
    means = [
        mean_bound(stats.binom.pmf(np.arange(51), 50, a)) for a in (0.58, 0.6, 0.61)
    ]
    last = found.levels[-1]
    got = (last.low, last.epsilon, last.high)
    assert got == pytest.approx(means, abs=1e-7)
    assert found.largest == "guessing"


@pytest.mark.parametrize("efficacy", [0.0, 1.0])
def test_a_guesser_may_be_always_right_or_never(efficacy):
    found = gaps(
        LocalRandomisedResponse(epsilon=1.0),
        elements=50,
        efficacy=Estimate.exact(efficacy),
    )
    want = clopper_pearson(50 * efficacy, 50)
    assert level(found)["statistics"] == pytest.approx(want, abs=1e-9)


def test_a_claim_that_the_mechanism_does_not_keep_is_a_rise():
    mechanism = LocalRandomisedResponse(epsilon=2.0)
    found = gaps(mechanism, elements=50, claim=PureDP(epsilon=0.5))
    assert found.drops["confidence"] == pytest.approx(-1.5)
    assert "own guarantee is weaker than the claim" in str(found)


def test_a_mechanism_without_guarantee_is_taken_at_its_level():
    """Two coins by randomised response, as a table: epsilon = ln 3 by enumeration."""
    q = np.array([[0.75, 0.25], [0.25, 0.75]])
    table = FiniteTable(rows=np.kron(q, q))
    found = gaps(table, elements=2, rng=rng(), runs=100)
    for name in STEPS[:-1]:
        assert level(found)[name] == pytest.approx(math.log(3))
    late = gaps(table, elements=2, delta=1e-3, rng=rng(), runs=100)
    # (1 - delta) p(ln 3) stays: delta = 3/4 - e^epsilon / 4.
    assert level(late)["claim"] == pytest.approx(math.log(4 * (0.75 - 1e-3)))
    assert level(late)["confidence"] == pytest.approx(math.log(4 * (0.75 - 0.02)))


class OfWhichNothingIsProved:
    """Randomised response at epsilon = 1, without its law and its guarantee."""

    def __init__(self):
        told = LocalRandomisedResponse(epsilon=1.0)
        self.run, self.log_odds, self.pairs = told.run, told.log_odds, told.pairs


@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_a_level_that_is_not_known_is_not_called_infinite(delta):
    """It is no less than what one who knows no coin sees: here all of it, and 1."""
    mechanism = OfWhichNothingIsProved()
    found = gaps(mechanism, elements=20, delta=delta, rng=rng(), runs=100)
    first, second = found.levels[:2]
    for each in (first, second):
        assert each.low <= 1.0 < each.high == math.inf
    assert first.low > 0.5
    assert str(found).startswith("What the mechanism guarantees is not known; its eps")
    assert f"is at least {first.low:.3f}." in str(found)
    assert "no privacy" not in str(found)
    assert found.drops["interference"] == 0.0
    assert "interference" not in str(found).lower()
    # A claim is taken at its word, and is not called weaker than what is not known.
    claimed = gaps(
        mechanism, elements=20, claim=PureDP(epsilon=1.5), rng=rng(), runs=100
    )
    assert level(claimed)["claim"] == 1.5
    assert str(claimed).startswith("The mechanism claims epsilon = 1.500.")
    assert "weaker" not in str(claimed)


def test_an_observed_bound_is_compared_with_the_expected_one():
    mechanism = LocalRandomisedResponse(epsilon=1.0)
    plain = gaps(mechanism, elements=50)
    assert plain.remainder is None
    found = gaps(mechanism, elements=50, observed=0.1)
    expected = level(plain)["statistics"]
    assert found.remainder == pytest.approx(0.1 - expected)
    assert f"{expected - 0.1:.3f} below the one expected" in str(found)


def test_what_must_be_simulated_needs_a_generator():
    with pytest.raises(InvalidInputError, match=r"pass rng=np\.random"):
        gaps(count(20), elements=20)


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        ({"alpha": 0.95}, "for confidence 0.95 pass 0.05"),
        ({"delta": 2.0}, "delta must be in"),
        ({"guesses": 11}, "guesses=11"),
        ({"guesses": 0}, "guesses=0"),
    ],
)
def test_misuse_is_explained(arguments, advice):
    with pytest.raises(InvalidInputError, match=advice):
        gaps(Xor(elements=10), elements=10, **arguments)


def test_infinity_minus_infinity_is_nothing():
    found = ladder(at("claim", math.inf), at("confidence", math.inf))
    assert found.drops == {"confidence": 0.0}
    assert "-infinity" in ladder(at("claim", 1.0), at("outputs", math.inf)).table()
    assert found.largest is None
    assert str(found).endswith(
        "No step takes anything that can be distinguished from zero."
    )


def test_a_drop_within_the_error_is_not_called_one():
    found = ladder(
        at("claim", 1.0),
        at("outputs", 0.8, low=0.7, high=0.9),
        at("statistics", 0.75, low=0.6, high=0.85),
    )
    assert found.largest == "outputs"
    assert "Statistics" not in str(found)
    assert "0.050" in found.table()


def test_the_table_has_a_line_per_rung():
    found = ladder(
        at("claim", math.inf),
        at("outputs", 0.8, 0.7, 0.9),
        at("guessing", 0.0),
    )
    lines = [line.split() for line in found.table().splitlines()]
    assert lines == [
        ["step", "takes", "leaves", "what", "is", "left"],
        ["claim", "infinity", "-"],
        ["outputs", "all", "but", "0.800", "[0.700,", "0.900]", "-"],
        ["guessing", "0.800", "0.000", "-"],
    ]


@pytest.mark.parametrize(
    ("remainder", "words"),
    [
        (0.0, "The bound observed is the one expected."),
        (0.25, "lies 0.250 above the one expected; from run to run it varies by 0.100"),
    ],
)
def test_the_remainder_is_said(remainder, words):
    found = ladder(at("claim", 1.0), at("outputs", 0.5), remainder=remainder)
    assert words in str(found)


@pytest.mark.parametrize(
    "names", [["claim"], ["outputs", "claim"], ["claim", "weather"]]
)
def test_a_ladder_starts_with_a_claim_and_has_known_steps(names):
    with pytest.raises(InvalidInputError, match="levels must be a claim and some of"):
        ladder(*(at(name, 1.0) for name in names))


@pytest.mark.parametrize("ends", [(0.6, 0.7), (0.3, 0.4), (math.nan, 1.0)])
def test_a_rung_lies_within_its_interval(ends):
    with pytest.raises(InvalidInputError, match="low <= epsilon <= high"):
        at("outputs", 0.5, *ends)


def test_a_mean_of_one_run_has_no_error_bar_and_is_refused():
    with pytest.raises(InvalidInputError, match="runs must be a whole number >= 2"):
        gaps(count(4), elements=4, rng=np.random.default_rng(0), runs=1)


def known(found):
    return {level.name: level for level in found.knowledge}


@pytest.mark.nightly
def test_count_in_sets_shows_the_interference_that_the_worst_case_hides():
    """Coins of a set that are all alike are given away: DDP is infinite."""
    found = gaps(CountInSets(elements=60, set_size=10), elements=60, rng=rng())
    assert found.drops["interference"] == 0
    levels = known(found)
    assert levels["full knowledge"].epsilon == math.inf
    assert levels["one run"].epsilon == level(found)["elements"]
    # each set by itself: E max(h, a - h) / a for a = 10, 9, ..., 1 coins left
    right = adaptive_guesses(10, 0.0).expected_right / 10
    want = math.log(right / (1 - right))
    assert levels["adaptivity"].low <= want <= levels["adaptivity"].high
    assert found.hidden == math.inf
    assert found.recovered == pytest.approx(
        levels["adaptivity"].epsilon - level(found)["elements"]
    )
    text = str(found)
    assert "by one who knew all other coins would leave infinity" in text
    assert "The largest gap is outputs, and interference is behind it" in text
    assert "audit adaptively" in text.rsplit("To narrow it", 1)[1]


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_small_parities_are_known_exactly_by_what_is_known(epsilon):
    mechanism = XorRandomisedResponse(elements=6, epsilon=epsilon)
    levels = known(gaps(mechanism, elements=6))
    right = (5 / 2 + special.expit(epsilon)) / 6  # the last one alone
    assert levels["full knowledge"].epsilon == pytest.approx(epsilon)
    assert levels["adaptivity"].epsilon == pytest.approx(special.logit(right))
    assert levels["one run"].epsilon == 0
    assert all(each.low == each.high for each in levels.values())


def test_pairs_of_parities_are_given_back_altogether_to_half_the_guesses():
    found = gaps(XorInPairs(elements=8), elements=8, guesses=4)
    assert known(found)["adaptivity"].epsilon == math.inf
    assert found.recovered == math.inf
    assert "revealing coins in turn gives all of it back" in str(found)


def test_where_nothing_interferes_nothing_is_said_of_other_coins():
    found = gaps(LocalLaplace(epsilon=1.0), elements=40, rng=rng())
    levels = known(found)
    assert levels["full knowledge"].low <= levels["one run"].epsilon
    assert levels["one run"].epsilon <= levels["full knowledge"].high
    assert "other coins would leave" not in str(found)
    assert "interference is behind it" not in str(found)


def test_other_knowledge_is_not_asked_for_where_it_cannot_be_had():
    laplace = LocalLaplace(epsilon=1.0)
    assert gaps(laplace, elements=40).knowledge == ()
    used = gaps(laplace, elements=40, efficacy=Estimate.exact(0.6), rng=rng())
    assert used.knowledge == ()
    assert (used.hidden, used.recovered) == (0, 0)


def test_knowledge_is_three_levels_or_none():
    with pytest.raises(InvalidInputError, match="knowledge must be empty or full"):
        replace(gaps(Xor(elements=6), elements=6), knowledge=(at("adaptivity", 1.0),))
