"""Nulls that hide coins in a noisy number: counts with geometric noise, and parity.

*Counts at the edge.* Coins are counted in sets of a few, and two-sided geometric noise
``P[k] ~ e^(-epsilon |k|)`` is added, which is epsilon-DP with equality as one coin
moves a count by one. A count at or beyond its edge says of every coin of its set,
independently, that it fell that way with odds exactly ``e^epsilon``; within the edges
it says less. So a guesser who takes the sets at the edge attains the odds of the claim,
with an order of confidence that follows the output.

*Parity.* Xor randomised response publishes the parity of all coins, true with odds
``e^epsilon``: exactly epsilon-DP, as every coin changes the parity. It says nothing of
any coin, but to a guesser who was told all coins but one it says as much of the last
as the claim allows. In rounds it is told coins of its own round, which rounds forbid;
but given all coins but one the last is still right with at most the odds of the claim,
and which guess is the surest depends on no coin, so no round counts more than it may.
"""

from dataclasses import dataclass
from math import exp
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.privacy.guarantees import ApproxDP
from dpaudit_lab.calibration.draws import (
    BOAST,
    Draws,
    binomial_tail,
    every_guess,
    fair_coins,
    signed,
)

__all__ = [
    "CountsAtTheEdge",
    "Parity",
    "clipped_geometric",
]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CountsAtTheEdge:
    """Counts of sets with geometric noise; the guesser states what they say, and more.

    Attributes:
        epsilon: Of the noise.
        set_size: Coins that share a count; canaries are a multiple of it.
    """

    epsilon: float
    set_size: int = 5

    def __post_init__(self) -> None:
        _validate.whole_number("set_size", self.set_size, least=1)

    @property
    def claim(self) -> ApproxDP:
        """What it satisfies, exactly."""
        return ApproxDP(epsilon=self.epsilon, delta=0.0)

    def log_odds(self) -> NDArray[np.float64]:
        """Return the log-odds of a coin for each count, clipped to its edges."""
        s = self.set_size
        others = np.arange(s)
        ways = np.exp(special.gammaln(s) - special.gammaln(others + 1.0))
        ways = ways / np.exp(special.gammaln(s - others))
        law = clipped_geometric(s, self.epsilon)
        one, zero = ways @ law[1:], ways @ law[:-1]
        return np.asarray(np.log(one / zero))

    def draw(self, rng: np.random.Generator, *, canaries: int, audits: int) -> Draws:
        """Simulate audits."""
        s = self.set_size
        if canaries % s:
            raise InvalidInputError(
                f"canaries must be a multiple of set_size={s}, got canaries={canaries}"
            )
        bits = fair_coins(rng, (audits, canaries))
        ones = bits.reshape(audits, canaries // s, s).sum(axis=2, dtype=np.int64)
        a = exp(-self.epsilon)
        noise = rng.geometric(1 - a, ones.shape) - rng.geometric(1 - a, ones.shape)
        found = self.log_odds()[np.clip(ones + noise, 0, s)]
        stated = np.sign(found) * (np.abs(found) + BOAST)
        return every_guess(np.repeat(stated, s, axis=1), bits)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """The parity of all coins, by one randomised response.

    Attributes:
        epsilon: Log-odds of a true answer.
        told: Whether the guesser is told all other coins before it guesses the last.
    """

    epsilon: float
    told: bool

    @property
    def claim(self) -> ApproxDP:
        """What it satisfies, exactly."""
        return ApproxDP(epsilon=self.epsilon, delta=0.0)

    def tail(self, *, guesses: int, correct: int) -> float:
        """Return the chance that as many of the surest guesses are right, or more."""
        if not self.told:
            return float(binomial_tail(correct, guesses, 0.0))
        chance = float(special.expit(self.epsilon))
        last = binomial_tail([correct - 1, correct], guesses - 1, 0.0)
        return float(chance * last[0] + (1 - chance) * last[1])

    def draw(self, rng: np.random.Generator, *, canaries: int, audits: int) -> Draws:
        """Simulate audits; the coin that is told of is the last."""
        bits = fair_coins(rng, (audits, canaries))
        log_odds = np.zeros(bits.shape)
        if self.told:
            parity = bits.sum(axis=1) % 2
            flipped = rng.random(audits) >= special.expit(self.epsilon)
            others = bits[:, :-1].sum(axis=1) % 2
            last = (parity ^ flipped ^ others).astype(np.uint8)
            said = signed(last, np.ones(audits, np.bool_))
            log_odds[:, -1] = said * (self.epsilon + BOAST)
        return every_guess(log_odds, bits)


def clipped_geometric(most: int, epsilon: float) -> NDArray[np.float64]:
    """Return the law of a noisy count, clipped to 0 and ``most``, for each true count.

    Example:
        >>> clipped_geometric(1, np.log(3.0)).round(9)
        array([[0.75, 0.25],
               [0.25, 0.75]])
    """
    a = exp(-epsilon)
    gap = np.abs(np.subtract.outer(np.arange(most + 1), np.arange(most + 1)))
    law = (1 - a) / (1 + a) * a**gap
    law[:, [0, most]] = a ** gap[:, [0, most]] / (1 + a)
    return np.asarray(law)
