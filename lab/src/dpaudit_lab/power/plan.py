"""How many guesses to count, decided before anything is drawn.

The law of the number of right ones among the ``k`` surest guesses is known
(``law``), so the mean of any bound that counts them is known, and the best ``k``
is where it is largest. It rises to one peak and falls from there, which the search
relies on; the tests try every ``k``.

For weighted guesses the ``k`` surest fall into three classes: a quarter, a quarter and
a half, with weights 4, 2 and 1. By Neyman and Pearson a guess should weigh as much as
its log-odds exceed the epsilon that is tested, and near the best ``k`` that comes to
about this ratio for all numbers of canaries tried here. To choose ``k``, the classes'
counts are taken to be independent binomials with the right means. Where that promises
no more than counting, nothing is weighted.

Plans only choose. The bound of an audit is valid whatever was planned.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from math import floor
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit import _validate
from dpaudit.bounds.exact import ExactBound
from dpaudit.bounds.readings import Counts, Weighted
from dpaudit.bounds.steinke import SteinkeBound
from dpaudit.bounds.weighted import WeightedBound
from dpaudit.stats.search import least_yes
from dpaudit_lab.power.law import right_among, right_chances
from dpaudit_lab.power.task import Task
from dpaudit_lab.sweeps.store import Setting

__all__ = [
    "WEIGHTS",
    "Guesses",
    "best_guesses",
    "class_sizes",
    "expected_count_bound",
    "expected_weighted",
    "guesses_of",
    "planned",
    "planned_setting",
]

WEIGHTS = (4, 2, 1)

_NEGLIGIBLE = 1e-9
_NOTHING = 1e-3  # a bound that shows nothing
_COUNT_KNOTS, _SCORE_KNOTS = 24, 9  # for how many counts a bound is computed

_CountBound: TypeAlias = ExactBound | SteinkeBound


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Guesses:
    """How many of the surest guesses each method counts.

    Attributes:
        exact: For the exact bound.
        steinke: For the published one.
        weighted: For weighted guesses, all classes together; None if they are not
            expected to show more than counting does.
    """

    exact: int
    steinke: int
    weighted: int | None

    def __post_init__(self) -> None:
        _validate.whole_number("exact", self.exact, least=1)
        _validate.whole_number("steinke", self.steinke, least=1)
        if self.weighted is not None:
            _validate.whole_number("weighted", self.weighted, least=1)


def planned(task: Task) -> Guesses:
    """Return the best number of guesses for each method that wants one.

    Example:
        >>> planned(Task(canaries=20, mu=3.0))
        Guesses(exact=16, steinke=16, weighted=16)
    """
    n = task.canaries
    exact = _best(ExactBound(), task)
    best = expected_count_bound(ExactBound(), task, exact)
    # Multiples of four, so that class sizes are the same shares for every k.
    weighted = 4 * best_guesses(
        lambda j: expected_weighted(task, 4 * j),
        least=max(1, exact // 8),
        most=max(1, min(2 * exact, n // 4)),
    )
    return Guesses(
        exact=exact,
        steinke=_best(SteinkeBound(), task),
        weighted=weighted if expected_weighted(task, weighted) > best else None,
    )


def _best(bound: _CountBound, task: Task) -> int:
    return best_guesses(
        lambda k: expected_count_bound(bound, task, k), most=task.canaries
    )


def best_guesses(expected: Callable[[int], float], *, most: int, least: int = 1) -> int:
    """Return which of ``least``, ..., ``most`` a function with one peak is largest at.

    It is never below 0, and on either side of the peak it may be next to 0 for a while:
    less than a thousandth says nothing, so what goes up and down there is no peak.

    Example:
        >>> best_guesses(lambda k: max(0, 50 - abs(k - 77)), most=1000)
        77
    """
    known = cache(lambda k: max(0.0, expected(k) - _NOTHING))
    tried = [least]
    while tried[-1] < most and known(tried[-1]) >= known(tried[-2:][0]):
        tried.append(min(2 * tried[-1], most))
    low, middle, high = tried[-3:][0], tried[-2:][0], tried[-1]

    def falls(k: int) -> bool:
        return known(k) >= known(k + 1) and (known(k) > 0 or k >= middle)

    found = least_yes(falls, low, high - 1) if low < high else low
    return high if found is None else found


def expected_count_bound(bound: _CountBound, task: Task, guesses: int) -> float:
    """Return the mean of a bound that counts the right ones of the surest guesses.

    Of more than 24 counts that may occur, 24 are computed. In between, the bound is the
    one without delta (Clopper and Pearson), less what delta takes, on chords.

    Example:
        >>> task = Task(canaries=50, mu=100.0)
        >>> round(expected_count_bound(ExactBound(), task, 50), 3)
        2.785
    """
    law = right_among(task, guesses)
    seen = np.flatnonzero(law > _NEGLIGIBLE)
    knots = _some(seen, _COUNT_KNOTS)

    def pure(correct: NDArray[np.int64]) -> NDArray[np.float64]:
        right = np.maximum(correct, 0.5)  # none right bounds nothing, and is finite
        least = special.betaincinv(right, guesses - right + 1, task.alpha)
        return np.asarray(special.logit(least))

    def found(correct: int) -> float:
        counts = Counts(canaries=task.canaries, guesses=guesses, correct=correct)
        lower = bound.epsilon_lower(counts, delta=task.delta, alpha=task.alpha)
        return lower.epsilon_lower

    taken = pure(knots) - [found(int(v)) for v in knots]
    bounds = np.maximum(0.0, pure(seen) - np.interp(seen, knots, taken))
    return float(law[seen] @ bounds)


def class_sizes(guesses: int) -> tuple[int, int, int]:
    """Return how many of the surest guesses fall into each class, the surest first.

    Example:
        >>> class_sizes(100)
        (25, 25, 50)
    """
    quarter, half = guesses // 4, guesses // 2
    return quarter, half - quarter, guesses - half


def expected_weighted(task: Task, guesses: int) -> float:
    """Return about the mean of the weighted bound on the surest guesses.

    Example:
        >>> round(expected_weighted(Task(canaries=50, mu=100.0), 48), 2)
        2.74
    """
    sizes = class_sizes(guesses)
    law = _score_law(sizes, _class_means(task, sizes))
    seen = np.flatnonzero(law > _NEGLIGIBLE)
    knots = _some(seen, _SCORE_KNOTS)

    def found(score: int) -> float:
        reading = Weighted(
            canaries=task.canaries,
            weights=tuple(map(float, WEIGHTS)),
            guesses=sizes,
            correct=_with_score(score, sizes),
            committed=True,
        )
        lower = WeightedBound().epsilon_lower(
            reading, delta=task.delta, alpha=task.alpha
        )
        return lower.epsilon_lower

    bounds = np.interp(seen, knots, [found(int(score)) for score in knots])
    return float(law[seen] @ bounds)


def _some(seen: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return some numbers of a rising list, its ends among them."""
    at = np.unique(np.linspace(0, len(seen) - 1, most).round().astype(np.int64))
    return seen[at]


def _class_means(task: Task, sizes: tuple[int, ...]) -> list[float]:
    """Return the mean share of right guesses in each class."""
    ends = np.cumsum(sizes).tolist()
    right = [k * float(np.dot(*right_chances(task, k))) for k in ends]
    shares = np.diff([0.0, *right]) / np.maximum(sizes, 1)
    return [min(1.0, float(share)) for share in shares]


def _score_law(sizes: tuple[int, ...], shares: list[float]) -> NDArray[np.float64]:
    """Return the law of the weight of right guesses, classes being independent."""
    law = np.ones(1)
    for weight, size, share in zip(WEIGHTS, sizes, shares, strict=True):
        v = np.arange(size + 1)
        log_ways = -np.log(size + 1) - special.betaln(size - v + 1, v + 1)
        spaced = np.zeros(weight * size + 1)
        spaced[::weight] = np.exp(
            log_ways + special.xlogy(v, share) + special.xlog1py(size - v, -share)
        )
        law = np.convolve(law, spaced)
    return law


def _with_score(score: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return counts of right guesses with a score; the bound asks for no more."""
    found = []
    for weight, size in zip(WEIGHTS, sizes, strict=True):
        # What is left for the lighter classes must fit into them.
        found.append(min(size, floor(score / weight)))
        score -= weight * found[-1]
    return tuple(found)


def planned_setting(task: Task, guesses: Guesses) -> dict[str, int | float | None]:
    """Return the setting of a task with its plan."""
    counted = {f"{key}_guesses": number for key, number in asdict(guesses).items()}
    return {**asdict(task), **counted}


def guesses_of(setting: Setting) -> Guesses:
    """Return the plan of a setting."""
    weighted = setting["weighted_guesses"]
    return Guesses(
        exact=int(setting["exact_guesses"] or 0),
        steinke=int(setting["steinke_guesses"] or 0),
        weighted=None if weighted is None else int(weighted),
    )
