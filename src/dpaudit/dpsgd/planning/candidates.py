"""The audits that a plan chooses from, with the fault or the bound of each.

Audits are meant to detect faults, so by default a candidate's rules are those that
detect the smallest fault (noise too small by a factor) and, among rules that detect
about the same, those with the largest mean bound for correct training. The other
purpose is that mean bound alone. It favours few, confident guesses: against a claim of
8 so few that no fault would ever be detected.

For each number of canaries per coordinate two kinds of rules are tried, all guesses at
once and rounds. Small numbers come first, and larger ones until one is clearly worse.
If delta costs more than canaries are worth, not all coordinates are used: the
distribution of guesses does not depend on their number.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from math import inf
from typing import Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.dpsgd.planning.expected_one_run import (
    OneRunForecast,
    best_one_run,
    exact_bounds,
    forecast_one_run,
    least_right,
    most_confident_tried,
)
from dpaudit.dpsgd.planning.forecasts import (
    LARGEST_FAULT,
    MOST_IN_ROUNDS,
    faulty,
    glance,
    is_caught,
    least_factor,
    least_smooth,
    margin_of,
)
from dpaudit.dpsgd.planning.guess_distribution import GuessDistribution
from dpaudit.dpsgd.planning.rounds_search import (
    best_rounds,
    catching_rounds,
    forecast_played,
)
from dpaudit.dpsgd.planning.training import TrainingSetup
from dpaudit.game.rules import AdaptiveRounds, OneRun
from dpaudit.privacy.guarantees import ApproxDP, Guarantee

__all__ = ["SIZES", "Candidate", "Purpose", "Wanted", "best_of", "most_shown", "tried"]

SIZES: Final = (1, 2, 4, 8, 16, 32)
_BETWEEN = {2: (3,), 4: (3, 6), 8: (6, 12), 16: (12, 24), 32: (24,)}
_FEW = 1000  # coordinates that are used whatever delta costs
_POINTS = 48  # of a curve
_WORSE = 0.97  # times the best bound: below it the peak is passed
_SMALLER = 0.99  # times the best fault: below it the search continues
_LITTLE_MORE = 1.04
_MANY = 8  # canaries per coordinate; more gained at most two percent in trials

PlannableRules: TypeAlias = OneRun | AdaptiveRounds


class Purpose(StrEnum):
    """What an audit is planned for."""

    FAULTS = "faults"
    BOUND = "bound"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The requirements for a plan.

    Attributes:
        training: The training run.
        coordinates: The number of coordinates that can hold canaries.
        claim: The claim, at one point.
        tested: What one-run guesses are compared with: the claim, or a curve.
        alpha: Significance level.
        purpose: What the audit is for.
        in_rounds: Whether rounds may be played.
    """

    training: TrainingSetup
    coordinates: int
    claim: ApproxDP
    tested: Guarantee
    alpha: float
    purpose: Purpose
    in_rounds: bool


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An audit that could be made.

    Attributes:
        per_coordinate: Canaries at each coordinate.
        coordinates: The number of coordinates that hold them.
        rules: The rules of the audit.
        bound: The mean bound for correct training.
        fault: The smallest factor on the noise that is detected with probability 0.9;
            None if not even 32 is, if others detect less, or for another purpose.
    """

    per_coordinate: int
    coordinates: int
    rules: PlannableRules
    bound: float
    fault: float | None = None


def best_of(candidates: Sequence[Candidate], purpose: Purpose) -> Candidate:
    """Return the best candidate for a purpose; the larger bound decides ties."""
    if purpose is Purpose.BOUND:
        return max(candidates, key=lambda each: each.bound)
    return min(candidates, key=lambda each: (_fault(each), -each.bound))


def most_shown(
    training: TrainingSetup, *, coordinates: int, delta: float, alpha: float
) -> Candidate:
    """Return the candidate with the largest mean bound for correct training."""
    claim = ApproxDP(epsilon=0.0, delta=delta)  # only its delta is used
    wanted = Wanted(
        training=training,
        coordinates=coordinates,
        claim=claim,
        tested=claim,
        alpha=alpha,
        purpose=Purpose.BOUND,
        in_rounds=True,
    )
    return best_of(tried(wanted, SIZES), Purpose.BOUND)


def tried(wanted: Wanted, sizes: Sequence[int]) -> tuple[Candidate, ...]:
    """Return the candidates, for rising numbers of canaries per coordinate.

    The search stops at the first number that is clearly worse than the best. For the
    mean bound, which rises more slowly, numbers around the best are tried as well.
    """
    found: list[Candidate] = []

    def try_size(s: int) -> bool:
        """Return whether larger numbers are not worth trying."""
        best = best_of(found, wanted.purpose) if found else None
        near = best and best.fault
        here = [each for each in _of_size(wanted, s, near) if each]
        found.extend(here)
        return best is not None and _is_enough(
            best_of(here, wanted.purpose), best, wanted.purpose
        )

    for s in sizes:
        if try_size(s):
            break
    if len(sizes) > 1 and wanted.purpose is Purpose.BOUND:
        for s in _BETWEEN.get(best_of(found, wanted.purpose).per_coordinate, ()):
            try_size(s)
    return tuple(sorted(found, key=lambda each: each.per_coordinate))


def _of_size(wanted: Wanted, s: int, near: float | None) -> Iterator[Candidate | None]:
    """Yield each kind of rules' best candidate; ``near`` was already detected."""
    rounds = wanted.in_rounds and wanted.coordinates <= MOST_IN_ROUNDS
    if wanted.purpose is Purpose.BOUND:
        yield _shown_at_once(wanted, s)
        if rounds:
            yield _shown_in_rounds(wanted, s)
    else:
        once = _caught_at_once(wanted, s, near)
        yield once
        if rounds:
            yield _caught_in_rounds(wanted, s, once.fault or near or LARGEST_FAULT)


def _fault(candidate: Candidate) -> float:
    return inf if candidate.fault is None else candidate.fault


def _is_enough(now: Candidate, best: Candidate, purpose: Purpose) -> bool:
    if purpose is Purpose.BOUND:
        return now.bound < _WORSE * best.bound
    if now.per_coordinate >= _MANY:
        return True
    if best.fault is None:  # more canaries may detect what few cannot
        return False
    return _fault(now) > _SMALLER * best.fault


def _numbers(wanted: Wanted, s: int) -> list[int]:
    """Return numbers of coordinates: all, and fewer while delta is expensive."""
    numbers, delta = [wanted.coordinates], wanted.claim.delta
    while numbers[-1] * s * delta > wanted.alpha and numbers[-1] // 4 >= _FEW:
        numbers.append(numbers[-1] // 4)
    return numbers


# For the mean bound.


def _shown_at_once(wanted: Wanted, s: int) -> Candidate:
    distribution = glance(wanted.training, s, wanted.coordinates)
    delta, alpha = wanted.claim.delta, wanted.alpha
    found = [
        _at_once(
            best_one_run(distribution, coordinates=d, delta=delta, alpha=alpha),
            s,
            wanted,
        )
        for d in _numbers(wanted, s)
    ]
    return max(found, key=lambda each: each.bound)


def _shown_in_rounds(wanted: Wanted, s: int) -> Candidate | None:
    d = wanted.coordinates
    best = best_rounds(
        glance(wanted.training, s, wanted.coordinates),
        coordinates=d,
        delta=wanted.claim.delta,
        alpha=wanted.alpha,
    )
    if best is None:
        return None
    bound = best.expected().mean
    return Candidate(per_coordinate=s, coordinates=d, rules=best.rules, bound=bound)


def _at_once(forecast: OneRunForecast, s: int, wanted: Wanted) -> Candidate:
    expected = forecast.expected(delta=wanted.claim.delta, alpha=wanted.alpha)
    return Candidate(
        per_coordinate=s,
        coordinates=forecast.canaries // s,
        rules=forecast.rules,
        bound=expected.mean,
    )


# For faults.


def _caught_at_once(wanted: Wanted, s: int, near: float | None) -> Candidate:
    numbers = _numbers(wanted, s)

    def margin(factor: float) -> float:
        distribution = faulty(wanted.training, s, wanted.coordinates, factor)
        return margin_of(
            max(_probabilities(distribution, d, wanted)[1].max() for d in numbers)
        )

    possible = any(_refutes_if_all_right(wanted, d * s) for d in numbers)
    most = near or LARGEST_FAULT
    fault = least_factor(margin, near=near or 2.0, most=most) if possible else None
    if fault is None:  # nothing is detected: maximize the bound
        return _shown_at_once(wanted, s)
    distribution = faulty(wanted.training, s, wanted.coordinates, fault)
    able = []
    for d in numbers:
        numbers_guessed, powers = _probabilities(distribution, d, wanted)
        able += [(d, int(a)) for a in numbers_guessed[[is_caught(p) for p in powers]]]
    return replace(_most_shown_of(wanted, s, able), fault=fault)


def _refutes_if_all_right(wanted: Wanted, canaries: int) -> bool:
    (least,) = _least_right(wanted, canaries, (canaries,))
    return bool(least <= canaries)


@lru_cache(maxsize=64)  # for every factor the same
def _least_right(
    wanted: Wanted, canaries: int, guesses: tuple[int, ...]
) -> NDArray[np.int64]:
    """Return how many correct guesses refute, for each number of guesses."""
    epsilons, deltas = wanted.tested.points()
    some = slice(None, None, -(-len(epsilons) // _POINTS))
    return least_right(
        canaries,
        guesses,
        epsilons=epsilons[some],
        deltas=deltas[some],
        alpha=wanted.alpha,
    )


def _most_shown_of(wanted: Wanted, s: int, able: list[tuple[int, int]]) -> Candidate:
    """Return the numbers of coordinates and guessed ones with the largest bound."""
    distribution, delta = (
        glance(wanted.training, s, wanted.coordinates),
        wanted.claim.delta,
    )
    forecasts = [forecast_one_run(distribution, d, np.array([a]))[0] for d, a in able]
    typical = [
        float(
            exact_bounds(
                each.canaries,
                each.guesses,
                each.right,
                delta=delta,
                alpha=wanted.alpha,
            )
        )
        for each in forecasts
    ]
    return _at_once(forecasts[int(np.argmax(typical))], s, wanted)


def _probabilities(
    distribution: GuessDistribution, coordinates: int, wanted: Wanted
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return numbers of most confident coordinates, and the power of each."""
    s, numbers = (
        distribution.per_coordinate,
        most_confident_tried(distribution, coordinates),
    )
    least = _least_right(wanted, coordinates * s, tuple((numbers * s).tolist()))
    probabilities = [
        1 - float(forecast.at_most(right - 1)) if right <= forecast.guesses else 0.0
        for forecast, right in zip(
            forecast_one_run(distribution, coordinates, numbers), least, strict=True
        )
    ]
    return numbers, np.array(probabilities)


def _caught_in_rounds(wanted: Wanted, s: int, near: float) -> Candidate | None:
    """Return the best rules in rounds, if they detect faults of about ``near``."""
    d, near = wanted.coordinates, min(_LITTLE_MORE * near, LARGEST_FAULT)
    if not _refutes_if_all_right(wanted, d * s):
        return None
    best = catching_rounds(
        faulty(wanted.training, s, d, near),
        coordinates=d,
        claim=wanted.claim,
        alpha=wanted.alpha,
    )
    if best is None:
        return None
    fault = least_smooth(
        lambda factor: best.margin(faulty(wanted.training, s, d, factor)), near=near
    )
    if fault is None:
        return None
    correct = forecast_played(glance(wanted.training, s, d), best.setting)
    return Candidate(
        per_coordinate=s,
        coordinates=d,
        rules=correct.rules,
        bound=correct.expected().mean,
        fault=fault,
    )
