"""Privacy levels and efficacy by simulation, for mechanisms without a closed form.

Coins are drawn, the mechanism is run on the data they select, and its ``log_odds`` give
the accuracy ``p(|l|)`` of the best guess about each coin. No guess is scored against
its coin, so the only randomness is that of the output. The runs are independent and
each value lies in [1/2, 1], so empirical Bernstein intervals hold for any number of
runs. Each interval holds with 99 % confidence separately.

The distributional level is a supremum. At ``delta = 0`` the largest observed loss is a
lower bound on it, and there is no upper bound. At ``delta > 0`` it is where the mean of
``(1 - (1 + e^epsilon) p(-|l|))_+`` falls to delta. For the sample mean ``m`` of numbers
in [0, 1] with expectation delta, ``runs kl(m, delta)`` exceeds ``ln(2 / 0.01)`` with
probability at most 1 % (Chernoff and Hoeffding). The sample mean decreases with
epsilon, so the epsilons at which it is that close to delta form an interval, which
contains the true one with that confidence. The mean is over elements too: for a
mechanism that treats elements differently it is the level of the average element.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf, log
from typing import Protocol, TypeVar, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.game.guessers import Guesser
from dpaudit.game.mechanism import HasLogOdds, Mechanism
from dpaudit.game.pairs import Pairs
from dpaudit.stats.search import largest_yes
from dpaudit.theory.gap_levels import Estimate

__all__ = ["Explained", "Simulation", "efficacy", "simulate"]

O = TypeVar("O")  # noqa: E741 (the paper's letter for an output)

_ALPHA = 0.01
_MOST_LOSSES = 50_000_000


class Explained(Mechanism[O], HasLogOdds[O], Protocol[O]):
    """A mechanism that gives each coin's log-odds given the output."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """Privacy levels estimated from independent runs.

    Attributes:
        distributional: The distributional level, an epsilon.
        average_case: Mean accuracy about the most exposed element.
        best: Mean accuracy about the best elements, as many as guesses.
        average_element: Mean accuracy about all elements.
    """

    distributional: Estimate
    average_case: Estimate
    best: Estimate
    average_element: Estimate


def simulate(
    mechanism: Explained[O],
    pairs: Pairs,
    *,
    elements: int,
    guesses: int,
    delta: float,
    runs: int,
    rng: np.random.Generator,
) -> Simulation:
    """Return the levels of a mechanism, estimated from independent runs.

    Args:
        mechanism: Runs on data and gives log-odds of coins for its outputs.
        pairs: The two records of each element.
        elements: Number of elements.
        guesses: How many of the best elements to average over.
        delta: Of the distributional level.
        runs: Number of independent runs, at least 2.
        rng: Source of coins and of the mechanism's randomness.
    """
    _check_runs(elements, runs)
    if delta > 0 and runs * elements > _MOST_LOSSES:
        raise InvalidInputError(
            f"runs * elements must be at most {_MOST_LOSSES:g} when delta > 0, as all "
            f"losses are kept, got {runs=}, {elements=}; ask for fewer runs"
        )
    values = np.empty((runs, 3))
    most, kept = 0.0, []
    for row, (_, output) in enumerate(_outputs(mechanism, pairs, elements, runs, rng)):
        sizes = _sizes(mechanism, output, elements)
        most = max(most, float(sizes.max()))
        ranked = np.sort(special.expit(sizes))
        values[row] = ranked[-1], ranked[-guesses:].mean(), ranked.mean()
        if delta > 0:
            kept.append(special.expit(-sizes))
    average_case, best, average_element = (
        Estimate.mean(v, span=(0.5, 1.0)) for v in values.T
    )
    return Simulation(
        distributional=_level(np.concatenate(kept), delta, runs)
        if delta > 0
        else Estimate(value=most, low=most, high=inf),
        average_case=average_case,
        best=best,
        average_element=average_element,
    )


def efficacy(
    mechanism: Mechanism[O],
    guesser: Guesser[O],
    pairs: Pairs,
    *,
    elements: int,
    runs: int,
    rng: np.random.Generator,
) -> Estimate:
    """Return an estimate of the efficacy E[V / R] of a guesser, with a 99 % interval.

    Reference: Keinan, Shenfeld and Ligett, "def:ora-efficacy",
    "thm-restated:optimal-efficacy-without-abstentions".

    Args:
        mechanism: The audited mechanism.
        guesser: Guesses all at once from the output, at least one coin in every run.
        pairs: The two records of each element.
        elements: Number of elements.
        runs: Number of independent runs, at least 2.
        rng: Source of coins and of the mechanism's randomness.
    """
    _check_runs(elements, runs)
    shares = np.empty(runs)
    games = _outputs(mechanism, pairs, elements, runs, rng)
    for row, (bits, output) in enumerate(games):
        made = guesser.guess(output)
        truth = 2 * bits[made.index].astype(np.int64) - 1
        number = np.count_nonzero(made.guess)
        if number == 0:
            raise InvalidInputError(
                "guesser made no guess in a run, and V / R means nothing without; use "
                "one that commits to a number of guesses"
            )
        shares[row] = np.count_nonzero(made.guess == truth) / number
    return Estimate.mean(shares, span=(0.0, 1.0))


def _outputs(
    mechanism: Mechanism[O],
    pairs: Pairs,
    elements: int,
    runs: int,
    rng: np.random.Generator,
) -> Iterator[tuple[NDArray[np.uint8], O]]:
    pairs.check(elements)
    for _ in range(runs):
        bits = rng.integers(0, 2, size=elements, dtype=np.uint8)
        yield bits, mechanism.run(pairs.choose(bits), rng)


def _sizes(mechanism: HasLogOdds[O], output: O, elements: int) -> NDArray[np.float64]:
    sizes = np.abs(np.asarray(mechanism.log_odds(output), np.float64))
    if sizes.shape != (elements,) or np.isnan(sizes).any():
        raise InvalidInputError(
            f"log_odds must return a number for each of elements={elements}, got shape "
            f"{sizes.shape} with {np.count_nonzero(np.isnan(sizes))} not a number"
        )
    return sizes


def _level(misses: NDArray[np.float64], delta: float, runs: int) -> Estimate:
    """Return the epsilon where the mean excess falls to delta, from ``p(-|l|)``."""
    ranked = np.sort(misses)
    sums = np.concatenate([[0.0], np.cumsum(ranked)])

    def excess(epsilon: float) -> float:
        miss = float(special.expit(-epsilon))
        count = int(np.searchsorted(ranked, miss))
        return (count - sums[count] / miss) / len(ranked) if count else 0.0

    def turn(level: float) -> float:
        if np.count_nonzero(ranked == 0) > level * len(ranked):
            return inf
        return largest_yes(lambda epsilon: excess(epsilon) > level)

    below, above = _plausible_means(delta, runs)
    value = turn(delta)
    return Estimate(
        value=value,
        low=min(value, turn(above)),
        high=inf if below == 0 else max(value, turn(below)),
    )


def _plausible_means(expected: float, runs: int) -> tuple[float, float]:
    """Return the smallest and largest plausible sample mean (99 %).

    They are clipped to 0 and 1.
    """
    limit = log(2 / _ALPHA) / runs

    def near(mean: float) -> bool:
        rest = special.rel_entr(1 - mean, 1 - expected)
        return float(special.rel_entr(mean, expected) + rest) <= limit

    down = _last(lambda step: near(expected - step), expected)
    up = _last(lambda step: near(expected + step), 1 - expected)
    return expected - down, expected + up


def _last(holds: Callable[[float], bool], most: float) -> float:
    """Return the largest step in [0, most] that holds, erring high."""
    if holds(most):
        return most
    low, high = 0.0, most
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return high


def _check_runs(elements: int, runs: int) -> None:
    _validate.whole_number("elements", elements, least=1)
    _validate.whole_number("runs", runs, least=2)
