"""Rules that other tools use, re-stated from their descriptions, to see the table fail.

None of this is anyone's code: each rule is the few lines that its description comes
down to, at the claim's epsilon. A table in which these pass would be a table that
cannot fail. Each names the release that was read and what was measured of it then.
Rules that choose a threshold have a file of their own, and so have those that run a
recursion.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.bounds.readings import Counts
from dpaudit.bounds.steinke import SteinkeBound
from dpaudit.privacy.guarantees import ApproxDP
from dpaudit.stats.binomial import log_tails
from dpaudit.theory.adaptive import surprising_counts
from dpaudit_lab.calibration.draws import Draws, binomial_tail
from dpaudit_lab.calibration.recursive import BestOfFifty, GaussianAssumed
from dpaudit_lab.calibration.rules import CountRule, Rule
from dpaudit_lab.calibration.thresholds import (
    BestClopperPearson,
    BestPair,
    BestThreshold,
    GaussianByAbs,
    HullBonferroni,
)

__all__ = [
    "FAIR_COINS",
    "GAUSSIAN",
    "INDEPENDENT",
    "NO_DELTA",
    "PEERS",
    "TEN_COUNTS",
    "BestCount",
    "DeltaShrinksGuesses",
    "IndependentChannels",
    "RealisedGuesses",
    "ScanFloor",
]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BestCount:
    """The best of several numbers of surest guesses, each tested at alpha.

    Attributes:
        name: What the table calls it.
        spacing: From a number of canaries to the numbers of guesses that are tried.
    """

    name: str
    spacing: Callable[[int], NDArray[np.float64]]

    def rejects(
        self, draws: Draws, claim: ApproxDP, alpha: float, rng: np.random.Generator
    ) -> NDArray[np.bool_]:
        """Reject if any number of guesses does."""
        del rng
        n = draws.bits.shape[1]
        right = draws.most_confident_right(n)
        counts = np.unique(self.spacing(n).astype(np.int64)) - 1
        enough = surprising_counts(n, claim.epsilon, alpha)
        correct = np.cumsum(right, axis=1, dtype=np.int64)
        return np.asarray((correct[:, counts] >= enough[counts]).any(axis=1))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RealisedGuesses:
    """AORA as published: the number of guesses *made* goes into the binomial.

    There is no general guarantee: a guesser who stops when ahead is wrong in 20 / 34 /
    46 % of runs at 100 / 1,000 / 10,000 canaries, at a nominal 5 % (Keinan, Shenfeld
    and Ligett, https://arxiv.org/abs/2503.07199; docs/explanation/errata.md).
    """

    name: str = "AORA as published (no general guarantee)"

    def rejects(
        self, draws: Draws, claim: ApproxDP, alpha: float, rng: np.random.Generator
    ) -> NDArray[np.bool_]:
        """Judge the right guesses made by the number made."""
        del rng
        made = np.arange(draws.bits.shape[1]) < draws.made[:, np.newaxis]
        correct = (draws.right & made).sum(axis=1)
        return np.asarray(binomial_tail(correct, draws.made, claim.epsilon) <= alpha)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ScanFloor:
    """PrivacyGuard fb9c26c: a scan that returns its last point if nothing is rejected.

    Whatever the run, epsilon is reported to be at least 0.3975, also for no right
    guess out of one. Only that floor is re-stated, so this rule is for claims below.
    """

    name: str = "PrivacyGuard fb9c26c: scan with a floor"
    floor: float = 0.3975

    def rejects(
        self, draws: Draws, claim: ApproxDP, alpha: float, rng: np.random.Generator
    ) -> NDArray[np.bool_]:
        """Report the floor."""
        del alpha, rng
        return np.full(len(draws.bits), self.floor > claim.epsilon)


@final
@dataclass(frozen=True, slots=True)
class DeltaShrinksGuesses:
    """opake-auditing 0.16.1: delta takes ``round(r delta)`` guesses out of r.

    Below half a guess delta has no effect at all.
    """

    method: ClassVar[str] = "delta shrinks guesses"
    reference: ClassVar[str] = "opake-auditing 0.16.1"

    def log_p_value(self, counts: Counts, *, epsilon: float, delta: float) -> float:
        """Return the log of a binomial tail among the guesses that are left."""
        left = counts.guesses - round(counts.guesses * delta)
        return log_tails(min(counts.correct, left), left, epsilon)[0]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class IndependentChannels:
    """Xiang et al. 2509.08704 at r = n: mu-GDP, canaries taken as independent.

    Under one loss shared by all canaries, which is exactly mu-GDP, its 5 % test rejects
    the truth in 41.5 % of runs at a thousand canaries. Epsilon and delta are not used.
    """

    mu: float
    method: ClassVar[str] = "independent channels"
    reference: ClassVar[str] = "https://arxiv.org/abs/2509.08704"

    def log_p_value(self, counts: Counts, *, epsilon: float, delta: float) -> float:
        """Return the log of the tail of independent Gaussian channels."""
        del epsilon, delta
        right = float(special.ndtr(self.mu / 2))
        return log_tails(counts.correct, counts.guesses, log(right / (1 - right)))[0]


TEN_COUNTS = BestCount(
    # A copy of Steinke, Nasr and Jagielski's snippet, at 10, 20, ..., 100 guesses.
    name="privacy-auditing-of-llms 90f60df: best of 10 k's",
    spacing=lambda n: np.arange(10.0, min(n, 100) + 1, 10.0),
)
FAIR_COINS = CountRule(
    name="jax_privacy 2.0.0: any in/out lists taken as fair",
    bound=SteinkeBound(),
    share=2,
)
GAUSSIAN = CountRule(
    name="jax_privacy 2.0.0: epsilon_one_run_fdp", bound=GaussianAssumed(), share=1
)
NO_DELTA = CountRule(
    name="opake-auditing 0.16.1: round(r delta)", bound=DeltaShrinksGuesses(), share=1
)
INDEPENDENT = CountRule(
    name="Xiang et al.: independent channels",
    bound=IndependentChannels(mu=1.0),
    share=1,
)
PEERS: tuple[Rule, ...] = (
    HullBonferroni(),
    FAIR_COINS,
    GaussianByAbs(),
    GAUSSIAN,
    BestThreshold(),
    NO_DELTA,
    BestPair(),
    TEN_COUNTS,
    BestOfFifty(),
    RealisedGuesses(),
    ScanFloor(),
    BestClopperPearson(),
    INDEPENDENT,
)
