"""Searches for the best rules of an adaptive audit in rounds.

A plan fixes beforehand:

- the *weights* of the rounds, in proportion to their standard deviations at the
  expected bound, so that every correct guess counts with its own weight;
- the *jump*, the most that a correct guess may add: a small one makes delta cheap, but
  caps the weights of the most confident guesses;
- the *noise*, some randomness at the end that makes delta cheap in the last rounds;
- *groups*: the coordinates are played in several groups one after the other, for the
  same reason, as long as the rounds do not get too small;
- the *start* of the bound's grid, well below the expected bound.

All but the start are searched over a few values, around which little changes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import sqrt
from typing import final

import numpy as np

from dpaudit.bounds.rounds import TAIL_ROOM
from dpaudit.dpsgd.planning.expected_rounds import (
    CAPS,
    QUICKLY,
    RoundsForecast,
    RoundsSetting,
    RoundsTable,
    as_played,
    forecast_rounds,
    played_margin,
)
from dpaudit.dpsgd.planning.guess_distribution import GuessDistribution
from dpaudit.game.rules import AdaptiveRounds
from dpaudit.privacy.guarantees import ApproxDP

__all__ = [
    "CatchingRounds",
    "best_by_jump",
    "best_rounds",
    "catching_rounds",
    "forecast_played",
    "table_for",
]

_EPSILONS = 48
_TOP = 15.0  # largest epsilon considered
_JUMPS = (0.03, 0.05, 0.08, 0.12, 0.16, 0.2, 0.25, 0.3, 0.4, 0.5)
_NOISES = (0.0, 0.01, 0.03, 0.06)
_GROUPS = (1, 2, 4, 8, 16)
_FEWEST = 8.0  # expected guesses of a round for it to count
_MANY = 30.0  # expected guesses of every round if coordinates are split
_FINALISTS = 2  # jumps whose rounds are played
_PLAYED = 5  # rounds that are played to estimate power


def best_rounds(
    distribution: GuessDistribution, *, coordinates: int, delta: float, alpha: float
) -> RoundsForecast | None:
    """Return the forecast of the rules in rounds with the largest mean bound.

    Args:
        distribution: The distribution of the guesses' confidence.
        coordinates: Coordinates of the audit.
        delta: Delta of the bound.
        alpha: Significance level.

    Returns:
        None if there are too few coordinates for rounds to show anything.

    Example:
        >>> from dpaudit.dpsgd.planning.guess_distribution import guess_distribution
        >>> from dpaudit.dpsgd.planning.training import TrainingSetup
        >>> training = TrainingSetup(steps=1, rate=1.0, noise=2.0)
        >>> distribution = guess_distribution(
        ...     training, per_coordinate=6, coordinates=20_000, seed=1
        ... )
        >>> best = best_rounds(distribution, coordinates=1000, delta=1e-5, alpha=0.05)
        >>> 0.7 < best.expected().mean < 1.0
        True
    """
    table = table_for(distribution, coordinates)
    best = best_by_jump(table, coordinates=coordinates, delta=delta, alpha=alpha)
    # Playing separates similar jumps: small ones lose more with few guesses.
    played = [
        as_played(distribution, table, tried).started()
        for tried in best[:_FINALISTS]
        if tried.typical > 0
    ]
    return max(played, key=lambda tried: tried.expected().mean, default=None)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CatchingRounds:
    """Rules in rounds against a claim that a training run violates.

    Attributes:
        setting: The audit.
        epsilon: Epsilon of the claim to refute.
        beyond: By how many deviations played evidence exceeds the normal approximation;
            similar for similar faults.
    """

    setting: RoundsSetting
    epsilon: float
    beyond: float = 0.0

    def margin(self, distribution: GuessDistribution) -> float:
        """Return by how many deviations evidence exceeds the threshold to refute."""
        return self.normal_margin(distribution) + self.beyond

    def normal_margin(self, distribution: GuessDistribution) -> float:
        """Return the margin by the normal approximation alone."""
        table = RoundsTable(distribution, epsilons=np.array([self.epsilon]))
        return float(forecast_rounds(table, self.setting).margins[0])

    def played(self, distribution: GuessDistribution, rounds: int) -> "CatchingRounds":
        """Return the rules with a correction from playing so many rounds."""
        margin = played_margin(
            distribution, self.setting, epsilon=self.epsilon, most=rounds
        )
        return replace(self, beyond=margin - self.normal_margin(distribution))


def catching_rounds(
    distribution: GuessDistribution, *, coordinates: int, claim: ApproxDP, alpha: float
) -> CatchingRounds | None:
    """Return the rules in rounds with the most power to refute a claim.

    Args:
        distribution: The guess distribution of a training run that violates the claim.
        coordinates: Coordinates of the audit.
        claim: The claim to refute.
        alpha: Significance level.

    Returns:
        None if there are too few coordinates for rounds to show anything.
    """
    at = claim.epsilon
    table = RoundsTable(distribution, epsilons=np.array([at]))
    forecasts = [
        forecast_rounds(table, tried)
        for groups in _GROUPS
        for tried in _tried(table, coordinates, claim.delta, alpha, groups, at)
    ]
    if not forecasts:
        return None
    best = max(forecasts, key=lambda each: float(each.margins[0]))
    return CatchingRounds(setting=best.setting, epsilon=at).played(
        distribution, _PLAYED
    )


def forecast_played(
    distribution: GuessDistribution, setting: RoundsSetting, *, plays: int = QUICKLY
) -> RoundsForecast:
    """Return the forecast of given rules, with the best search start."""
    table = table_for(distribution, setting.coordinates)
    plain = forecast_rounds(table, setting)
    return as_played(distribution, table, plain, plays=plays).started()


def best_by_jump(
    table: RoundsTable, *, coordinates: int, delta: float, alpha: float
) -> list[RoundsForecast]:
    """Return the best forecast for each jump, the best one first."""
    best: dict[float | None, RoundsForecast] = {}
    at = float(table.epsilons[_EPSILONS // 3])
    for groups in _GROUPS:
        for setting in _tried(table, coordinates, delta, alpha, groups, at):
            tried, jump = forecast_rounds(table, setting), setting.rules.max_jump
            if jump not in best or tried.typical > best[jump].typical:
                best[jump] = tried
        at = max([at, *(tried.typical for tried in best.values())])
    return sorted(best.values(), key=lambda tried: -tried.typical)


def table_for(distribution: GuessDistribution, coordinates: int) -> RoundsTable:
    """Return the table up to the epsilon where hardly any guesses are left."""
    ranked = np.sort(distribution.confidence.max(axis=0))
    least = max(0, int(distribution.coordinates * (1 - _FEWEST / coordinates)) - 1)
    top = min(float(ranked[least]) + 0.01, _TOP)
    return RoundsTable(distribution, epsilons=np.linspace(0.0, top, _EPSILONS))


def _tried(
    table: RoundsTable,
    coordinates: int,
    delta: float,
    alpha: float,
    groups: int,
    at: float,
) -> Iterator[RoundsSetting]:
    """Yield audits with this number of groups; none if they are too small."""
    if groups > 1 and not _splits_well(table, coordinates / groups, at):
        return
    for noise, jump in product(_NOISES, _JUMPS):
        rules = _planned(table, coordinates, groups, jump, noise, at)
        if rules is not None:
            yield RoundsSetting(
                rules=rules,
                coordinates=coordinates,
                per_coordinate=len(table.size),
                delta=delta,
                alpha=alpha,
            )


def _planned(
    table: RoundsTable,
    coordinates: int,
    groups: int,
    jump: float,
    noise: float,
    at: float,
) -> AdaptiveRounds | None:
    """Return rules whose weights are best for a bound of about ``at``."""
    nearest = int(np.argmin(np.abs(table.epsilons - at)))
    n, size = coordinates / groups, table.size[:, nearest]
    size = np.where(n * table.share[:, nearest, np.newaxis] < _FEWEST, 0.0, size)
    whole = np.sqrt(coordinates * np.square(size).sum(axis=0))
    allowed = np.flatnonzero(CAPS * sqrt(1 - noise) <= jump / TAIL_ROOM * whole)
    if not len(allowed):
        return None
    weights = size[:, allowed[-1]]
    weights = np.round(weights / weights.max(), 3)
    return AdaptiveRounds(
        round_weights=tuple(weights.tolist()) * groups,
        max_jump=jump,
        randomness_share=noise,
    )


def _splits_well(table: RoundsTable, n: float, at: float) -> bool:
    nearest = int(np.argmin(np.abs(table.epsilons - at)))
    return bool(n * table.share[:, nearest].min() >= _MANY)
