"""The normal score of a weighted count, with a limit on the effect of one success.

A count of successes in classes, each class with a whole-number weight, is turned into
the standard normal quantile of its tail, ties being broken by a uniform number: if the
successes are independent and have the assumed probabilities, the score is exactly
standard normal. Then it is *limited*: it is lowered, as little as needed, until one
more success raises it by no more than a given step,

    limited(w) = min over t >= 0 of  score(max(0, w - t top)) + t step,

``top`` being the largest weight. Both increase with every success. The limited score is
never above the score, so a standard normal dominates it, and the effect of one success
on it is bounded whatever the sizes of the classes.

Masses of the count below 1e-14 are not resolved: scores are cut at about 7.6 on both
sides. Above that is safe; below it adds at most 1e-14 to any probability.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.stats.binomial import masses

__all__ = [
    "UNRESOLVED",
    "empty_score",
    "limited_score",
]

UNRESOLVED: Final = 1e-14  # more than the error of windows and transform
_SCORE_RANGE = 15.4  # slightly more than twice the largest resolved score
_SPREAD = 9.5  # standard deviations; the two tails beyond hold 2e-21


def limited_score(
    weights: NDArray[np.int64],
    trials: NDArray[np.int64],
    score: int,
    *,
    log_odds: float,
    uniform: float,
    step: float,
) -> float:
    """Return the limited normal score of a weighted count.

    Args:
        weights: The weight of each class, a whole number from 1 up.
        trials: Number of trials in each class.
        score: The total weight of the successes.
        log_odds: The assumed log-odds of a success.
        uniform: Breaks ties; independent of everything else.
        step: The most that one success may add; infinity for no limit.

    Example:
        >>> one, hundred = np.array([1]), np.array([100])
        >>> for most in (np.inf, 0.21):
        ...     print(
        ...         round(
        ...             limited_score(
        ...                 one, hundred, 75, log_odds=0.0, uniform=0.5, step=most
        ...             ),
        ...             3,
        ...         )
        ...     )
        5.083
        5.079
    """
    if not trials.any():
        return empty_score(uniform)
    top = int(weights[trials > 0].max())
    # All scores lie within _SCORE_RANGE, so that removing more cannot lower the sum.
    most = min(-(-score // top), int(min(_SCORE_RANGE / step, score)) + 1)
    removed = np.arange(most + 1)
    places = np.maximum(score - removed * top, 0)
    less, tie, more = _parts(*_distribution(weights, trials, log_odds), places)
    upper, lower = more + uniform * tie, less + (1 - uniform) * tie
    scores = np.where(
        upper <= lower,
        -special.ndtri(np.minimum(upper + UNRESOLVED, 0.75)),
        special.ndtri(np.clip(lower, UNRESOLVED, 0.75)),
    )
    return float(np.min(scores + removed * min(step, _SCORE_RANGE)))


def empty_score(uniform: float) -> float:
    """Return the score if there are no trials: a standard normal from the uniform.

    Example:
        >>> round(empty_score(0.05), 3)
        1.645
    """
    return float(-special.ndtri(min(max(uniform, UNRESOLVED), 1 - UNRESOLVED)))


def _parts(
    start: int, distribution: NDArray[np.float64], places: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the probabilities below each place, at the place, and above it."""
    padded = np.concatenate([[0.0], distribution, [0.0]])
    place = np.clip(places - start + 1, 0, len(padded) - 1)
    less = np.concatenate([[0.0], np.cumsum(padded)])[place]
    more = np.concatenate([np.cumsum(padded[::-1])[::-1], [0.0]])[place + 1]
    return less, padded[place], more


def _distribution(
    weights: NDArray[np.int64], trials: NDArray[np.int64], log_odds: float
) -> tuple[int, NDArray[np.float64]]:
    """Return the distribution of the weighted count, from a first value upwards."""
    starts, distributions = [], []
    for weight, count in zip(weights, trials, strict=True):
        if count == 0:
            continue
        low, probabilities = masses(int(count), log_odds, spread=_SPREAD)
        spaced = np.zeros((len(probabilities) - 1) * int(weight) + 1)
        spaced[:: int(weight)] = probabilities
        starts.append(low * int(weight))
        distributions.append(spaced)
    length = sum(len(distribution) - 1 for distribution in distributions) + 1
    if len(distributions) == 1:
        return starts[0], distributions[0]
    size = 1 << (length - 1).bit_length()
    spectrum = np.ones(size // 2 + 1, np.complex128)
    for distribution in distributions:
        spectrum *= np.fft.rfft(distribution, size)
    return sum(starts), np.maximum(np.fft.irfft(spectrum, size)[:length], 0.0)
