"""Our rules of tier A, each as one question: does it reject a claim that is true?

A rule fixes everything that its bound wants fixed before the run: how many guesses,
which classes, which rounds. ``rejects`` answers for many audits at once. A lower bound
on epsilon above the truth is such a rejection: bounds on counts and weights reject one
nested family of events, and the others report the last point of a grid before the first
that is not rejected. So rejecting the true claim is all that there is to count.

Decisions are the bounds' own. Rules on counts and weights ask their bound once for the
least count that it rejects. The others ask it for every audit but those that look
harmless to a cheap test with several times the level: wide enough that a bound which
understates its p-values is still asked, and found out.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import log
from typing import Protocol, TypeVar, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.bounds.adaptive import Adaptive, coupling_price
from dpaudit.bounds.bets import Betting
from dpaudit.bounds.bound import Bound
from dpaudit.bounds.exact import Exact
from dpaudit.bounds.pure import Pure
from dpaudit.bounds.ranked import RankedLooks
from dpaudit.bounds.reads import Bets, Counts, Ranked, Rounds, Weighted
from dpaudit.bounds.rounds import StoufferRounds
from dpaudit.bounds.steinke import Steinke
from dpaudit.bounds.weighted import WeightedGuesses
from dpaudit.experiments.nulls import (
    Draws,
    Mixture,
    binomial_law,
)
from dpaudit.privacy.guarantees import ApproxDP
from dpaudit.theory.stopping import surprising_counts

__all__ = [
    "EXACT_ON_ALL",
    "OURS",
    "BettingRule",
    "CountRule",
    "RankedRule",
    "RoundsRule",
    "Rule",
    "WeightedRule",
    "score_law",
]

R = TypeVar("R")

_HARMLESS = 4.0  # times alpha: the bound is asked if a cheap test stays below
_NEGLIGIBLE = 1e-25  # the masses left out are fewer than there are canaries


class Rule(Protocol):
    """Decides whether audits reject a claim."""

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

    def critical(self, canaries: int, claim: ApproxDP, alpha: float) -> int:
        """Return the least count that rejects; one more than guesses if none does."""
        return _critical_count(self, canaries, claim, alpha)

    def rejects(
        self, draws: Draws, claim: ApproxDP, alpha: float, rng: np.random.Generator
    ) -> NDArray[np.bool_]:
        """Count the surest guesses that were made and right."""
        del rng
        canaries = draws.bits.shape[1]
        order = _surest_first(draws.log_odds)[:, : self.guesses(canaries)]
        made = np.arange(canaries) < draws.made[:, np.newaxis]
        correct = np.take_along_axis(draws.right & made, order, axis=1).sum(axis=1)
        return np.asarray(correct >= self.critical(canaries, claim, alpha))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedRule:
    """The weighted bound, with classes by rank whose sizes are shares of all guesses.

    Attributes:
        name: What the table calls it.
        weights: The weight of each class, the surest first; the last is 1.
        shares: One in so many canaries falls into each class.
    """

    name: str = "weighted, 4 classes"
    weights: tuple[int, ...] = (4, 3, 2, 1)
    shares: tuple[int, ...] = (40, 20, 10, 5)

    def sizes(self, canaries: int) -> tuple[int, ...]:
        """Return how many guesses each class holds."""
        return tuple(canaries // share for share in self.shares)

    def critical(self, canaries: int, claim: ApproxDP, alpha: float) -> int:
        """Return the least weight of right guesses that rejects."""
        sizes = self.sizes(canaries)

        def rejects(score: int) -> bool:
            reading = Weighted(
                canaries=canaries,
                weights=self.weights,
                guesses=sizes,
                correct=_spread(score, self.weights, sizes),
                committed=True,
            )
            found = WeightedGuesses().log_p_value(
                reading, epsilon=claim.epsilon, delta=claim.delta
            )
            return found <= log(alpha)

        most = sum(w * n for w, n in zip(self.weights, sizes, strict=True))
        low, high = 0, most + 1  # no weight never rejects, and so much cannot be
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if rejects(middle) else (middle, high)
        return high

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
        order = _surest_first(draws.log_odds)[:, : len(values)]
        score = np.take_along_axis(draws.right, order, axis=1) @ values
        return np.asarray(score >= self.critical(canaries, claim, alpha))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RankedRule:
    """The bound that looks at growing numbers of the surest guesses."""

    name: str = "ranked looks"

    def rejects(
        self, draws: Draws, claim: ApproxDP, alpha: float, rng: np.random.Generator
    ) -> NDArray[np.bool_]:
        """Ask the bound wherever some number of surest guesses is surprising."""
        del rng
        canaries = draws.bits.shape[1]
        ordered = np.take_along_axis(draws.right, _surest_first(draws.log_odds), axis=1)
        # A p-value must be at least the binomial tail at its best look.
        counts = np.cumsum(ordered, axis=1, dtype=np.int64)
        level = _HARMLESS * alpha
        surprising = counts >= surprising_counts(canaries, claim.epsilon, level)
        found = np.asarray(surprising.any(axis=1))
        for audit in np.flatnonzero(found):
            found[audit] = _rejects(
                RankedLooks(level=alpha),
                Ranked(canaries=canaries, right=ordered[audit]),
                claim,
                alpha,
            )
        return np.asarray(found)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsRule:
    """The bound for rounds, each an equal part of the canaries with classes by rank.

    A round before whose start the guesser stopped is empty. The classes state log-odds
    that exceed the claim by their weights.

    Attributes:
        name: What the table calls it.
        rounds: How many rounds.
        weights: The weight of each class, the surest first.
        shares: One in so many canaries of a round falls into each class.
    """

    name: str = "rounds, 4 of 2 classes"
    rounds: int = 4
    weights: tuple[int, ...] = (2, 1)
    shares: tuple[int, ...] = (10, 2)

    def rejects(
        self, draws: Draws, claim: ApproxDP, alpha: float, rng: np.random.Generator
    ) -> NDArray[np.bool_]:
        """Ask the bound wherever the rounds' tails, combined, come near alpha."""
        audits, canaries = draws.bits.shape
        size = canaries // self.rounds
        sizes = tuple(size // share for share in self.shares)
        shape = (audits, self.rounds, size)
        order = _surest_first(draws.log_odds[:, : self.rounds * size].reshape(shape))
        right = draws.right[:, : self.rounds * size].reshape(shape)
        right = np.take_along_axis(right, order, axis=2)[:, :, : sum(sizes)]
        begun = np.arange(self.rounds) * size < draws.made[:, np.newaxis]
        uniforms, noise = rng.random(begun.shape), rng.random((audits,))
        scores = right @ np.repeat(self.weights, sizes)
        rough = _combined(
            score_law(self.weights, sizes, claim.epsilon),
            scores,
            begun,
            uniforms,
            noise,
        )
        stated = tuple(claim.epsilon + weight for weight in self.weights)
        price = coupling_price(canaries, claim.epsilon, claim.delta)
        found = rough + price <= _HARMLESS * alpha
        for audit in np.flatnonzero(found):
            reading = Rounds(
                canaries=canaries,
                rounds=tuple(
                    self._round(
                        canaries, stated, sizes if plays else (0,) * len(sizes), r
                    )
                    for r, plays in zip(right[audit], begun[audit], strict=True)
                ),
                weights=(1.0,) * self.rounds,
                uniforms=tuple(map(float, uniforms[audit])),
                noise_uniform=float(noise[audit]),
            )
            found[audit] = _rejects(StoufferRounds(), reading, claim, alpha)
        return np.asarray(found)

    def _round(
        self,
        canaries: int,
        stated: tuple[float, ...],
        sizes: tuple[int, ...],
        right: NDArray[np.bool_],
    ) -> Weighted:
        ends = np.cumsum((0, *sizes))
        return Weighted(
            canaries=canaries,
            weights=stated,
            guesses=sizes,
            correct=tuple(int(right[a:b].sum()) for a, b in pairwise(ends)),
            committed=True,
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BettingRule:
    """The bound from betting, on guesses in the order of their number."""

    name: str = "betting"

    def rejects(
        self, draws: Draws, claim: ApproxDP, alpha: float, rng: np.random.Generator
    ) -> NDArray[np.bool_]:
        """Bet on each guess what the guesser says of it, as long as it guesses."""
        del rng
        stakes = special.expit(np.abs(draws.log_odds))
        canaries = draws.bits.shape[1]
        return np.array(
            [
                _rejects(
                    Betting(),
                    Bets(canaries=canaries, right=right[:made], stakes=stake[:made]),
                    claim,
                    alpha,
                )
                for right, stake, made in zip(
                    draws.right, stakes, draws.made, strict=True
                )
            ]
        )


EXACT_ON_ALL = CountRule(name="exact, r = n", bound=Exact(), share=1)
OURS: tuple[Rule, ...] = (
    CountRule(name="exact, r = n/10", bound=Exact(), share=10),
    EXACT_ON_ALL,
    CountRule(name="pure, r = n", bound=Pure(), share=1),
    CountRule(name="steinke as published, r = n/10", bound=Steinke(), share=10),
    CountRule(name="steinke as published, r = n", bound=Steinke(), share=1),
    CountRule(name="adaptive, r = n/10", bound=Adaptive(), share=10),
    CountRule(name="adaptive, r = n", bound=Adaptive(), share=1),
    WeightedRule(),
    RankedRule(),
    RoundsRule(),
    BettingRule(),
)


def score_law(
    weights: tuple[int, ...], sizes: tuple[int, ...], log_odds: float
) -> NDArray[np.float64]:
    """Return the law of the weight of right guesses, if each is an independent coin."""
    start, law = 0, np.ones(1)
    for weight, size in zip(weights, sizes, strict=True):
        masses = binomial_law(size, log_odds)
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
    guesses = rule.guesses(canaries)
    low, high = 0, guesses + 1  # no right guess never rejects
    while high - low > 1:
        middle = (low + high) // 2
        counts = Counts(canaries=canaries, guesses=guesses, correct=middle)
        rejected = _rejects(rule.bound, counts, claim, alpha)
        low, high = (low, middle) if rejected else (middle, high)
    return high


def _rejects(bound: Bound[R], reading: R, claim: ApproxDP, alpha: float) -> bool:
    found = bound.log_p_value(reading, epsilon=claim.epsilon, delta=claim.delta)
    return found <= log(alpha)


def _surest_first(log_odds: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.argsort(-np.abs(log_odds), axis=-1, kind="stable")


def _spread(
    score: int, weights: tuple[int, ...], sizes: tuple[int, ...]
) -> tuple[int, ...]:
    """Return numbers of right guesses that weigh ``score``, heavy classes first."""
    correct = []
    for weight, size in zip(weights, sizes, strict=True):
        correct.append(min(size, score // weight))
        score -= correct[-1] * weight
    return tuple(correct)


def _combined(
    law: NDArray[np.float64],
    scores: NDArray[np.int64],
    begun: NDArray[np.bool_],
    uniforms: NDArray[np.float64],
    noise: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return Stouffer's p-values of rounds whose scores have one law."""
    tails = np.append(np.cumsum(law[::-1])[::-1], 0.0)
    at_least, more = tails[scores], tails[scores + 1]
    p_values = np.clip(more + uniforms * (at_least - more), 1e-300, 1.0)
    z = np.where(begun, special.ndtri(p_values), 0.0).sum(axis=1)
    empty = (~begun).sum(axis=1)
    z += np.sqrt(empty) * special.ndtri(noise)
    z[2 * empty > begun.shape[1]] = np.inf  # left to chance: not rejected
    return np.asarray(special.ndtr(z / begun.shape[1] ** 0.5))
