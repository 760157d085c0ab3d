"""Computes how many canaries a target bound needs.

The distribution of guesses does not depend on the number of coordinates, so one
distribution is evaluated at many numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import final

from dpaudit import _validate
from dpaudit.dpsgd.planning.candidates import most_shown
from dpaudit.dpsgd.planning.expected_one_run import Expected, best_one_run
from dpaudit.dpsgd.planning.forecasts import (
    FINAL,
    MOST_IN_ROUNDS,
    best_forecast,
    forecast_bound,
    glance,
    simulated_distribution,
)
from dpaudit.dpsgd.planning.guess_distribution import GuessDistribution
from dpaudit.dpsgd.planning.rounds_search import best_by_jump, table_for
from dpaudit.dpsgd.planning.training import TrainingSetup

__all__ = ["Needed", "canaries_needed"]

_TYPICAL = (4, 1)  # canaries per coordinate
_FEW, _LARGEST_AUDIT = 1 << 6, 1 << 20  # coordinates
_MANY = 1 << 17
_CLOSE = 1.05


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """The number of canaries that a target needs.

    Attributes:
        coordinates: The number of coordinates with canaries.
        per_coordinate: Canaries at each.
        expected: The mean bound with these, and its spread.
    """

    coordinates: int
    per_coordinate: int
    expected: Expected


def canaries_needed(
    training: TrainingSetup,
    *,
    target_epsilon: float,
    delta: float,
    alpha: float = 0.05,
    per_coordinate: int | None = None,
) -> Needed | None:
    """Return about how many coordinates the mean bound needs to reach a target.

    Args:
        training: The training run.
        target_epsilon: The target for the mean bound.
        delta: Delta of the bound.
        alpha: Significance level.
        per_coordinate: Canaries at each coordinate, if that is fixed.

    Returns:
        The fewest, within the errors of the simulation; None if a million coordinates
        are not enough.

    Example:
        >>> training = TrainingSetup(steps=1, rate=1.0, noise=1.0)
        >>> needed = canaries_needed(
        ...     training, target_epsilon=0.6, delta=1e-5, per_coordinate=1
        ... )
        >>> 20 < needed.coordinates < 200
        True
    """
    _validate.positive("target_epsilon", target_epsilon)
    _validate.probability("delta", delta)
    _validate.error_level("alpha", alpha)
    s = per_coordinate
    if s is None:
        tried = (
            _fewest(target_epsilon, _shown(glance(training, s, _MANY), delta, alpha))
            for s in _TYPICAL
        )
        rough = next((d for d in tried if d is not None), _MANY)
        s = most_shown(
            training, coordinates=rough, delta=delta, alpha=alpha
        ).per_coordinate
    distribution = simulated_distribution(training, s, FINAL, seed=1)
    shown = _shown(distribution, delta, alpha)
    first = _fewest(target_epsilon, shown)
    if first is None:
        return None
    # Played rounds fall slightly short, by about as much with a few more coordinates.
    short = target_epsilon - _mean(distribution, first, delta, alpha).mean
    fewest = _fewest(target_epsilon + max(0.0, short), shown)
    if fewest is None:
        return None
    expected = _mean(distribution, fewest, delta, alpha)
    return Needed(coordinates=fewest, per_coordinate=s, expected=expected)


def _mean(
    distribution: GuessDistribution, coordinates: int, delta: float, alpha: float
) -> Expected:
    forecast = best_forecast(distribution, coordinates, delta, alpha)
    return forecast_bound(forecast, delta, alpha)


def _fewest(target: float, shown: Callable[[int], float]) -> int | None:
    """Return the fewest coordinates that reach a target, to within a few percent."""
    # Search upwards: with very many canaries, delta costs more than they are worth.
    low, high = 1, _FEW
    while shown(high) < target:
        if high >= _LARGEST_AUDIT:
            return None
        low, high = high, 4 * high
    while high > max(low + 1, _CLOSE * low):
        middle = max(low + 1, int((low * high) ** 0.5))
        enough = shown(middle) >= target
        low, high = (low, middle) if enough else (middle, high)
    return high


def _shown(
    distribution: GuessDistribution, delta: float, alpha: float
) -> Callable[[int], float]:
    """Return the mean bound as a function of coordinates, with no rounds played."""

    @cache
    def mean(coordinates: int) -> float:
        d = coordinates
        one = best_one_run(distribution, coordinates=d, delta=delta, alpha=alpha)
        at_once = one.expected(delta=delta, alpha=alpha).mean
        if d > MOST_IN_ROUNDS:
            return at_once
        table = table_for(distribution, d)
        best = best_by_jump(table, coordinates=d, delta=delta, alpha=alpha)
        return max([at_once, *(each.started().expected().mean for each in best[:1])])

    return mean
