"""Levels: every way to find them, and what is said when there is none."""

from math import inf, log

import numpy as np
import pytest
from scipy import special

from dpaudit.errors import InvalidInputError
from dpaudit.game.pairs import Pairs
from dpaudit.mechanisms.local import LocalGaussian, LocalRandomisedResponse
from dpaudit.mechanisms.parity import Xor
from dpaudit.mechanisms.sets import CountInSets, count
from dpaudit.mechanisms.table import FiniteTable
from dpaudit.privacy.guarantees import PureDP
from dpaudit.theory.levels import Estimate, Levels, levels


class OnlyLaw:
    """A mechanism stripped to its law and pairs."""

    def __init__(self, inner):
        self.distribution, self.pairs = inner.distribution, inner.pairs


class OnlyLogOdds:
    """A mechanism stripped to runs and log-odds."""

    def __init__(self, inner):
        self.run, self.log_odds, self.pairs = inner.run, inner.log_odds, inner.pairs


def test_three_ways_lead_to_one_answer():
    mechanism = CountInSets(elements=6, set_size=3)
    closed = levels(mechanism, elements=6, guesses=2)
    listed = levels(OnlyLaw(mechanism), elements=6, guesses=2)
    rng = np.random.default_rng(8)
    seen = levels(OnlyLogOdds(mechanism), elements=6, guesses=2, rng=rng)
    assert closed.how == "closed form"
    assert listed.how == "enumeration of 2^6 coins"
    assert seen.how.startswith("simulation of 2000 runs")
    for name in ("average_case_accuracy", "best_accuracy", "average_element_accuracy"):
        exact = getattr(closed, name)
        assert exact.is_exact
        assert getattr(listed, name).value == pytest.approx(exact.value)
        assert getattr(seen, name).low <= exact.value <= getattr(seen, name).high
    assert (
        closed.worst_case_epsilon
        == listed.worst_case_epsilon
        == seen.worst_case_epsilon
        == inf
    )
    assert (
        closed.distributional_epsilon.value
        == listed.distributional_epsilon.value
        == inf
    )
    assert closed.efficacy is closed.best_accuracy


def test_a_guarantee_is_the_worst_case_at_its_delta():
    found = levels(LocalGaussian(sigma=1.0), elements=10**6, guesses=100, delta=1e-5)
    assert found.worst_case_epsilon == pytest.approx(4.37718, abs=1e-4)
    assert found.distributional_epsilon.value == pytest.approx(
        found.worst_case_epsilon, abs=1e-8
    )
    assert levels(LocalGaussian(sigma=1.0), elements=10).worst_case_epsilon == inf


class OfWhichNothingIsProved:
    """Randomised response at epsilon = 1, without its law and its guarantee."""

    def __init__(self):
        told = LocalRandomisedResponse(epsilon=1.0)
        self.run, self.log_odds, self.pairs = told.run, told.log_odds, told.pairs


def test_a_worst_case_that_is_not_known_is_not_called_infinite():
    rng = np.random.default_rng(1)
    found = levels(OfWhichNothingIsProved(), elements=20, rng=rng, runs=50)
    assert found.how.endswith("; the worst case is not known")
    assert found.worst_case_epsilon == inf  # all that can be said from above
    assert "not known" not in levels(Xor(elements=20), elements=20).how


def test_without_a_guarantee_the_worst_case_is_enumerated():
    rows = np.array([[0.75, 0.25], [0.25, 0.75]])
    assert levels(
        FiniteTable(rows=rows), elements=1
    ).worst_case_epsilon == pytest.approx(log(3))
    open_book = FiniteTable(rows=np.eye(4))
    assert levels(open_book, elements=2).worst_case_epsilon == inf


def test_a_guarantee_of_nothing_is_infinite():
    assert levels(Xor(elements=3), elements=3).worst_case_epsilon == inf
    assert levels(count(10**6), elements=10**6).worst_case_epsilon == inf


def test_a_worst_case_at_delta_is_enumerated_too():
    rows = np.array([[0.75, 0.25], [0.25, 0.75]])
    found = levels(FiniteTable(rows=rows), elements=1, delta=0.25)
    # 0.75 - e^epsilon 0.25 = 0.25
    assert found.worst_case_epsilon == pytest.approx(log(2))
    assert found.distributional_epsilon.value == pytest.approx(log(2))


def test_all_elements_are_guessed_unless_told_otherwise():
    found = levels(LocalGaussian(sigma=1.0), elements=9)
    assert found.guesses == 9
    assert found.best_accuracy.value == pytest.approx(
        found.average_element_accuracy.value
    )


def test_a_probability_is_turned_into_its_epsilon():
    found = levels(LocalRandomisedResponse(epsilon=1.5), elements=4)
    assert found.as_epsilon(found.efficacy).value == pytest.approx(1.5)
    both = found.as_epsilon(Estimate(value=0.6, low=0.4, high=1.0))
    # No accuracy can exceed p of the distributional level.
    assert both == Estimate(value=float(special.logit(0.6)), low=0.0, high=1.5)


@pytest.mark.parametrize("epsilon", [20.0, 34.0, 36.0, 37.0, 800.0])
def test_accuracies_next_to_one_keep_their_epsilon(epsilon):
    found = levels(LocalRandomisedResponse(epsilon=epsilon), elements=10)
    for chance in (
        found.best_accuracy,
        found.average_case_accuracy,
        found.average_element_accuracy,
    ):
        assert found.as_epsilon(chance).value == pytest.approx(epsilon, rel=1e-6)


def test_simulation_needs_randomness_and_says_so():
    with pytest.raises(InvalidInputError, match=r"rng=np\.random\.default_rng"):
        levels(OnlyLogOdds(LocalGaussian(sigma=1.0)), elements=4)


def test_a_mechanism_that_says_too_little_is_told_what_to_add():
    class Silent:
        def run(self, data, rng):
            return data

    with pytest.raises(
        InvalidInputError,
        match=r"Silent .* loss_distribution\(elements\), or distribution",
    ):
        levels(Silent(), elements=4)
    with pytest.raises(
        InvalidInputError, match=r"loss_distribution"
    ):  # too large to enumerate
        levels(OnlyLaw(count(13)), elements=13)


class Boastful:
    """Tells everything and claims to be private."""

    pairs = Pairs(x=0, y=1)
    guarantee = PureDP(epsilon=1.0)

    def distribution(self, data):
        return np.eye(2)[int(data[0])]


def test_a_guarantee_that_the_law_contradicts_is_refused():
    with pytest.raises(InvalidInputError, match="the guarantee does not hold"):
        levels(Boastful(), elements=1)


def some_levels(**changes):
    exact = {
        "distributional_epsilon": 2.0,
        "average_case_accuracy": 0.8,
        "best_accuracy": 0.7,
        "average_element_accuracy": 0.6,
    }
    values = {name: Estimate.exact(value) for name, value in exact.items()}
    fixed = {
        "elements": 5,
        "guesses": 2,
        "delta": 0.0,
        "worst_case_epsilon": 3.0,
        "how": "",
    }
    return Levels(**(fixed | values | changes))


def test_rounding_does_not_break_the_chain_but_nonsense_does():
    assert (
        some_levels(best_accuracy=Estimate.exact(0.8 + 1e-9)).best_accuracy.value > 0.8
    )
    with pytest.raises(
        InvalidInputError, match="average_element_accuracy <= best_accuracy"
    ):
        some_levels(best_accuracy=Estimate.exact(0.85))
    with pytest.raises(InvalidInputError, match="1/2 <="):
        some_levels(average_element_accuracy=Estimate.exact(0.4))
    with pytest.raises(InvalidInputError, match="guesses must be at most elements=5"):
        some_levels(guesses=6)
    with pytest.raises(InvalidInputError, match="worst_case_epsilon"):
        some_levels(worst_case_epsilon=-1.0)


def test_at_positive_delta_the_distributional_level_may_lie_below_the_averages():
    found = some_levels(delta=0.3, distributional_epsilon=Estimate.exact(0.0))
    assert found.distributional_epsilon.value == 0.0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Estimate.exact(0.61), "0.61"),
        (Estimate(value=0.61, low=0.6, high=0.62), "0.61 [0.6, 0.62]"),
        (Estimate(value=2.0, low=2.0, high=inf), "2 [2, inf]"),
    ],
)
def test_a_measured_value_shows_its_interval(value, text):
    assert str(value) == text


@pytest.mark.parametrize("value", [float("nan"), 0.7])
def test_an_interval_must_hold_its_value(value):
    with pytest.raises(InvalidInputError, match="low <= value <= high"):
        Estimate(value=value, low=0.5, high=0.6)
