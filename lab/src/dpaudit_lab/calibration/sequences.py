"""Rules that read more than a number: rankings, rounds and bets.

Their bound is asked for every audit but those that look harmless to a cheap test with
several times the level: wide enough that a bound which understates its p-values is
still asked, and found out.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import log
from typing import TypeVar, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.bounds.bets import BettingBound
from dpaudit.bounds.bound import Bound
from dpaudit.bounds.ranked import RankedBound
from dpaudit.bounds.readings import Bets, Ranked, Rounds, Weighted
from dpaudit.bounds.rounds import RoundsBound
from dpaudit.privacy.guarantees import ApproxDP
from dpaudit.theory.adaptive import surprising_counts
from dpaudit_lab.calibration.draws import Draws, most_confident_first
from dpaudit_lab.calibration.rules import score_law

__all__ = ["BettingRule", "RankedRule", "RoundsRule"]

R = TypeVar("R")

_HARMLESS = 4.0  # times alpha: the bound is asked if a cheap test stays below


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
        ordered = np.take_along_axis(
            draws.right, most_confident_first(draws.log_odds), axis=1
        )
        # A p-value must be at least the binomial tail at its best look.
        counts = np.cumsum(ordered, axis=1, dtype=np.int64)
        level = _HARMLESS * alpha
        surprising = counts >= surprising_counts(canaries, claim.epsilon, level)
        found = np.asarray(surprising.any(axis=1))
        for audit in np.flatnonzero(found):
            found[audit] = _rejects(
                RankedBound(level=alpha),
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
    that exceed the claim by their weights. Where canary ``i`` must be played in round
    ``i`` modulo the rounds, the columns of the draws are numbered so.

    Attributes:
        name: What the table calls it.
        rounds: How many rounds.
        weights: The weight of each class, the surest first.
        shares: One in so many canaries of a round falls into each class.
        max_jump: The most that one right guess may add; None for no limit.
        randomness_share: Share of the variance that is committed randomness.
    """

    name: str = "rounds, 4 of 2 classes"
    rounds: int = 4
    weights: tuple[int, ...] = (2, 1)
    shares: tuple[int, ...] = (10, 2)
    max_jump: float | None = None
    randomness_share: float = 0.0

    def rejects(
        self, draws: Draws, claim: ApproxDP, alpha: float, rng: np.random.Generator
    ) -> NDArray[np.bool_]:
        """Ask the bound wherever the rounds' tails, combined, come near alpha."""
        audits, canaries = draws.bits.shape
        size = canaries // self.rounds
        sizes = tuple(size // share for share in self.shares)
        shape = (audits, self.rounds, size)
        order = most_confident_first(
            draws.log_odds[:, : self.rounds * size].reshape(shape)
        )
        right = draws.right[:, : self.rounds * size].reshape(shape)
        right = np.take_along_axis(right, order, axis=2)[:, :, : sum(sizes)]
        begun = np.arange(self.rounds) * size < draws.made[:, np.newaxis]
        uniforms, noise = rng.random(begun.shape), rng.random((audits,))
        found = np.ones(audits, np.bool_)
        if self.max_jump is None:
            rough = _combined(
                score_law(self.weights, sizes, claim.epsilon),
                right @ np.repeat(self.weights, sizes),
                begun,
                uniforms,
                noise,
            )
            found = rough <= _HARMLESS * alpha  # delta's price is the bound's to add
        for audit in np.flatnonzero(found):
            reading = Rounds(
                canaries=canaries,
                rounds=tuple(
                    self._round(canaries, claim.epsilon, sizes if plays else None, r)
                    for r, plays in zip(right[audit], begun[audit], strict=True)
                ),
                round_weights=(1.0,) * self.rounds,
                uniforms=tuple(map(float, uniforms[audit])),
                max_jump=self.max_jump,
                randomness_share=self.randomness_share,
                noise_uniform=float(noise[audit]),
            )
            found[audit] = _rejects(RoundsBound(), reading, claim, alpha)
        return np.asarray(found)

    def _round(
        self,
        canaries: int,
        epsilon: float,
        sizes: tuple[int, ...] | None,
        right: NDArray[np.bool_],
    ) -> Weighted:
        sizes = (0,) * len(self.weights) if sizes is None else sizes
        ends = np.cumsum((0, *sizes))
        return Weighted(
            canaries=canaries,
            weights=tuple(epsilon + weight for weight in self.weights),
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
                    BettingBound(),
                    Bets(
                        canaries=canaries,
                        right=right[:made],
                        stated_probabilities=stake[:made],
                    ),
                    claim,
                    alpha,
                )
                for right, stake, made in zip(
                    draws.right, stakes, draws.made, strict=True
                )
            ]
        )


def _rejects(bound: Bound[R], reading: R, claim: ApproxDP, alpha: float) -> bool:
    found = bound.log_p_value(reading, epsilon=claim.epsilon, delta=claim.delta)
    return found <= log(alpha)


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
