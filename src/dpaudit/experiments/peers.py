"""Rules that other tools use, re-stated from their descriptions, to see the table fail.

None of this is anyone's code: each rule is the few lines that its description comes
down to, at the claim's epsilon. A table in which these pass would be a table that
cannot fail. Each names the release that was read and what was measured of it then.
"""

from dataclasses import dataclass
from math import log
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.bounds.reads import Counts
from dpaudit.bounds.steinke import Steinke
from dpaudit.experiments.nulls import (
    Draws,
    binomial_tail,
)
from dpaudit.experiments.rules import CountRule, Rule
from dpaudit.privacy.guarantees import ApproxDP
from dpaudit.stats.binomial import log_tails
from dpaudit.theory.stopping import surprising_counts

__all__ = [
    "FAIR_COINS",
    "INDEPENDENT",
    "NO_DELTA",
    "PEERS",
    "BestPair",
    "BestThreshold",
    "DeltaShrinksGuesses",
    "HullBonferroni",
    "IndependentChannels",
    "RealisedGuesses",
    "ScanFloor",
    "TwelveCounts",
]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class HullBonferroni:
    """jax_privacy 2.0.0: alpha divided among the thresholds on a data-chosen hull.

    "Included" is guessed above a threshold. The thresholds kept are the corners of the
    convex hull of the labelled scores' own curve, and their number, which the labels
    decide, is what alpha is divided by. Measured at epsilon = 0: 6.8 % at a thousand
    canaries, 9.0 % at ten thousand, more where low scores tie.
    """

    name: str = "jax_privacy 2.0.0: Bonferroni over its hull"

    def rejects(
        self, draws: Draws, claim: ApproxDP, alpha: float, rng: np.random.Generator
    ) -> NDArray[np.bool_]:
        """Test every corner at alpha over the number of corners."""
        del rng
        bits, usable = _by_score(draws)
        guesses = np.arange(bits.shape[1] + 1)
        correct = np.pad(np.cumsum(bits, axis=1, dtype=np.int64), ((0, 0), (1, 0)))
        corners = _corners(guesses, correct, usable)
        tails = binomial_tail(correct, guesses, claim.epsilon)
        least = np.where(corners, tails, 1.0).min(axis=1)
        return np.asarray(least * corners.sum(axis=1) <= alpha)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BestThreshold:
    """opake-auditing 0.16.1: the threshold that the labels say is the most accurate.

    Every canary is guessed, above it "included", below it "excluded", and the count is
    judged as if the threshold had been fixed. Measured at epsilon = 0: 35 % at a
    hundred canaries, 41 % at a thousand.
    """

    name: str = "opake-auditing 0.16.1: most accurate threshold"

    def rejects(
        self, draws: Draws, claim: ApproxDP, alpha: float, rng: np.random.Generator
    ) -> NDArray[np.bool_]:
        """Judge the best accuracy over all thresholds by one binomial tail."""
        del rng
        bits, usable = _by_score(draws)
        n = bits.shape[1]
        walk = np.cumsum(2 * bits.astype(np.int64) - 1, axis=1)
        excluded = n - bits.sum(axis=1, dtype=np.int64)
        best = excluded + np.where(usable[:, 1:], walk, 0).max(axis=1, initial=0)
        return np.asarray(binomial_tail(best, n, claim.epsilon) <= alpha)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BestPair:
    """ml_privacy_meter e384af8: the best over a grid of (k_neg, k_pos), uncorrected.

    Here the grid is k_neg = k_pos = 1, 2, ..., n/2. Measured with its own grid at
    epsilon = 0: 27 / 47 / 58 % at 100 / 1,000 / 10,000 canaries.
    """

    name: str = "ml_privacy_meter e384af8: best (k_neg, k_pos)"

    def rejects(
        self, draws: Draws, claim: ApproxDP, alpha: float, rng: np.random.Generator
    ) -> NDArray[np.bool_]:
        """Reject if any pair does."""
        del rng
        bits, _ = _by_score(draws)
        half = bits.shape[1] // 2
        top = np.cumsum(bits[:, :half], axis=1, dtype=np.int64)
        bottom = np.cumsum(1 - bits[:, : -half - 1 : -1].astype(np.int64), axis=1)
        guesses = 2 * np.arange(1, half + 1)
        enough = surprising_counts(bits.shape[1], claim.epsilon, alpha)[guesses - 1]
        return np.asarray((top + bottom >= enough).any(axis=1))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TwelveCounts:
    """Scripts around the published snippet: the best of twelve k's, uncorrected.

    Twelve numbers of surest guesses, evenly spaced in ratio, each tested at alpha.
    Measured at epsilon = 0: 15 to 21 %.
    """

    name: str = "copies of Steinke's snippet: best of 12 k's"

    def rejects(
        self, draws: Draws, claim: ApproxDP, alpha: float, rng: np.random.Generator
    ) -> NDArray[np.bool_]:
        """Reject if any number of guesses does."""
        del rng
        n = draws.bits.shape[1]
        order = np.argsort(-np.abs(draws.log_odds), axis=1, kind="stable")
        right = np.take_along_axis(draws.right, order, axis=1)
        counts = np.unique(np.geomspace(10, n, 12).astype(np.int64)) - 1
        enough = surprising_counts(n, claim.epsilon, alpha)
        correct = np.cumsum(right, axis=1, dtype=np.int64)
        return np.asarray((correct[:, counts] >= enough[counts]).any(axis=1))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RealisedGuesses:
    """The paper's AORA: the number of guesses *made* goes into the binomial.

    A guesser who stops when ahead is wrong in 20 / 34 / 46 % of runs at 100 / 1,000 /
    10,000 canaries, at a nominal 5 % (Keinan, Shenfeld and Ligett,
    https://arxiv.org/abs/2503.07199; docs/explanation/errata.md).
    """

    name: str = "the paper's AORA: guesses made in the binomial"

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


FAIR_COINS = CountRule(
    name="jax_privacy 2.0.0: any in/out lists taken as fair",
    bound=Steinke(),
    share=2,
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
    BestThreshold(),
    NO_DELTA,
    BestPair(),
    TwelveCounts(),
    RealisedGuesses(),
    ScanFloor(),
    INDEPENDENT,
)


def _by_score(draws: Draws) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Return the coins, highest score first, and after how many a threshold fits."""
    order = np.argsort(-draws.log_odds, axis=1, kind="stable")
    scores = np.take_along_axis(draws.log_odds, order, axis=1)
    steps = scores[:, 1:] != scores[:, :-1]
    usable = np.pad(steps, ((0, 0), (1, 1)), constant_values=True)
    return np.take_along_axis(draws.bits, order, axis=1), usable


def _corners(
    x: NDArray[np.int64], y: NDArray[np.int64], usable: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Mark the corners of the upper hull of each row of points, from end to end."""
    found = np.zeros(y.shape, np.bool_)
    rows, at = np.arange(len(y)), np.zeros(len(y), np.int64)
    last = len(x) - 1
    found[:, [0, last]] = True
    while np.any(at < last):
        ahead = usable & (x > at[:, np.newaxis])
        run = np.where(ahead, x - at[:, np.newaxis], 1)
        slopes = np.where(ahead, (y - y[rows, at][:, np.newaxis]) / run, -np.inf)
        # The last of the steepest: a corner, not a point on an edge.
        at = np.where(at < last, last - slopes[:, ::-1].argmax(axis=1), last)
        found[rows, at] = True
    return found
