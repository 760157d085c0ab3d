"""The best forecast for an audit, by either kind of rules, and which fault it catches.

Simulations are sized by the time they take: short ones to compare by, a long one, with
other randomness, for what is finally said, so that nothing is said to be good because
it was lucky. A fault is noise that is too small by a factor; the guesser measures the
noise, so its log-odds are those of the noise there is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, log
from typing import TypeAlias, assert_never, final

import numpy as np

from dpaudit.bounds.ceilings import design_ceiling
from dpaudit.bounds.reads import Counts
from dpaudit.bounds.strength import least_refuting
from dpaudit.dpsgd.planning.expected_one_run import (
    Expected,
    OneRunForecast,
    best_one_run,
    forecast_one_run,
)
from dpaudit.dpsgd.planning.expected_rounds import RoundsForecast, played_rejection
from dpaudit.dpsgd.planning.guess_law import GuessLaw, Training, guess_law
from dpaudit.dpsgd.planning.rounds_search import best_rounds
from dpaudit.game.rules import AdaptiveRounds, OneRun
from dpaudit.privacy.guarantee import Guarantee
from dpaudit.stats.binomial import log_odds_limit

__all__ = [
    "FINAL",
    "Effort",
    "Forecast",
    "all_right",
    "best_forecast",
    "expected_bound",
    "glance",
    "noise_fault",
    "simulated_law",
]

Forecast: TypeAlias = OneRunForecast | RoundsForecast


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much to simulate.

    Attributes:
        nanoseconds: How long it may take, about.
        coordinates: The most that are simulated, though there be time.
    """

    nanoseconds: float
    coordinates: int


FINAL = Effort(nanoseconds=1.2e9, coordinates=100_000)
_LOOK = Effort(nanoseconds=2e8, coordinates=30_000)
_FAULT = Effort(nanoseconds=1e8, coordinates=20_000)
_FEWEST = 2048  # coordinates, however long they take
_LARGEST_FAULT = 32.0
_HALVINGS = 5
_CHANCE = 0.9


@lru_cache(maxsize=16)
def glance(training: Training, per_coordinate: int) -> GuessLaw:
    """Return a law that is good enough to compare by."""
    return simulated_law(training, per_coordinate, _LOOK, seed=0)


def simulated_law(
    training: Training, per_coordinate: int, effort: Effort, *, seed: int
) -> GuessLaw:
    """Return a law from as much simulation as the effort allows."""
    s = per_coordinate
    # Measured: drawing and adding a step, and the game at the end.
    each = training.sufficient().steps * (40 + 1.6 * s + 0.1 * s**2) + 400 * s
    most = effort.coordinates
    coordinates = int(np.clip(effort.nanoseconds / each, _FEWEST, most))
    return guess_law(training, per_coordinate=s, coordinates=coordinates, seed=seed)


def best_forecast(
    law: GuessLaw,
    coordinates: int,
    delta: float,
    alpha: float,
    *,
    in_rounds: bool = True,
) -> Forecast:
    """Return the forecast of the best rules, of either kind or of one run only."""
    one = best_one_run(law, coordinates=coordinates, delta=delta, alpha=alpha)
    if not in_rounds:
        return one
    rounds = best_rounds(law, coordinates=coordinates, delta=delta, alpha=alpha)
    if rounds is None:
        return one
    better = expected_bound(one, delta, alpha).mean < rounds.expected().mean
    return rounds if better else one


def expected_bound(forecast: Forecast, delta: float, alpha: float) -> Expected:
    """Return the mean of the bound, and its spread."""
    match forecast:
        case OneRunForecast():
            return forecast.expected(delta=delta, alpha=alpha)
        case RoundsForecast():
            return forecast.expected()
        case _:
            assert_never(forecast)


def all_right(
    forecast: Forecast, law: GuessLaw, coordinates: int, delta: float, alpha: float
) -> float:
    """Return the bound if every guess were right."""
    match forecast:
        case OneRunForecast(canaries=m, guesses=r):
            counts = Counts(canaries=m, guesses=r, correct=r)
            return design_ceiling(counts, delta=delta, alpha=alpha)
        case RoundsForecast(rules=rules):
            guessed = float((law.surety >= rules.start).mean(axis=1).sum())
            made = max(1, round(coordinates * guessed))
            return log_odds_limit(made, made, log_alpha=log(alpha))
        case _:
            assert_never(forecast)


def noise_fault(
    training: Training,
    rules: OneRun | AdaptiveRounds,
    per_coordinate: int,
    coordinates: int,
    claim: Guarantee,
    alpha: float,
) -> float | None:
    """Return the least factor on the noise that is caught with chance 0.9.

    Args:
        training: What will be trained.
        rules: What the game is played by.
        per_coordinate: Canaries at each coordinate.
        coordinates: How many coordinates.
        claim: What is tested: one point, or a whole curve if all is guessed at once.
        alpha: Chance of refuting a true claim.
    """
    refutes = _refuted_by(rules, per_coordinate, coordinates, claim, alpha)

    def caught(factor: float) -> bool:
        law = simulated_law(training.louder(factor), per_coordinate, _FAULT, seed=2)
        return refutes(law) >= _CHANCE

    low, high = 1.0, 2.0
    while not caught(high):
        if high >= _LARGEST_FAULT:
            return None
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if caught(middle) else (middle, high)
    return high


def _refuted_by(
    rules: OneRun | AdaptiveRounds,
    per_coordinate: int,
    coordinates: int,
    claim: Guarantee,
    alpha: float,
) -> Callable[[GuessLaw], float]:
    """Return what tells the chance that a claim is refuted from a law of guesses."""
    match rules:
        case OneRun(guesses=guesses):
            least = least_refuting(
                claim,
                canaries=coordinates * per_coordinate,
                guesses=guesses,
                alpha=alpha,
            )
            # Whole coordinates; of the last one's guesses some are not made, and it
            # does no harm to take those for right ones that are asked for as well.
            surest = np.array([ceil(guesses / per_coordinate)])
            more = int(surest[0]) * per_coordinate - guesses

            def by_count(law: GuessLaw) -> float:
                if least is None:
                    return 0.0
                (forecast,) = forecast_one_run(law, coordinates, surest)
                return 1 - float(forecast.at_most(least + more - 1))

            return by_count
        case AdaptiveRounds():
            (epsilon,), (delta,) = claim.points()  # rounds test one point

            def by_rounds(law: GuessLaw) -> float:
                return played_rejection(
                    law,
                    rules,
                    coordinates=coordinates,
                    epsilon=float(epsilon),
                    delta=float(delta),
                    alpha=alpha,
                )

            return by_rounds
        case _:
            assert_never(rules)
