"""The best forecast for an audit, by either kind of rules, and what faults it detects.

Simulations are sized by the time they take: short ones to compare candidates, and a
long one with fresh randomness for the reported values, to avoid selection bias. A fault
is noise that is too small by a factor; the guesser measures the noise, so its log-odds
are those of the actual noise.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from math import ceil, exp, log, log2
from typing import TypeAlias, assert_never, final

import numpy as np
from scipy import special

from dpaudit.bounds.power import design_ceiling, least_refuting
from dpaudit.dpsgd.planning.expected_one_run import (
    Expected,
    OneRunForecast,
    best_one_run,
    forecast_one_run,
)
from dpaudit.dpsgd.planning.expected_rounds import (
    SURELY,
    RoundsForecast,
    RoundsSetting,
)
from dpaudit.dpsgd.planning.guess_distribution import (
    GuessDistribution,
    guess_distribution,
    steps_drawn,
)
from dpaudit.dpsgd.planning.rounds_search import (
    CatchingRounds,
    best_rounds,
    forecast_played,
)
from dpaudit.dpsgd.planning.training import TrainingSetup
from dpaudit.errors import InvalidInputError
from dpaudit.game.rules import AdaptiveRounds, OneRun
from dpaudit.privacy.guarantees import Guarantee
from dpaudit.stats.binomial import log_odds_limit
from dpaudit.stats.search import least_yes

__all__ = [
    "FINAL",
    "LARGEST_FAULT",
    "MOST_IN_ROUNDS",
    "Effort",
    "Forecast",
    "all_right",
    "best_forecast",
    "faulty",
    "fixed_number",
    "forecast_bound",
    "forecast_of",
    "glance",
    "is_caught",
    "least_factor",
    "least_smooth",
    "margin_of",
    "noise_fault",
    "simulated_distribution",
]

LARGEST_FAULT = 32.0  # a factor on the noise
# With more coordinates, one-run guesses show as much, and rounds are slow to forecast.
MOST_IN_ROUNDS = 50_000
Forecast: TypeAlias = OneRunForecast | RoundsForecast


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much to simulate.

    Attributes:
        nanoseconds: Approximate time for simulating coordinates.
        coordinates: The largest number of coordinates, even if there is time for more.
        blocks: Blocks of steps in the pool.
    """

    nanoseconds: float
    coordinates: int
    blocks: int


FINAL = Effort(nanoseconds=5e8, coordinates=300_000, blocks=40_000)
_COMPARISON = Effort(nanoseconds=7e7, coordinates=100_000, blocks=6_000)
_FAULT = Effort(nanoseconds=1.5e8, coordinates=150_000, blocks=10_000)
_GLANCE = Effort(nanoseconds=1e6, coordinates=4_096, blocks=2_000)
_ENOUGH = 20_000  # coordinates, for small audits
_FEWEST = 4096  # coordinates, however long they take
_PER_DOUBLING, _FINELY = 48, 128  # grid points per doubling of the noise factor
_POWER = 0.93  # for a stated power of 0.9, as forecasts have errors of their own
_QUANTILE = 1.4758  # the normal quantile of that power
_SLOPE, _FLATTEST = 12.0, 2.0  # of margins over logs of factors: typical, and the least
_SECANTS, _FURTHEST, _CLOSE = 4, 0.3, 0.05
_SURE = 1e-6  # the slope of a power beyond it is not relevant


@lru_cache(maxsize=16)
def glance(
    training: TrainingSetup, per_coordinate: int, coordinates: int
) -> GuessDistribution:
    """Return a distribution good enough to compare audits of so many coordinates."""
    effort = _comparison(coordinates)
    return simulated_distribution(training, per_coordinate, effort, seed=0)


@lru_cache(maxsize=16)
def faulty(
    training: TrainingSetup, per_coordinate: int, coordinates: int, factor: float
) -> GuessDistribution:
    """Return such a distribution for training with noise too small by a factor."""
    effort = _comparison(coordinates)
    return simulated_distribution(
        training.with_noise_divided_by(factor), per_coordinate, effort, seed=2
    )


def _comparison(coordinates: int) -> Effort:
    most = min(max(4 * coordinates, _ENOUGH), _COMPARISON.coordinates)
    return replace(_COMPARISON, coordinates=most)


def simulated_distribution(
    training: TrainingSetup | tuple[TrainingSetup, ...],
    per_coordinate: int,
    effort: Effort,
    *,
    seed: int,
) -> GuessDistribution:
    """Return a guess distribution from as much simulation as the effort allows."""
    s = per_coordinate
    parts = training if isinstance(training, tuple) else (training,)
    # Measured per coordinate: sums of blocks or a few steps, and the guesses at the
    # end; and further steps if they are drawn one by one.
    further = max(0, sum(map(steps_drawn, parts)) - 16)
    nanoseconds = 500 * s + 200 + (10 * s + 35) * further
    most = effort.coordinates
    return guess_distribution(
        training,
        per_coordinate=s,
        coordinates=int(np.clip(effort.nanoseconds / nanoseconds, _FEWEST, most)),
        seed=seed,
        blocks=effort.blocks,
    )


def best_forecast(
    distribution: GuessDistribution,
    coordinates: int,
    delta: float,
    alpha: float,
    *,
    in_rounds: bool = True,
) -> Forecast:
    """Return the forecast of the best rules, of either kind or one-run only."""
    one = best_one_run(distribution, coordinates=coordinates, delta=delta, alpha=alpha)
    if not in_rounds or coordinates > MOST_IN_ROUNDS:
        return one
    rounds = best_rounds(
        distribution, coordinates=coordinates, delta=delta, alpha=alpha
    )
    if rounds is None:
        return one
    better = forecast_bound(one, delta, alpha).mean < rounds.expected().mean
    return rounds if better else one


def forecast_of(
    rules: OneRun | AdaptiveRounds,
    distribution: GuessDistribution,
    coordinates: int,
    delta: float,
    alpha: float,
) -> Forecast:
    """Return the forecast of given rules; for rounds the search start is chosen."""
    match rules:
        case OneRun():
            number = np.array([ceil(fixed_number(rules) / distribution.per_coordinate)])
            return forecast_one_run(distribution, coordinates, number)[0]
        case AdaptiveRounds():
            setting = RoundsSetting(
                rules=rules,
                coordinates=coordinates,
                per_coordinate=distribution.per_coordinate,
                delta=delta,
                alpha=alpha,
            )
            return forecast_played(distribution, setting, plays=SURELY)
        case _:
            assert_never(rules)


def fixed_number(rules: OneRun) -> int:
    """Return the number of guesses; plans and forecasts need it to be fixed."""
    if rules.guesses is None:
        raise InvalidInputError(
            "a training run is planned with a fixed number of guesses, "
            "got OneRun(guesses=None)"
        )
    return rules.guesses


def forecast_bound(forecast: Forecast, delta: float, alpha: float) -> Expected:
    """Return the mean and the spread of the bound."""
    match forecast:
        case OneRunForecast():
            return forecast.expected(delta=delta, alpha=alpha)
        case RoundsForecast():
            return forecast.expected()
        case _:
            assert_never(forecast)


def all_right(
    forecast: Forecast,
    distribution: GuessDistribution,
    coordinates: int,
    delta: float,
    alpha: float,
) -> float:
    """Return the bound if every guess were correct."""
    match forecast:
        case OneRunForecast(canaries=m, guesses=r):
            return design_ceiling(canaries=m, guesses=r, delta=delta, alpha=alpha)
        case RoundsForecast(rules=rules):
            guessed = float(
                (distribution.confidence >= rules.min_epsilon).mean(axis=1).sum()
            )
            made = max(1, round(coordinates * guessed))
            return log_odds_limit(made, made, log_alpha=log(alpha))
        case _:
            assert_never(forecast)


def noise_fault(
    training: TrainingSetup | tuple[TrainingSetup, ...],
    rules: OneRun | AdaptiveRounds,
    per_coordinate: int,
    coordinates: int,
    claim: Guarantee,
    alpha: float,
    *,
    near: float | None = None,
    effort: Effort = _FAULT,
) -> float | None:
    """Return the smallest noise fault that is detected with 90 % power, as a factor.

    Args:
        training: The training run; several setups are steps of one run, configured
            differently.
        rules: The rules of the audit.
        per_coordinate: Canaries at each coordinate.
        coordinates: The number of coordinates.
        claim: The tested claim: one point, or a whole curve for one-run rules.
        alpha: Significance level.
        near: Where the search starts; by default from a short simulation.
        effort: How much to simulate for each factor that is tried.
    """
    parts = training if isinstance(training, tuple) else (training,)

    @cache
    def distribution(factor: float, effort: Effort = effort) -> GuessDistribution:
        broken = tuple(each.with_noise_divided_by(factor) for each in parts)
        return simulated_distribution(broken, per_coordinate, effort, seed=3)

    match rules:
        case OneRun():
            refutes = _by_count(rules, per_coordinate, coordinates, claim, alpha)
            if refutes is None:
                return None
            if near is None:
                near = least_factor(
                    lambda factor: margin_of(refutes(distribution(factor, _GLANCE))),
                    near=2.0,
                )
            return least_factor(
                lambda factor: margin_of(refutes(distribution(factor))),
                near=near or LARGEST_FAULT,
                per_doubling=_FINELY,
            )
        case AdaptiveRounds():
            (epsilon,), (delta,) = claim.points()  # rounds test one point
            setting = RoundsSetting(
                rules=rules,
                coordinates=coordinates,
                per_coordinate=per_coordinate,
                delta=float(delta),
                alpha=alpha,
            )
            caught = CatchingRounds(setting=setting, epsilon=float(epsilon))
            # Rounds are played where the search starts, and again at its result.
            if near is None:
                near = least_factor(
                    lambda f: (
                        caught.normal_margin(distribution(f, _GLANCE)) - _QUANTILE
                    ),
                    near=2.0,
                )
            near = near or LARGEST_FAULT
            factor = (
                near if caught.normal_margin(distribution(near)) > 0 else LARGEST_FAULT
            )
            for _ in range(2):
                played = caught.played(distribution(factor), len(rules.round_weights))
                start = min(1.1 * factor, LARGEST_FAULT)
                refined = least_smooth(
                    lambda f: played.margin(distribution(f)),  # noqa: B023
                    near=start,
                )
                if refined is None:
                    return None
                factor = refined
            return factor
        case _:
            assert_never(rules)


def is_caught(probability: float) -> bool:
    """Return whether a fault is detected with the 90 % power that plans state."""
    return probability >= _POWER


def margin_of(probability: float) -> float:
    """Return a power's normal quantile, less that of the power that plans state."""
    inside = min(max(probability, _SURE), 1 - _SURE)
    return float(special.ndtri(inside) - special.ndtri(_POWER))


def least_factor(
    margin: Callable[[float], float],
    *,
    near: float,
    most: float = LARGEST_FAULT,
    per_doubling: int = _PER_DOUBLING,
) -> float | None:
    """Return the smallest factor of a grid that is detected; None if the largest isn't.

    Args:
        margin: For a factor, how far the normal quantile of the power is above that of
            a detected fault; where it is 0 or more, it is so for larger factors too.
        near: Where the search starts.
        most: The largest factor.
        per_doubling: Grid points between a factor and its double.

    Example:
        >>> least_factor(lambda factor: 9 * log(factor / 2), near=3.0)
        2.0
    """
    top = round(per_doubling * log2(min(most, LARGEST_FAULT)))
    at = cache(lambda i: margin(2.0 ** (i / per_doubling)))
    start = min(max(1, round(per_doubling * log2(near))), top)
    low = high = _by_secants(at, start, top, log(2) / per_doubling)
    step = 1
    if at(high) >= 0:
        # 0 is the correct noise, which is not a fault
        while low > 0 and at(low) >= 0:
            low, high, step = max(0, low - step), low, 2 * step
    else:
        while at(high) < 0:
            if high >= top:
                return None
            low, high, step = high, min(top, high + step), 2 * step
    least = least_yes(lambda i: at(i) >= 0, low + 1, high)
    assert least is not None  # the highest is detected
    return float(2.0 ** (least / per_doubling))


def _by_secants(
    margin: Callable[[int], float], start: int, top: int, spacing: float
) -> int:
    """Return a point of a grid near the least one with a margin of 0 or more."""
    at, slope, furthest = start, _SLOPE * spacing, _FURTHEST / spacing
    for _ in range(_SECANTS):
        back = float(np.clip(margin(at) / slope, -furthest, furthest))
        other = min(max(1, ceil(at - back)), top)
        if other == at:
            break
        rise = (margin(other) - margin(at)) / (other - at)
        at, slope = other, max(rise, _FLATTEST * spacing)
    return at


def least_smooth(margin: Callable[[float], float], *, near: float) -> float | None:
    """Return the smallest factor that is detected, by a margin that gives the power.

    Args:
        margin: The normal quantile of the power; it rises smoothly with the log of the
            factor.
        near: A factor that is detected; if it is not, the result is None.

    Example:
        >>> found = least_smooth(lambda factor: 9 * log(factor / 2), near=3.0)
        >>> round(found / 2 / exp(1.4758 / 9), 3)
        1.0
    """
    at, above = log(near), margin(near) - _QUANTILE
    if above < 0:
        return None
    best, slope = at, _SLOPE
    for _ in range(_SECANTS):
        if abs(above) < _CLOSE:
            break
        next_at = max(0.0, at - float(np.clip(above / slope, -_FURTHEST, _FURTHEST)))
        next_above = margin(exp(next_at)) - _QUANTILE
        if abs(next_at - at) > 1e-6:
            slope = max((next_above - above) / (next_at - at), _FLATTEST)
        at, above = next_at, next_above
        if above >= 0:
            best = min(best, at)
    return exp(at - above / slope) if abs(above) < 1 else exp(best)


def _by_count(
    rules: OneRun,
    per_coordinate: int,
    coordinates: int,
    claim: Guarantee,
    alpha: float,
) -> Callable[[GuessDistribution], float] | None:
    """Return a function giving the power for a distribution; None if always 0."""
    guesses = fixed_number(rules)
    least = least_refuting(
        claim, canaries=coordinates * per_coordinate, guesses=guesses, alpha=alpha
    )
    if least is None:
        return None
    # Forecasts are for whole coordinates. Some guesses of the last one are not made; it
    # does no harm to count them as correct and require as many more.
    number = np.array([ceil(guesses / per_coordinate)])
    more = int(number[0]) * per_coordinate - guesses

    def refutes(distribution: GuessDistribution) -> float:
        (forecast,) = forecast_one_run(distribution, coordinates, number)
        return 1 - float(forecast.at_most(least + more - 1))

    return refutes
