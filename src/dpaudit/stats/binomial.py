"""Binomial masses and tails in log space, accurate far below the smallest float.

Masses follow Loader's saddle-point method ("Fast and accurate computation of binomial
probabilities", 2000): a sum of Stirling errors and deviances, each of which keeps its
relative accuracy, while a difference of log-gammas loses 5e-7 at a billion trials.

A tail divided by its mass, ``P[B >= v] / P[B = v]``, is a sum of products of ratios of
neighbouring masses (a Mills series). It never forms the tail itself, so nothing
underflows. Each side is summed from ``v`` outwards, away from the bulk, where the
ratios decrease; the sum stops when the rest is provably below one part in 1e17.
"""

from functools import lru_cache
from math import exp, expm1, inf, lgamma, log, log1p, pi

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from dpaudit.errors import UncertifiedError
from dpaudit.stats.search import largest_yes, least_yes

__all__ = [
    "binomial_distribution",
    "log_complement",
    "log_exact_tail",
    "log_mass",
    "log_odds_limit",
    "log_revealed_tail",
    "log_tail_and_price",
    "log_tails",
    "masses",
    "rate_limits",
    "window",
]

_LARGEST_LOG_ODDS = 1e280  # times any number of trials it does not overflow
_TERMS_AT_ONCE = 1 << 20  # terms of a series summed together
_MOST_CACHED = 1 << 11  # larger distributions are not cached: a few megabytes in all
_MOST_MASSES = 1 << 25  # a quarter of a gigabyte
_NEGLIGIBLE = (
    45.0  # this far below the largest log-concave term, the rest is 1e-17 of the sum
)
_SERIES_POWERS = range(3, 21, 2)  # 0.1 to the 20th is below rounding
_STIRLING_ERRORS = np.array(
    [0.0]
    + [lgamma(n + 1) - (n + 0.5) * log(n) + n - log(2 * pi) / 2 for n in range(1, 16)]
)


def log_mass(v: ArrayLike, r: int, log_odds: float) -> NDArray[np.float64]:
    """Return log P[B = v] for B ~ Bin(r, expit(log_odds)), for one v or many."""
    log_odds = min(max(log_odds, -_LARGEST_LOG_ODDS), _LARGEST_LOG_ODDS)
    if np.ndim(v) == 0:
        return np.asarray(_one_log_mass(float(v), float(r), log_odds))  # type: ignore[arg-type]
    right = np.asarray(v, np.float64)
    if r == 0:
        return np.zeros_like(right)  # no trials: certainly no success
    wrong = r - right
    inner = (right > 0) & (wrong > 0)
    x, y = np.where(inner, right, 1.0), np.where(inner, wrong, 1.0)
    stirling = _stirling_error(r) - _stirling_error(x) - _stirling_error(y)
    inside = (
        stirling
        - _deviance(x, r, log_odds)
        - _deviance(y, r, -log_odds)
        + 0.5 * (np.log(max(r, 1)) - np.log(2 * pi) - np.log(x) - np.log(y))
    )
    edge = np.where(
        wrong > 0, r * special.log_expit(-log_odds), r * special.log_expit(log_odds)
    )
    return np.asarray(np.where(inner, inside, edge))


def _one_log_mass(right: float, r: float, log_odds: float) -> float:
    """Return ``log_mass`` of one number, identical to the last bit, without arrays."""
    wrong = r - right
    if right <= 0 or wrong <= 0:
        return r * float(special.log_expit(-log_odds if wrong > 0 else log_odds))
    stirling = _one_stirling_error(r) - _one_stirling_error(right)
    return (
        stirling
        - _one_stirling_error(wrong)
        - _one_deviance(right, r, log_odds)
        - _one_deviance(wrong, r, -log_odds)
        + 0.5
        * float(np.log(max(r, 1.0)) - np.log(2 * pi) - np.log(right) - np.log(wrong))
    )


def log_tails(v: int, r: int, log_odds: float) -> tuple[float, float]:
    """Return (log P[B >= v], log P[B < v]) for B ~ Bin(r, expit(log_odds)).

    Reference: Keinan, Shenfeld and Ligett, "def:stochastic-dominance".

    Example:
        >>> round(log_tails(21000, 30000, 0.0)[0], 7)
        -2473.2199657
    """
    return _tails_and_mass(v, r, log_odds)[:2]


def log_exact_tail(v: int, r: int, log_total_delta: float, log_odds: float) -> float:
    """Return the log of the exact tail bound under (epsilon, delta), at most 0.

    It is ``beta + m delta beta (1 - beta) / (v b_v)``, where ``beta`` is the tail and
    ``b_v`` the mass at ``v`` of Bin(r, expit(log_odds)): the tail plus ``m delta``
    times its largest Stein solution.

    Example:
        >>> round(exp(log_exact_tail(3, 4, log(0.1), 0.0)), 6)  # 5 and 11 of 16, 4 at 3
        0.341146
    """
    upper, price = log_tail_and_price(v, r, log_total_delta, log_odds)
    if price == -inf:
        return upper
    return min(0.0, float(np.logaddexp(upper, price)))


def log_tail_and_price(
    v: int, r: int, log_total_delta: float, log_odds: float
) -> tuple[float, float]:
    """Return the logs of the two terms of ``log_exact_tail``: tail, price of delta."""
    upper, lower, mass = _tails_and_mass(v, r, log_odds)
    if log_total_delta == -inf or lower == -inf:
        return upper, -inf
    return upper, log_total_delta + upper + lower - log(v) - mass


def log_revealed_tail(
    v: int, r: int, n: int, *, probability: float, log_odds: float
) -> float:
    """Return the log of the tail of a count in which some successes are certain.

    Each of ``n`` coins is revealed with the same probability, ``K`` in all. Those count
    first, and at most ``r`` count: it is P[min(K, r) + Bin((r - K)^+, expit(log_odds))
    >= v].

    Both factors of a term, the mass of ``K = k`` and the tail of the rest, are
    log-concave in ``k`` (the second is the probability that more than ``r - k`` trials
    are needed for so many failures, a sum of geometric times). So the terms first
    increase, then decrease, and those that matter form an interval.

    Example:
        >>> round(exp(log_revealed_tail(1, 1, 2, probability=0.5, log_odds=0.0)), 9)
        0.875
    """
    if v <= 0 or v > r or probability == 0:
        return log_tails(v, r, log_odds)[0]
    if probability == 1:
        return 0.0
    odds = log(probability) - log1p(-probability)
    if r == n:  # every coin counts: revealed, or else a success
        either = float(np.logaddexp(log_odds, log(probability))) - log1p(-probability)
        return log_tails(v, r, either)[0]
    low, high = (
        (0, v) if v <= _MOST_CACHED else _terms_that_count(v, r, n, odds, log_odds)
    )
    k = np.arange(low, high)
    # From one count to the next: the mass changes by the ratio, the tail by the
    # probability that the removed trial was the decisive failure.
    up = np.log((n - k[:-1]) / k[1:]) + odds
    fewer = np.log((v - k[1:]) / (r - k[1:])) - special.log_expit(log_odds)
    first = log_mass(v - 1 - low, r - 1 - low, log_odds)
    revealed = np.append(log_mass(low, n, odds), up).cumsum()
    added = np.append(first + special.log_expit(-log_odds), fewer).cumsum()[:-1]
    tails = np.append(log_tails(v - low, r - low, log_odds)[0], added)
    some = np.logaddexp.reduce(revealed + np.logaddexp.accumulate(tails))
    return min(0.0, float(np.logaddexp(some, log_tails(v, n, odds)[0])))


def _terms_that_count(
    v: int, r: int, n: int, odds: float, log_odds: float
) -> tuple[int, int]:
    """Return the range of revealed counts, up to v, over which terms are summed."""

    def term(k: int) -> float:
        return float(log_mass(k, n, odds)) + log_tails(v - k, r - k, log_odds)[0]

    def falls(k: int) -> bool:
        if k == v - 1:
            return True
        upper, _, mass = _tails_and_mass(v - k, r - k, log_odds)
        tail = exp(mass - upper - log_odds) * (v - k) / (r - k)
        return log(n - k) - log(k + 1) + odds + log1p(tail) <= 0

    top = least_yes(falls, 0, v - 1) or 0
    far = term(top) - _NEGLIGIBLE
    low = least_yes(lambda k: term(k) >= far, 0, top) or 0
    high = least_yes(lambda k: term(k) < far, top, v - 1)
    return low, v if high is None else high


def _tails_and_mass(v: int, r: int, log_odds: float) -> tuple[float, float, float]:
    """Return the logs of P[B >= v], P[B < v] and, for v from 1 to r, P[B = v]."""
    if v <= 0:
        return 0.0, -inf, -inf
    if v > r:
        return -inf, 0.0, -inf
    mass = float(log_mass(v, r, log_odds))
    if v > r * float(special.expit(log_odds)):
        upper = min(0.0, mass + log1p(_mills(r - v, v, log_odds)))
        return upper, log_complement(upper), mass
    below = _mills(v, r - v, -log_odds)
    lower = min(0.0, mass + log(below)) if below > 0 else -inf
    return log_complement(lower), lower, mass


def log_complement(log_p: float) -> float:
    """Return log(1 - e^log_p) without loss at either end."""
    if log_p >= 0:
        return -inf
    return log(-expm1(log_p)) if log_p > -0.6931 else log1p(-exp(log_p))


def masses(
    r: int, log_odds: float, *, spread: float
) -> tuple[int, NDArray[np.float64]]:
    """Return the masses of Bin(r, expit(log_odds)) within some standard deviations.

    Args:
        r: Trials.
        log_odds: Log-odds of a success.
        spread: Half-width of the window, in standard deviations, at least 8: the mass
            outside must be negligible, since the masses are normalised to sum to one.

    Returns:
        The smallest count of the window, and the masses from there upwards, with a
        relative accuracy of about 1e-12, far from the mean too.

    Raises:
        UncertifiedError: They would take too much memory.
    """
    low, high = window(r, log_odds, spread=spread)
    if high - low < _MOST_CACHED:
        return low, _cached_masses(r, float(log_odds), low, high)
    if high - low > _MOST_MASSES:
        raise UncertifiedError(
            f"{r:.3g} trials have {high - low:,} counts that matter, too many to sum "
            "over; with at most 1e12 trials there is memory for them"
        )
    return low, _masses(r, log_odds, low, high)


def _masses(r: int, log_odds: float, low: int, high: int) -> NDArray[np.float64]:
    top = min(high, max(low, int((r + 1) * float(special.expit(log_odds))))) - low
    k = np.arange(low, high + 1, dtype=np.float64)
    probabilities = np.ones(len(k))
    up = (r - k[top:-1]) / k[top + 1 :] * exp(min(log_odds, 700.0))
    np.multiply.accumulate(up, out=probabilities[top + 1 :])
    down = k[1 : top + 1] / (r - k[:top]) * exp(min(-log_odds, 700.0))
    np.multiply.accumulate(down[::-1], out=probabilities[:top][::-1])
    probabilities /= probabilities.sum()
    probabilities.flags.writeable = False  # some are cached
    return probabilities


# Testing one claim on a game in rounds takes many counts of few sizes.
_cached_masses = lru_cache(maxsize=1024)(_masses)


def binomial_distribution(trials: int, log_odds: float) -> NDArray[np.float64]:
    """Return the masses of Bin(trials, expit(log_odds)) at 0, 1, ..., trials.

    Example:
        >>> binomial_distribution(2, 0.0).round(9)
        array([0.25, 0.5 , 0.25])
    """
    log_ways = _cached_log_ways if trials < _MOST_CACHED else _log_ways
    log_weights = log_ways(trials) + np.arange(trials + 1) * log_odds
    return np.asarray(np.exp(log_weights + trials * special.log_expit(-log_odds)))


def _log_ways(trials: int) -> NDArray[np.float64]:
    """Return the logs of the binomial coefficients of 0, 1, ... of the trials."""
    k = np.arange(trials + 1)
    ways = special.gammaln([trials + 1.0]) - special.gammaln(k + 1.0)
    return np.asarray(ways - special.gammaln(trials - k + 1.0))


_cached_log_ways = lru_cache(maxsize=256)(_log_ways)  # calibrations use a few, often


def window(r: int, log_odds: float, *, spread: float) -> tuple[int, int]:
    """Return the smallest and largest count within some standard deviations."""
    p, q = float(special.expit(log_odds)), float(special.expit(-log_odds))
    reach = spread * (r * p * q) ** 0.5 + spread
    return max(0, int(r * p - reach)), min(r, int(r * p + reach) + 1)


def log_odds_limit(hits: int, trials: int, *, log_alpha: float) -> float:
    """Return the Clopper-Pearson lower limit of a rate, as log-odds, at least 0.

    It is the largest log-odds at which that many hits or more have probability at most
    alpha; 0.0 if even a rate of one half is not rejected.

    Reference: Keinan, Shenfeld and Ligett, "def:clopper-pearson-lower".

    Example:
        >>> round(log_odds_limit(75, 100, log_alpha=np.log(0.05)), 6)
        0.702214
    """
    return largest_yes(lambda x: log_tails(hits, trials, x)[0] <= log_alpha)


def rate_limits(hits: float, trials: float, *, alpha: float) -> tuple[float, float]:
    """Return Clopper-Pearson limits of a rate, each wrong with prob. ``alpha / 2``.

    Non-integer numbers stand for trials of unequal weight; the limits are then
    approximate.

    Reference: Keinan, Shenfeld and Ligett, "lem:convergence-of-clopper-pearson-lower",
    "lem:convergence-of-clopper-pearson-lower-for-random-variables".

    Example:
        >>> low, high = rate_limits(0, 300, alpha=0.05)
        >>> low, round(high, 4)
        (0.0, 0.0122)
    """
    misses = trials - hits
    low = special.betaincinv(hits, misses + 1, alpha / 2) if hits else 0.0
    high = special.betainccinv(hits + 1, misses, alpha / 2) if misses else 1.0
    return float(low), float(high)


def _stirling_error(n: ArrayLike) -> NDArray[np.float64]:
    """Return log n! minus Stirling's formula."""
    x = np.asarray(n, np.float64)
    large = np.maximum(x, 16.0)
    i = 1 / (large * large)
    series = (
        1 / 12 - i * (1 / 360 - i * (1 / 1260 - i * (1 / 1680 - i / 1188)))
    ) / large
    return np.where(
        x < 16, _STIRLING_ERRORS[np.minimum(x, 15).astype(np.int64)], series
    )


def _deviance(x: NDArray[np.float64], r: int, log_odds: float) -> NDArray[np.float64]:
    """Return x log(x / m) + m - x, where m is the mean r expit(log_odds)."""
    m = r * float(special.expit(log_odds))
    log_p = float(special.log_expit(log_odds))
    u = (x - m) / (x + m)
    near = np.abs(u) < 0.1
    w = np.where(near, u, 0.0)
    series, power = np.zeros_like(w), w
    for odd in _SERIES_POWERS:
        power = power * w * w
        series += power / odd
    close = (x - m) * w + 2 * x * series
    far = x * (np.log(x / r) - log_p) + (m - x)
    return np.where(near, close, far)


def _one_stirling_error(n: float) -> float:
    if n < 16:
        return float(_STIRLING_ERRORS[int(n)])
    i = 1 / (n * n)
    return (1 / 12 - i * (1 / 360 - i * (1 / 1260 - i * (1 / 1680 - i / 1188)))) / n


def _one_deviance(x: float, r: float, log_odds: float) -> float:
    m = r * float(special.expit(log_odds))
    w = (x - m) / (x + m)
    if abs(w) >= 0.1:
        log_p = float(special.log_expit(log_odds))
        return x * (float(np.log(x / r)) - log_p) + (m - x)
    series, power = 0.0, w
    for odd in _SERIES_POWERS:
        power = power * w * w
        series += power / odd
    return (x - m) * w + 2 * x * series


def _mills(ahead: int, behind: int, log_odds: float) -> float:
    """Sum the products of (ahead - i + 1) / (behind + i) e^log_odds over i = 1, 2, ...

    The ratios must be below one, as they are away from the bulk.
    """
    odds = exp(log_odds)
    total, term, start, size = 0.0, 1.0, 0, 64
    while start < ahead:
        i = np.arange(start + 1, min(start + size, ahead) + 1, dtype=np.float64)
        terms = term * np.cumprod((ahead - i + 1) / (behind + i) * odds)
        total += float(terms.sum())
        term, start, size = (
            float(terms[-1]),
            start + len(i),
            min(4 * size, _TERMS_AT_ONCE),
        )
        ratio = (ahead - start) / (behind + start + 1) * odds
        if term * ratio <= 1e-17 * total * (1 - ratio):
            break
    return total
