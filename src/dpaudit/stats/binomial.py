"""Binomial tails in log space, accurate where they are far below any float.

The tail over the mass, ``P[B >= v] / P[B = v]``, is a sum of products of ratios of
neighbouring masses. Summing those (a Mills series) never forms the tail itself, so
nothing underflows. Each side is summed from ``v`` outwards, away from the bulk.
"""

import numpy as np
from scipy import special

__all__ = ["log_mass", "log_tails", "rate_limits"]


def log_mass(v: int, r: int, log_odds: float) -> float:
    """Return log P[B = v] for B ~ Bin(r, expit(log_odds))."""
    ways = special.gammaln(r + 1) - special.gammaln(v + 1) - special.gammaln(r - v + 1)
    odds = v * special.log_expit(log_odds) + (r - v) * special.log_expit(-log_odds)
    return float(ways + odds)


def log_tails(v: int, r: int, log_odds: float) -> tuple[float, float]:
    """Return (log P[B >= v], log P[B < v]) for B ~ Bin(r, expit(log_odds)).

    Example:
        >>> round(log_tails(21000, 30000, 0.0)[0], 7)
        -2473.2199657
    """
    mass = log_mass(v, r, log_odds)
    if v > r * special.expit(log_odds):
        i = np.arange(1, r - v + 1)
        steps = np.cumsum(np.log(r - v - i + 1) - np.log(v + i) + log_odds)
        upper = min(0.0, mass + float(special.logsumexp(np.append(steps, 0.0))))
        return upper, _log_complement(upper)
    i = np.arange(1, v + 1)
    steps = np.cumsum(np.log(v - i + 1) - np.log(r - v + i) - log_odds)
    lower = min(0.0, mass + float(special.logsumexp(steps))) if v else -np.inf
    return _log_complement(lower), lower


def rate_limits(hits: int, trials: int, *, alpha: float) -> tuple[float, float]:
    """Return Clopper-Pearson limits for a rate; each is wrong at most ``alpha / 2``.

    Example:
        >>> low, high = rate_limits(0, 300, alpha=0.05)
        >>> low, round(high, 4)
        (0.0, 0.0122)
    """
    low = special.betaincinv(hits, trials - hits + 1, alpha / 2) if hits else 0.0
    high = (
        special.betainccinv(hits + 1, trials - hits, alpha / 2)
        if hits < trials
        else 1.0
    )
    return float(low), float(high)


def _log_complement(log_p: float) -> float:
    return float(np.log(-np.expm1(log_p))) if log_p < 0 else -np.inf
