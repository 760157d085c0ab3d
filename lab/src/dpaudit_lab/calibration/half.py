"""A random half of the canaries, included together: a null, and the rule for it.

Every half of the canaries is included with the same probability. The mechanism
publishes the half with chance delta; otherwise it names ``r`` canaries, with a
probability in proportion to ``e^(epsilon v)`` if ``v`` of them were included. The sum
of these is the same for every half, and a swap of two canaries changes ``v`` by one at
most, so this is exactly (epsilon, delta)-DP where one record is replaced. Given that
nothing is published, ``v`` has Fisher's noncentral hypergeometric law: the largest that
the claim allows.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import log
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.bounds.hypergeometric import HypergeometricBound
from dpaudit.bounds.readings import HalfCounts
from dpaudit.privacy.guarantees import ApproxDP
from dpaudit_lab.calibration.draws import Draws, every_guess, whole
from dpaudit_lab.calibration.rules import least_rejected

__all__ = ["NamedOfHalf", "RandomHalfRule"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NamedOfHalf:
    """The half is published with chance delta, else some canaries are named.

    Attributes:
        guesses: How many are named.
        claim: What it satisfies, exactly, where one record is replaced.
    """

    guesses: int
    claim: ApproxDP

    def law(self, canaries: int) -> NDArray[np.float64]:
        """Return the chance of each number of named canaries that were included."""
        r, h, v = self.guesses, canaries // 2, np.arange(self.guesses + 1)
        ways = _log_choose(r, v) + _log_choose(canaries - r, h - v)
        answered = special.softmax(ways + self.claim.epsilon * v)
        return np.asarray(
            (1 - self.claim.delta) * answered + self.claim.delta * (v == r)
        )

    def draw(self, rng: np.random.Generator, *, canaries: int, audits: int) -> Draws:
        """Simulate audits; the named canaries have the highest log-odds."""
        r, h = self.guesses, canaries // 2
        right = rng.choice(r + 1, size=(audits, 1), p=whole(self.law(canaries)))
        place = np.argsort(rng.random((audits, canaries)), axis=1)
        rest = (place >= r) & (place < r + h - right)
        bits = ((place < right) | rest).astype(np.uint8)
        return every_guess(np.where(place < r, 1.0, -1.0), bits)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RandomHalfRule:
    """The bound for a random half: the likeliest canaries are guessed "included".

    Attributes:
        name: What the table calls it.
        share: One in so many canaries is guessed.
    """

    name: str = "random half, r = n/10"
    share: int = 10

    def guesses(self, canaries: int) -> int:
        """Return how many are guessed."""
        return canaries // self.share

    def critical(self, canaries: int, claim: ApproxDP, alpha: float) -> int:
        """Return the least count that rejects; one more than guesses if none does."""
        return _critical(self, canaries, claim, alpha)

    def chance(self, null: NamedOfHalf, *, canaries: int, alpha: float) -> float:
        """Return the exact chance of rejecting."""
        v = self.critical(canaries, null.claim, alpha)
        return float(null.law(canaries)[v:].sum())

    def rejects(
        self, draws: Draws, claim: ApproxDP, alpha: float, rng: np.random.Generator
    ) -> NDArray[np.bool_]:
        """Count the included among those of the highest log-odds."""
        del rng
        canaries = draws.bits.shape[1]
        order = np.argsort(-draws.log_odds, axis=1, kind="stable")
        named = order[:, : self.guesses(canaries)]
        right = np.take_along_axis(draws.bits, named, axis=1).sum(axis=1)
        return np.asarray(right >= self.critical(canaries, claim, alpha))


@lru_cache(maxsize=64)
def _critical(
    rule: RandomHalfRule, canaries: int, claim: ApproxDP, alpha: float
) -> int:
    guesses = rule.guesses(canaries)

    def rejects(correct: int) -> bool:
        reading = HalfCounts(
            canaries=canaries, guesses=guesses, correct=correct, records_per_swap=1
        )
        found = HypergeometricBound().log_p_value(
            reading, epsilon=claim.epsilon, delta=claim.delta
        )
        return found <= log(alpha)

    return least_rejected(rejects, guesses)


def _log_choose(n: int, k: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.asarray(
        special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)
    )
