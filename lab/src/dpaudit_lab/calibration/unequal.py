"""Coins that are not fair, with a known bias: a null, and the rule for it.

Each coin includes its canary with probability ``pi``. The mechanism publishes all coins
with chance delta; otherwise every coin is answered by its own randomised response of
ratio ``e^epsilon``. That is exactly (epsilon, delta)-DP, whatever the law of the coins.
An answer "in" is then right with odds ``e^epsilon pi / (1 - pi)`` and an answer "out"
with odds ``e^epsilon (1 - pi) / pi``: the largest that the claim allows. With
``epsilon = delta = 0`` answers say nothing, but "in" is right in most cases.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import log
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.bounds.readings import BiasedCoinCounts
from dpaudit.bounds.unequal import BiasedCoinsBound
from dpaudit.privacy.guarantees import ApproxDP
from dpaudit_lab.calibration.draws import Draws, every_guess, signed
from dpaudit_lab.calibration.rules import least_rejected

__all__ = ["BiasedCoins", "UnequalRule"]

_CERTAIN = 20.0  # log-odds of a coin that was published


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BiasedCoins:
    """Published with chance delta, else answered one by one.

    Attributes:
        inclusion: Chance that a canary is included.
        claim: What it satisfies, exactly.
    """

    inclusion: float
    claim: ApproxDP

    def draw(self, rng: np.random.Generator, *, canaries: int, audits: int) -> Draws:
        """Simulate audits; the guesser states the exact log-odds."""
        epsilon, delta = self.claim.epsilon, self.claim.delta
        bits = (rng.random((audits, canaries)) < self.inclusion).astype(np.uint8)
        published = rng.random((audits, 1)) < delta
        truthful = rng.random(bits.shape) < special.expit(epsilon)
        sizes = np.where(published, _CERTAIN, epsilon)
        answers = signed(bits, truthful | published) * sizes
        return every_guess(answers + special.logit(self.inclusion), bits)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class UnequalRule:
    """The bound for unequal coins: the likeliest to be in, and the likeliest to be out.

    Attributes:
        name: What the table calls it.
        inclusion: Chance that a canary is included.
        share_in: One in so many canaries is guessed "in".
        share_out: One in so many canaries is guessed "out".
    """

    name: str = "unequal coins, 9 in 10 included"
    inclusion: float = 0.9
    share_in: int = 2
    share_out: int = 20

    def guesses(self, canaries: int) -> tuple[int, int]:
        """Return how many are guessed in, and out."""
        return canaries // self.share_in, canaries // self.share_out

    def critical(self, canaries: int, claim: ApproxDP, alpha: float) -> int:
        """Return the least count that rejects; one more than guesses if none does."""
        return _critical(self, canaries, claim, alpha)

    def rejects(
        self, draws: Draws, claim: ApproxDP, alpha: float, rng: np.random.Generator
    ) -> NDArray[np.bool_]:
        """Guess by the order of the log-odds, from both ends."""
        del rng
        canaries = draws.bits.shape[1]
        top, bottom = self.guesses(canaries)
        order = np.argsort(-draws.log_odds, axis=1, kind="stable")
        bits = np.take_along_axis(draws.bits, order, axis=1).astype(np.int64)
        inside = bits[:, :top].sum(axis=1)
        outside = bottom - bits[:, canaries - bottom :].sum(axis=1)
        return np.asarray(inside + outside >= self.critical(canaries, claim, alpha))


@lru_cache(maxsize=64)
def _critical(rule: UnequalRule, canaries: int, claim: ApproxDP, alpha: float) -> int:
    top, bottom = rule.guesses(canaries)

    def rejects(correct: int) -> bool:
        reading = BiasedCoinCounts(
            canaries=canaries,
            inclusion=rule.inclusion,
            guesses_in=top,
            guesses_out=bottom,
            correct=correct,
            committed=True,
        )
        found = BiasedCoinsBound().log_p_value(
            reading, epsilon=claim.epsilon, delta=claim.delta
        )
        return found <= log(alpha)

    return least_rejected(rejects, top + bottom)
