"""Our rules of tier A, each as one question: does it reject a claim that is true?

A rule fixes everything that its bound wants fixed before the run: how many guesses,
which classes, which rounds. ``rejects`` answers for many audits at once. A lower bound
on epsilon above the truth is such a rejection: bounds on counts and weights reject one
nested family of events, and the others report the last point of a grid before the first
that is not rejected. So rejecting the true claim is all that there is to count.

Decisions are the bounds' own. The rules in this file read a number off the guesses, a
count or a weight, and ask their bound once for the least that it rejects.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from math import log
from typing import Protocol, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.bounds.bound import Bound
from dpaudit.bounds.readings import Counts, Weighted
from dpaudit.bounds.weighted import WeightedBound
from dpaudit.privacy.guarantees import ApproxDP
from dpaudit.stats.binomial import binomial_distribution
from dpaudit.stats.search import least_yes
from dpaudit_lab.calibration.draws import Draws
from dpaudit_lab.calibration.mixtures import Mixture

__all__ = ["CountRule", "Rule", "WeightedRule", "least_rejected", "score_law"]

_NEGLIGIBLE = 1e-25  # the masses left out are fewer than there are canaries


class Rule(Protocol):
    """Decides whether audits reject a claim."""

    def __hash__(self) -> int: ...

    @property
    def name(self) -> str:
        """What the table calls it."""
        ...

    def rejects(
        self, draws: Draws, claim: ApproxDP, alpha: float, rng: np.random.Generator
    ) -> NDArray[np.bool_]:
        """Return for each audit whether the claim is rejected.

        Args:
            draws: The audits.
            claim: What the mechanism satisfies.
            alpha: The level promised.
            rng: For rules that draw committed randomness of their own.
        """
        ...


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CountRule:
    """A bound on the count of right ones among a fixed share of guesses.

    Attributes:
        name: What the table calls it.
        bound: The bound; its p-value must fall as the count rises.
        share: The surest one in ``share`` guesses are counted.
    """

    name: str
    bound: Bound[Counts]
    share: int

    def guesses(self, canaries: int) -> int:
        """Return how many guesses are counted."""
        return canaries // self.share

    def counts(self, canaries: int, correct: int) -> Counts:
        """Return what the bound reads."""
        return Counts(
            canaries=canaries,
            guesses=self.guesses(canaries),
            correct=correct,
        )

    def critical(self, canaries: int, claim: ApproxDP, alpha: float) -> int:
        """Return the least count that rejects; one more than guesses if none does."""
        return _critical_count(self, canaries, claim, alpha)

    def rejects(
        self, draws: Draws, claim: ApproxDP, alpha: float, rng: np.random.Generator
    ) -> NDArray[np.bool_]:
        """Count the surest guesses that were made and right."""
        del rng
        canaries = draws.bits.shape[1]
        correct = draws.count(self.guesses(canaries))
        return np.asarray(correct >= self.critical(canaries, claim, alpha))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedRule:
    """A bound on weights, with classes by rank whose sizes are shares of all guesses.

    Attributes:
        name: What the table calls it.
        bound: The bound.
        weights: The weight of each class, the surest first; the last is 1.
        shares: One in so many canaries falls into each class.
    """

    name: str = "weighted, 4 classes"
    bound: Bound[Weighted] = field(default_factory=WeightedBound)
    weights: tuple[int, ...] = (4, 3, 2, 1)
    shares: tuple[int, ...] = (40, 20, 10, 5)

    def sizes(self, canaries: int) -> tuple[int, ...]:
        """Return how many guesses each class holds."""
        return tuple(canaries // share for share in self.shares)

    def critical(self, canaries: int, claim: ApproxDP, alpha: float) -> int:
        """Return the least weight of right guesses that rejects."""
        return _critical_score(self, canaries, claim, alpha)

    def chance(self, null: Mixture, *, canaries: int, score: int) -> float:
        """Return the exact chance of so much weight or more."""
        sizes = self.sizes(canaries)
        chances, log_odds = null.components()
        tails = [
            score_law(self.weights, sizes, float(odds))[score:].sum()
            for odds in log_odds
        ]
        return float(chances @ np.array(tails))

    def rejects(
        self, draws: Draws, claim: ApproxDP, alpha: float, rng: np.random.Generator
    ) -> NDArray[np.bool_]:
        """Weigh the right guesses."""
        del rng
        canaries = draws.bits.shape[1]
        values = np.repeat(self.weights, self.sizes(canaries))
        score = draws.most_confident_right(len(values)) @ values
        return np.asarray(score >= self.critical(canaries, claim, alpha))


def least_rejected(rejects: Callable[[int], bool], most: int) -> int:
    """Return the least count from 1 on that rejects; one more than most if none does.

    Example:
        >>> least_rejected(lambda v: v >= 7, 10), least_rejected(lambda v: False, 10)
        (7, 11)
    """
    found = least_yes(rejects, 1, most)  # no right guess never rejects
    return most + 1 if found is None else found


def score_law(
    weights: tuple[int, ...], sizes: tuple[int, ...], log_odds: float
) -> NDArray[np.float64]:
    """Return the law of the weight of right guesses, if each is an independent coin."""
    start, law = 0, np.ones(1)
    for weight, size in zip(weights, sizes, strict=True):
        masses = binomial_distribution(size, log_odds)
        first, last = np.flatnonzero(masses > _NEGLIGIBLE)[[0, -1]]
        spaced = np.zeros(weight * (last - first) + 1)
        spaced[::weight] = masses[first : last + 1]
        start, law = start + weight * int(first), np.convolve(law, spaced)
    most = sum(w * n for w, n in zip(weights, sizes, strict=True))
    return np.pad(law, (start, most + 1 - start - len(law)))


@lru_cache(maxsize=4096)
def _critical_count(
    rule: CountRule, canaries: int, claim: ApproxDP, alpha: float
) -> int:
    def rejects(correct: int) -> bool:
        counts = rule.counts(canaries, correct)
        found = rule.bound.log_p_value(counts, epsilon=claim.epsilon, delta=claim.delta)
        return found <= log(alpha)

    return least_rejected(rejects, rule.guesses(canaries))


@lru_cache(maxsize=4096)
def _critical_score(
    rule: WeightedRule, canaries: int, claim: ApproxDP, alpha: float
) -> int:
    sizes = rule.sizes(canaries)

    def rejects(score: int) -> bool:
        reading = Weighted(
            canaries=canaries,
            weights=rule.weights,
            guesses=sizes,
            correct=_spread(score, rule.weights, sizes),
            committed=True,
        )
        found = rule.bound.log_p_value(
            reading, epsilon=claim.epsilon, delta=claim.delta
        )
        return found <= log(alpha)

    most = sum(w * n for w, n in zip(rule.weights, sizes, strict=True))
    return least_rejected(rejects, most)


def _spread(
    score: int, weights: tuple[int, ...], sizes: tuple[int, ...]
) -> tuple[int, ...]:
    """Return numbers of right guesses that weigh ``score``, heavy classes first."""
    correct = []
    for weight, size in zip(weights, sizes, strict=True):
        correct.append(min(size, score // weight))
        score -= correct[-1] * weight
    return tuple(correct)
