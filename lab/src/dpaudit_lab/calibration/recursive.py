"""Others' rules that judge counts by a recursion against a Gaussian curve, re-stated.

The recursion is algorithm 3 of Mahloujifar, Melis and Chaudhuri, with which one asks
whether a chance of alpha for so many right guesses contradicts a trade-off curve. Both
rules here take the Gaussian curve through the point of the claim.

Reference: https://arxiv.org/abs/2410.22235, algorithm 3.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import log
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.bounds.curve import recursion
from dpaudit.bounds.readings import Counts
from dpaudit.privacy.guarantees import ApproxDP, GaussianDP
from dpaudit.stats.search import largest_yes
from dpaudit_lab.calibration.draws import Draws
from dpaudit_lab.calibration.rules import least_rejected
from dpaudit_lab.calibration.thresholds import by_score

__all__ = ["BestOfFifty", "GaussianAssumed", "mu_through"]

_LEAST = -700.0  # log of a chance below which no p-value is looked for
_FINE = 1e-6


@final
@dataclass(frozen=True, slots=True)
class GaussianAssumed:
    """jax_privacy 2.0.0, epsilon_one_run_fdp: the claim's point read as a Gaussian's.

    An (epsilon, delta) claim is replaced by the Gaussian curve through that point,
    which says more than the claim does. Measured: a mechanism that is 1.5-DP is given
    an epsilon above 1.5 at delta 1e-5 in 36 % of runs. PrivacyGuard fb9c26c
    (FDPAnalysisNode) computes the same.
    """

    method: ClassVar[str] = "gdp taken as dp"
    reference: ClassVar[str] = "https://arxiv.org/abs/2410.22235, algorithm 3"

    def log_p_value(self, counts: Counts, *, epsilon: float, delta: float) -> float:
        """Return the log of the least chance that the recursion refutes."""
        claim = GaussianDP(mu=mu_through(epsilon, delta))
        low, high = _LEAST, 0.0
        while high - low > _FINE:
            middle = (low + high) / 2
            if recursion(counts, claim, log_tail=middle):
                high = middle
            else:
                low = middle
        return high


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BestOfFifty:
    """PrivacyGuard fb9c26c, tutorial: the best of fifty numbers of guesses.

    The highest scores are guessed "included" and as many of the lowest "excluded", for
    fifty numbers from 10 to half of the canaries, evenly spaced in their logarithm.
    Each is judged by the recursion at alpha, and the best counts. The floor of its scan
    is another rule here.
    """

    name: str = "PrivacyGuard fb9c26c, tutorial: best of 50 numbers"

    def rejects(
        self, draws: Draws, claim: ApproxDP, alpha: float, rng: np.random.Generator
    ) -> NDArray[np.bool_]:
        """Reject if any number does."""
        del rng
        bits, _ = by_score(draws)
        n = bits.shape[1]
        sides = np.unique(np.geomspace(10, n // 2, 50).astype(np.int64))
        enough = [_enough(n, 2 * int(k), claim, alpha) for k in sides]
        included = np.cumsum(bits, axis=1, dtype=np.int64)
        excluded = np.cumsum(1 - bits[:, ::-1].astype(np.int64), axis=1)
        right = included[:, sides - 1] + excluded[:, sides - 1]
        return np.asarray((right >= np.array(enough)).any(axis=1))


@lru_cache(maxsize=4096)
def _enough(canaries: int, guesses: int, claim: ApproxDP, alpha: float) -> int:
    """Return the least count at which the recursion refutes a claim."""
    curve = GaussianDP(mu=mu_through(claim.epsilon, claim.delta))

    def refutes(correct: int) -> bool:
        counts = Counts(canaries=canaries, guesses=guesses, correct=correct)
        return recursion(counts, curve, log_tail=log(alpha))

    return least_rejected(refutes, guesses)


@lru_cache(maxsize=64)
def mu_through(epsilon: float, delta: float) -> float:
    """Return the mu of the Gaussian curve through a point.

    Example:
        >>> delta = GaussianDP(mu=1.0).delta_at(2.0)
        >>> round(mu_through(2.0, delta), 6)
        1.0
    """
    return largest_yes(lambda mu: GaussianDP(mu=mu).delta_at(epsilon) <= delta)
