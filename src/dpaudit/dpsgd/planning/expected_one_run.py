"""Forecasts a one-run audit of Dirac canaries, from the distribution of guesses.

All canaries of a coordinate have the same log-odds, so the most confident guesses are
those of the most confident coordinates. Among ``d`` coordinates, one with a fraction
``u`` of the distribution above it is among the ``a`` most confident with probability
``P[Bin(d - 1, u) < a]``, and its guesses are correct with the probability that the
distribution gives: this yields the mean of the number ``V`` of correct guesses. Its
variance is that of the coins of the most confident coordinates, plus that of which
coordinates these are, where the most confident one left out measures how much one more
adds (the influence function of a trimmed sum). The number of wrong guesses is then
taken to be binomial or negative binomial with that mean and variance: with few wrong
guesses a normal distribution would be too crude.

The bound of an audit is exact and does not depend on these forecasts.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from dpaudit.dpsgd.planning.guess_distribution import GuessDistribution
from dpaudit.game.rules import OneRun

__all__ = [
    "Expected",
    "OneRunForecast",
    "best_one_run",
    "exact_bounds",
    "forecast_one_run",
    "least_right",
    "most_confident_tried",
]

_FEWEST_GUESSES = 8  # fewer give almost no evidence
_RESOLVED = 24  # simulated coordinates above an edge, needed to locate it
_NORMAL_FROM = 200  # coordinates; from here on their number is about normal
_RATIO = 1.3  # between numbers of guesses that are tried
_REACH = 7.0  # standard deviations covered
_POINTS = 200  # numbers of correct guesses evaluated
_HALVINGS = 45
_KNOTS = 4096


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The mean and the spread of a lower bound on epsilon.

    Attributes:
        mean: Its mean.
        spread: Its standard deviation from run to run.
    """

    mean: float
    spread: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.spread:.3f}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OneRunForecast:
    """The distribution of correct guesses in a one-run audit, by mean and variance.

    Attributes:
        canaries: The number of canaries.
        guesses: The number of them that are guessed.
        right: Mean number of correct guesses.
        variance: Its variance.
    """

    canaries: int
    guesses: int
    right: float
    variance: float

    @property
    def rules(self) -> OneRun:
        """The rules of the audit."""
        return OneRun(guesses=self.guesses)

    def at_most(self, correct: ArrayLike) -> NDArray[np.float64]:
        """Return the probability of at most so many correct guesses."""
        # At most v correct is at least guesses - v wrong.
        wrong = self.guesses - np.asarray(correct, np.float64)
        mean, variance = max(self.guesses - self.right, 1e-9), max(self.variance, 1e-9)
        if variance < mean:  # binomial; its number of trials need not be whole
            trials = max(mean**2 / (mean - variance), mean + 1)
            inside = np.clip(wrong, 1e-9, trials)
            tail = special.betainc(inside, trials - inside + 1, mean / trials)
            tail = np.where(wrong > trials, 0.0, tail)
        else:
            size = mean**2 / max(variance - mean, 1e-6 * mean)
            tail = special.betainc(np.maximum(wrong, 1e-9), size, mean / (size + mean))
        return np.asarray(np.where(wrong <= 0, 1.0, tail))

    def expected(self, *, delta: float, alpha: float) -> Expected:
        """Return the mean and the spread of the exact bound."""
        reach = _REACH * sqrt(self.variance) + 1
        low = max(0, int(self.right - reach))
        high = min(self.guesses, int(self.right + reach) + 1)
        v = np.unique(np.linspace(low, high, _POINTS).round())
        between = self.at_most(np.floor((v[1:] + v[:-1]) / 2))
        probabilities = np.diff(np.concatenate([[0.0], between, [1.0]]))
        bounds = exact_bounds(self.canaries, self.guesses, v, delta=delta, alpha=alpha)
        mean = float(probabilities @ bounds)
        return Expected(
            mean=mean, spread=sqrt(float(probabilities @ (bounds - mean) ** 2))
        )


def best_one_run(
    distribution: GuessDistribution, *, coordinates: int, delta: float, alpha: float
) -> OneRunForecast:
    """Return the forecast for the number of guesses that is best on average.

    Args:
        distribution: The distribution of the guesses' confidence.
        coordinates: Coordinates of the audit.
        delta: Delta of the bound.
        alpha: Significance level.

    Example:
        >>> from dpaudit.dpsgd.planning.guess_distribution import guess_distribution
        >>> from dpaudit.dpsgd.planning.training import TrainingSetup
        >>> training = TrainingSetup(steps=1, rate=1.0, noise=2.0)
        >>> distribution = guess_distribution(
        ...     training, per_coordinate=3, coordinates=20_000, seed=1
        ... )
        >>> best = best_one_run(distribution, coordinates=1000, delta=1e-5, alpha=0.05)
        >>> 0.7 < best.expected(delta=1e-5, alpha=0.05).mean < 0.9
        True
    """
    d, s = coordinates, distribution.per_coordinate
    numbers = most_confident_tried(distribution, d)
    forecasts = forecast_one_run(distribution, d, numbers)
    correct = np.array([each.right for each in forecasts])
    typical = exact_bounds(d * s, numbers * s, correct, delta=delta, alpha=alpha)
    return forecasts[int(np.argmax(typical))]


def most_confident_tried(
    distribution: GuessDistribution, coordinates: int
) -> NDArray[np.int64]:
    """Return numbers of coordinates to guess, as far as the sample resolves them."""
    d, s = coordinates, distribution.per_coordinate
    most = np.log(max(d * s / _FEWEST_GUESSES, 1.0)) / np.log(_RATIO)
    tried = _FEWEST_GUESSES * _RATIO ** np.arange(int(most) + 1) / s
    least = min(d, _RESOLVED * d / distribution.coordinates)
    numbers = np.clip(np.append(tried, d).round(), max(1.0, least), d)
    return np.unique(numbers.astype(np.int64))


def forecast_one_run(
    distribution: GuessDistribution, coordinates: int, surest: NDArray[np.int64]
) -> list[OneRunForecast]:
    """Return a forecast for each number of most confident coordinates to guess."""
    d, s, n = coordinates, distribution.per_coordinate, distribution.coordinates
    probability, coins, first, second = _ranked(distribution)
    forecasts = []
    for a in surest.tolist():
        spare = _REACH * sqrt(a) + 10
        sure, end = (np.clip((a + spare * k) * n / d, 0, n) for k in (-1, 1))
        window = slice(int(sure), int(end) + 1)
        among = _among(a, d, (np.arange(n)[window] + 0.5) / n)
        edges = float(np.sum(among * probability[window]))
        sure_ones = float(first[window.start - 1]) if window.start else 0.0
        right = s * d / n * (edges + sure_ones)
        last = min(n, max(1, round(a * n / d)))
        edge = probability[last - 1]
        # Moments of (probability - edge) over the coordinates above the edge.
        sums = (first[last - 1] - last * edge) / n
        squares = second[last - 1] - 2 * edge * first[last - 1] + last * edge**2
        which = s**2 * (squares / n - sums**2)
        forecasts.append(
            OneRunForecast(
                canaries=d * s,
                guesses=a * s,
                right=min(right, float(a * s)),
                variance=d * (float(coins[last - 1]) / n + max(0.0, float(which))),
            )
        )
    return forecasts


@lru_cache(maxsize=4)
def _ranked(distribution: GuessDistribution) -> tuple[NDArray[np.float64], ...]:
    """Return probabilities, falling, and sums of variances, of them, of squares."""
    order = np.argsort(-distribution.confidence[0], kind="stable")
    probability = np.asarray(special.expit(distribution.confidence[0][order]))
    coins = np.cumsum(np.maximum(distribution.variance[order], 0.0))
    return probability, coins, np.cumsum(probability), np.cumsum(probability**2)


def _among(a: int, coordinates: int, above: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the probability to be in the top ``a``, with a fraction ``above``."""
    if a == coordinates:
        return np.ones(len(above))
    others = coordinates - 1
    if a < _NORMAL_FROM:
        return _at_most_one_less(a, others, above)
    spread = np.sqrt(others * above * (1 - above))
    return np.asarray(special.ndtr((a - 0.5 - others * above) / spread))


def _at_most_one_less(
    a: int, trials: int, rates: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return P[Bin(trials, rate) < a] at evenly spaced rates.

    For many rates, the tail is computed at some thousand of them and interpolated by
    the cubic with its values and slopes: accurate to at least 1e-9, as the rates span
    no more than some tens of standard deviations.
    """
    spacing = len(rates) // _KNOTS
    if spacing < 2:
        return np.asarray(special.bdtr(a - 1, trials, rates))
    knots = rates[::spacing]
    value = special.bdtr(a - 1, trials, knots)[:, np.newaxis]
    mass = special.xlogy(a - 1, knots) + special.xlog1py(trials - a, -knots)
    slope = -np.exp(mass - special.betaln(a, trials - a + 1))[:, np.newaxis]
    slope *= knots[1] - knots[0]
    t = np.arange(spacing) / spacing
    step, begin, end = t**2 * (3 - 2 * t), t * (1 - t) ** 2, t**2 * (t - 1)
    between = value[:-1] + np.diff(value, axis=0) * step
    between += slope[:-1] * begin + slope[1:] * end
    rest = special.bdtr(a - 1, trials, rates[between.size :])
    return np.concatenate([between.ravel(), rest])


def exact_bounds(
    canaries: int,
    guesses: ArrayLike,
    correct: ArrayLike,
    *,
    delta: float,
    alpha: float,
) -> NDArray[np.float64]:
    """Return the exact bound for many counts at once, to floating-point accuracy.

    For plans only: audits are judged by ``ExactBound``. Counts need not be whole.

    Example:
        >>> from dpaudit.bounds import Counts, ExactBound
        >>> found = exact_bounds(1000, 100, [80, 100], delta=1e-5, alpha=0.05)
        >>> for right, bound in zip((80, 100), found):
        ...     counts = Counts(canaries=1000, guesses=100, correct=right)
        ...     exact = ExactBound().epsilon_lower(counts, delta=1e-5, alpha=0.05)
        ...     print(abs(exact.epsilon_lower - bound) < 1e-6)
        True
        True
    """
    r, v = np.broadcast_arrays(np.asarray(guesses, float), np.asarray(correct, float))
    low, high = np.zeros(v.shape), np.full(v.shape, 40.0)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        rejected = _p_values(canaries, r, v, middle, delta) <= alpha
        low, high = np.where(rejected, middle, low), np.where(rejected, high, middle)
    return np.asarray(low)


def _p_values(
    canaries: int,
    guesses: ArrayLike,
    correct: ArrayLike,
    epsilon: ArrayLike,
    delta: ArrayLike,
) -> NDArray[np.float64]:
    """Return exact p-values, to floating-point accuracy."""
    r, right = np.asarray(guesses, float), np.maximum(np.asarray(correct, float), 1e-9)
    p, q = special.expit(epsilon), special.expit(np.negative(epsilon))
    tail = special.betainc(right, r - right + 1, p)
    rest = special.betaincc(right, r - right + 1, p)
    choose = -np.log(r + 1) - special.betaln(r - right + 1, right + 1)
    mass = np.exp(choose + right * np.log(p) + special.xlogy(r - right, q))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # Far out, where both underflow, a tail is a geometric series of its first mass.
        ratio = (r - right) * p / ((right + 1) * q)
        series = np.where(ratio < 1, 1 / (1 - ratio), np.inf)
        price = canaries * np.asarray(delta) / right
        known = (mass > 1e-290) & (tail > 0)
        price = price * np.where(known, tail * rest / mass, series * rest)
    return np.asarray(tail + np.where(np.asarray(delta) * rest == 0, 0.0, price))


def least_right(
    canaries: int,
    guesses: ArrayLike,
    *,
    epsilons: NDArray[np.float64],
    deltas: NDArray[np.float64],
    alpha: float,
) -> NDArray[np.int64]:
    """Return the fewest correct guesses that reject some point of a claim.

    For plans only, like ``exact_bounds``. One more than the guesses if none suffice.

    Example:
        >>> point = {"epsilons": np.array([1.0]), "deltas": np.array([0.0])}
        >>> least_right(100, [100, 2], **point, alpha=0.05)
        array([81,  3])
    """
    r = np.asarray(guesses, np.int64)
    low, high = np.full(r.shape, -1), r + 1  # none is never enough
    while np.any(high - low > 1):
        middle = np.clip((low + high) // 2, 0, r)
        asked = (r[:, np.newaxis], middle[:, np.newaxis], epsilons, deltas)
        enough = _p_values(canaries, *asked).min(axis=1) <= alpha
        done = high - low <= 1
        high = np.where(enough & ~done, middle, high)
        low = np.where(~enough & ~done, middle, low)
    return high
