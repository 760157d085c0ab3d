"""What to expect of a one-run audit of Dirac canaries, from the law of guesses.

All canaries of a coordinate have the same log-odds, so the surest guesses are those of
the surest coordinates. Among ``d`` coordinates the one with the ``i``-th part ``u`` of
the law above it belongs to the surest ``a`` with chance ``P[Bin(d - 1, u) < a]``, and
its guesses are right with the chance that the law gives them: that is the mean of the
number ``V`` of right guesses. Its variance is that of the coins of the surest
coordinates, plus that of which coordinates they are, for which the surest that is left
out is the measure of how much one more adds (the influence function of a trimmed sum).
The number of wrong guesses is then taken to be binomial or negative binomial with that
mean and variance: with few wrong guesses a normal law would be too crude.

Whatever is predicted here, the bound of an audit is exact and rests on no prediction.
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

_FEWEST = 8  # guesses: fewer show next to nothing
_RESOLVED = 24  # simulated coordinates above an edge: fewer do not tell where it is
_MANY = 200  # coordinates whose number is about normal
_RATIO = 1.3  # between numbers of guesses that are tried
_REACH = 7.0  # standard deviations looked at
_POINTS = 200  # numbers of right guesses looked at
_HALVINGS = 45
_KNOTS = 4096


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What is expected of a lower bound on epsilon.

    Attributes:
        mean: Its mean.
        spread: Its standard deviation from run to run.
    """

    mean: float
    spread: float

    def __str__(self) -> str:
        return f"{self.mean:.3f}, give or take {self.spread:.3f}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OneRunForecast:
    """The law of right guesses of a one-run audit, by its mean and variance.

    Attributes:
        canaries: Canaries of the audit.
        guesses: How many of them are guessed.
        right: Mean number of right guesses.
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
        """Return the chance of at most so many right guesses."""
        # At most v right is at least guesses - v wrong.
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
        distribution: How surely coins are guessed.
        coordinates: Coordinates of the audit.
        delta: Of the bound.
        alpha: Chance of the bound being wrong.

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
    surest = most_confident_tried(distribution, d)
    forecasts = forecast_one_run(distribution, d, surest)
    right = np.array([each.right for each in forecasts])
    typical = exact_bounds(d * s, surest * s, right, delta=delta, alpha=alpha)
    return forecasts[int(np.argmax(typical))]


def most_confident_tried(
    distribution: GuessDistribution, coordinates: int
) -> NDArray[np.int64]:
    """Return numbers of surest coordinates to guess that the law can tell apart."""
    d, s = coordinates, distribution.per_coordinate
    most = np.log(max(d * s / _FEWEST, 1.0)) / np.log(_RATIO)
    tried = _FEWEST * _RATIO ** np.arange(int(most) + 1) / s
    least = min(d, _RESOLVED * d / distribution.coordinates)
    numbers = np.clip(np.append(tried, d).round(), max(1.0, least), d)
    return np.unique(numbers.astype(np.int64))


def forecast_one_run(
    distribution: GuessDistribution, coordinates: int, surest: NDArray[np.int64]
) -> list[OneRunForecast]:
    """Return a forecast for each number of surest coordinates that are guessed."""
    d, s, n = coordinates, distribution.per_coordinate, distribution.coordinates
    probability, coins, first, second = _ranked(distribution)
    found = []
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
        # Of (chance - edge) over the coordinates above the edge.
        sums = (first[last - 1] - last * edge) / n
        squares = second[last - 1] - 2 * edge * first[last - 1] + last * edge**2
        which = s**2 * (squares / n - sums**2)
        found.append(
            OneRunForecast(
                canaries=d * s,
                guesses=a * s,
                right=min(right, float(a * s)),
                variance=d * (float(coins[last - 1]) / n + max(0.0, float(which))),
            )
        )
    return found


@lru_cache(maxsize=4)
def _ranked(distribution: GuessDistribution) -> tuple[NDArray[np.float64], ...]:
    """Return chances, the surest first, and sums of variances, chances and squares."""
    order = np.argsort(-distribution.confidence[0], kind="stable")
    probability = np.asarray(special.expit(distribution.confidence[0][order]))
    coins = np.cumsum(np.maximum(distribution.variance[order], 0.0))
    return probability, coins, np.cumsum(probability), np.cumsum(probability**2)


def _among(a: int, coordinates: int, above: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the chance to be among the surest ``a``, with such a part above."""
    if a == coordinates:
        return np.ones(len(above))
    others = coordinates - 1
    if a < _MANY:
        return _at_most_one_less(a, others, above)
    spread = np.sqrt(others * above * (1 - above))
    return np.asarray(special.ndtr((a - 0.5 - others * above) / spread))


def _at_most_one_less(
    a: int, trials: int, rates: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return P[Bin(trials, rate) < a] at evenly spaced rates.

    Where the rates are many, the tail is summed at some thousand of them, and between
    those it is the cubic with its values and slopes: right to 1e-9 at least, as the
    rates that are asked for span no more than some tens of standard deviations.
    """
    each = len(rates) // _KNOTS
    if each < 2:
        return np.asarray(special.bdtr(a - 1, trials, rates))
    knots = rates[::each]
    value = special.bdtr(a - 1, trials, knots)[:, np.newaxis]
    mass = special.xlogy(a - 1, knots) + special.xlog1py(trials - a, -knots)
    slope = -np.exp(mass - special.betaln(a, trials - a + 1))[:, np.newaxis]
    slope *= knots[1] - knots[0]
    t = np.arange(each) / each
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
    """Return the exact bound for many counts at once, as well as floats allow.

    For plans only: ``ExactBound`` is what audits are judged by. Counts need not be
    whole.

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
    """Return exact p-values, as well as floats allow."""
    r, right = np.asarray(guesses, float), np.maximum(np.asarray(correct, float), 1e-9)
    p, q = special.expit(epsilon), special.expit(np.negative(epsilon))
    tail = special.betainc(right, r - right + 1, p)
    rest = special.betaincc(right, r - right + 1, p)
    choose = -np.log(r + 1) - special.betaln(r - right + 1, right + 1)
    mass = np.exp(choose + right * np.log(p) + special.xlogy(r - right, q))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # Far out a tail is a geometric series of its first mass, both too small.
        ratio = (r - right) * p / ((right + 1) * q)
        series = np.where(ratio < 1, 1 / (1 - ratio), np.inf)
        price = canaries * np.asarray(delta) / right
        price = price * np.where(mass > 1e-290, tail * rest / mass, series * rest)
    return np.asarray(tail + np.where(np.asarray(delta) * rest == 0, 0.0, price))


def least_right(
    canaries: int,
    guesses: ArrayLike,
    *,
    epsilons: NDArray[np.float64],
    deltas: NDArray[np.float64],
    alpha: float,
) -> NDArray[np.int64]:
    """Return from how many right guesses on some point of a claim is rejected.

    For plans only, as ``exact_bounds`` is. One more than the guesses if none suffice.

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
