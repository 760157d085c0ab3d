"""Others' rules that choose a threshold by looking at the labels, re-stated.

"Included" is guessed for the scores above a threshold. Which threshold is best is read
off the same labelled scores that the bound is then computed from.
"""

from dataclasses import dataclass
from math import isqrt
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.privacy.guarantees import ApproxDP, GaussianDP
from dpaudit.theory.adaptive import surprising_counts
from dpaudit_lab.calibration.draws import Draws, binomial_tail

__all__ = [
    "BestClopperPearson",
    "BestPair",
    "BestThreshold",
    "GaussianByAbs",
    "HullBonferroni",
    "by_score",
]

_FRONT = ((0, 0), (1, 0))  # a column of zeros before the first
_DELTA = 1e-5  # where a Gaussian's epsilon is read off, as was measured


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
        guesses, correct, usable = _above(draws)
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
        bits, usable = by_score(draws)
        n = bits.shape[1]
        walk = np.cumsum(2 * bits.astype(np.int64) - 1, axis=1)
        excluded = n - bits.sum(axis=1, dtype=np.int64)
        best = excluded + np.where(usable[:, 1:], walk, 0).max(axis=1, initial=0)
        return np.asarray(binomial_tail(best, n, claim.epsilon) <= alpha)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BestPair:
    """ml_privacy_meter e384af8: the best over a grid of (k_neg, k_pos), uncorrected.

    The lowest scores are guessed "excluded" and the highest "included". Where the lower
    part ends and the higher begins are multiples of the square root of the number of
    canaries, about half as many pairs as there are canaries. Measured at epsilon = 0:
    27 / 47 / 58 % at 100 / 1,000 / 10,000 canaries; this one: 24 / 47 / 58 %.
    """

    name: str = "ml_privacy_meter e384af8: best of its grid"

    def rejects(
        self, draws: Draws, claim: ApproxDP, alpha: float, rng: np.random.Generator
    ) -> NDArray[np.bool_]:
        """Reject if any pair does."""
        del rng
        bits, _ = by_score(draws)
        n = bits.shape[1]
        edges = np.arange(0, n, isqrt(n))
        begins, ends = np.tril_indices(len(edges), -1)
        zeros = np.pad(np.cumsum(1 - bits[:, ::-1].astype(np.int64), axis=1), _FRONT)
        below = zeros[:, edges]  # right ones if the lowest so many are "excluded"
        above = (n - edges) - (zeros[:, -1:] - below)
        guesses = edges[ends] + n - edges[begins]
        enough = surprising_counts(n, claim.epsilon, alpha)[guesses - 1]
        right = below[:, ends] + above[:, begins]
        return np.asarray((right >= enough).any(axis=1))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianByAbs:
    """jax_privacy 2.0.0, epsilon_from_gdp: the absolute value of a lower limit.

    At the corners of the hull, upper limits of both error rates give a lower limit of
    mu. A negative one means that nothing is known; its absolute value, which is taken,
    is large. Measured at epsilon = 0: an epsilon above 0.01 at delta 1e-5 in 99 to
    100 % of runs, 4.4 in the median at a thousand canaries. Corners at which a limit
    is one are left out here.
    """

    name: str = "jax_privacy 2.0.0: epsilon_from_gdp"

    def rejects(
        self, draws: Draws, claim: ApproxDP, alpha: float, rng: np.random.Generator
    ) -> NDArray[np.bool_]:
        """Read the largest absolute mu as an epsilon."""
        del rng
        guesses, correct, usable = _above(draws)
        corners = _corners(guesses, correct, usable)
        ones = correct[:, -1:]
        level = alpha / 2 / corners.sum(axis=1, keepdims=True)
        false_alarm = _upper(guesses - correct, guesses[-1] - ones, level)
        miss = _upper(ones - correct, ones, level)
        known = corners & (false_alarm < 1) & (miss < 1)
        with np.errstate(invalid="ignore"):
            mu = np.abs(special.ndtri(1 - false_alarm) - special.ndtri(miss))
        largest = np.where(known, mu, 0.0).max(axis=1)
        delta = max(claim.delta, _DELTA)
        return np.array(
            [GaussianDP(mu=float(m)).delta_at(claim.epsilon) > delta for m in largest]
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BestClopperPearson:
    """PrivacyGuard fb9c26c, eps_cp: the best threshold's limits, uncorrected.

    At every threshold the chance of a true alarm is bounded below and that of a false
    one above, each at alpha / 2; the largest ratio counts. privacy-estimates 66d2d45
    and tensorflow_privacy's lower bounds are read in the same way. Measured of the
    first at epsilon = 0, a thousand canaries: 7 %.
    """

    name: str = "PrivacyGuard fb9c26c: eps_cp, best threshold"

    def rejects(
        self, draws: Draws, claim: ApproxDP, alpha: float, rng: np.random.Generator
    ) -> NDArray[np.bool_]:
        """Reject if the ratio of limits is too large at some threshold."""
        del rng
        guesses, correct, usable = _above(draws)
        ones = correct[:, -1:]
        false_alarm = _upper(guesses - correct, guesses[-1] - ones, alpha / 2)
        alarm = 1 - _upper(ones - correct, ones, alpha / 2)
        too_large = alarm - claim.delta > np.exp(claim.epsilon) * false_alarm
        return np.asarray((too_large & usable).any(axis=1))


def _upper(
    hits: NDArray[np.int64],
    trials: NDArray[np.int64],
    level: float | NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return upper Clopper-Pearson limits of rates; one where all were hits."""
    misses = trials - hits
    found = special.betaincinv(hits + 1, np.maximum(misses, 1), 1 - np.asarray(level))
    return np.where(misses > 0, found, 1.0)


def by_score(draws: Draws) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Return the coins, highest score first, and after how many a threshold fits."""
    order = np.argsort(-draws.log_odds, axis=1, kind="stable")
    scores = np.take_along_axis(draws.log_odds, order, axis=1)
    steps = scores[:, 1:] != scores[:, :-1]
    usable = np.pad(steps, ((0, 0), (1, 1)), constant_values=True)
    return np.take_along_axis(draws.bits, order, axis=1), usable


def _above(
    draws: Draws,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Return what "included" for the highest 0, 1, ... scores comes to.

    The numbers of guesses, how many are right in each draw, and where a threshold fits.
    """
    bits, usable = by_score(draws)
    guesses = np.arange(bits.shape[1] + 1)
    correct = np.pad(np.cumsum(bits, axis=1, dtype=np.int64), _FRONT)
    return guesses, correct, usable


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
