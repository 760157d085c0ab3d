"""What shuffling spends, from simulated privacy losses.

An epoch has ``K`` batches of a fixed size, and a record is in one of them. No tight
analysis of it is known, but for a given pair of data sets the privacy loss can be drawn
at random, and the epsilon at a delta read off: a lower bound on the true one. Two pairs
are looked at, in units of the clipping norm.

*Alone*: all other records have the zero gradient. With the record, batch ``t`` shows
``e_t`` plus noise, ``t`` at random; with a zero in its place, noise. That is what an
audit by canaries in coordinates of their own can see.

*In a crowd*: all other records have the gradient -1 in the same coordinate. Batches
have a fixed size, so the one with the record stands out by ``2 e_t``, and the one with
a zero in its place by ``e_t``: the crowd gives away where the record is.

Reference: Chua, Ghazi, Kamath, Kumar, Manurangsi, Sinha and Zhang, "How private are
DP-SGD implementations?", https://arxiv.org/abs/2403.17673, whose pair the second is.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpaudit.stats.search import largest_yes

__all__ = ["shuffled_epsilon"]

Floats: TypeAlias = NDArray[np.float64]

_CHUNK = 1 << 20  # numbers drawn at a time


def shuffled_epsilon(
    *,
    noise: float,
    batches: int,
    epochs: int,
    delta: float,
    crowd: bool,
    draws: int,
    rng: np.random.Generator,
) -> float:
    """Return the epsilon of a pair of data sets, estimated from drawn losses.

    Args:
        noise: Noise multiplier.
        batches: Batches of an epoch.
        epochs: How many epochs, each shuffled anew.
        delta: Where epsilon is asked for; well above one over ``draws``.
        crowd: Whether all other records have the opposite gradient.
        draws: How many losses are drawn in either direction.
        rng: Source of randomness.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> alone = shuffled_epsilon(
        ...     noise=2.0,
        ...     batches=1,
        ...     epochs=1,
        ...     delta=1e-2,
        ...     crowd=False,
        ...     draws=100_000,
        ...     rng=rng,
        ... )
        >>> round(alone, 1)  # as without sampling
        0.9
    """
    high, low = (2.0, 1.0) if crowd else (1.0, 0.0)
    found = []
    for sign, shift in ((1.0, high), (-1.0, low)):
        losses = np.zeros(draws)
        for _ in range(epochs):
            losses += _epoch(rng, draws, batches, noise, (shift, high, low))
        found.append(_epsilon(sign * losses, delta))
    return max(found)


def _epoch(
    rng: np.random.Generator,
    draws: int,
    batches: int,
    noise: float,
    shifts: tuple[float, float, float],
) -> Floats:
    """Return ln of the ratio of densities for outputs of an epoch.

    ``shifts``: of the outputs, and of the two data sets that are compared.
    """
    shift, high, low = shifts
    found = np.empty(draws)
    size = max(1, _CHUNK // batches)
    for start in range(0, draws, size):
        some = found[start : start + size]
        seen = noise * rng.standard_normal((len(some), batches))
        seen[:, 0] += shift  # which batch does not matter
        some[:] = _log_mean(seen, high, noise) - _log_mean(seen, low, noise)
    return found


def _log_mean(seen: Floats, shift: float, noise: float) -> Floats:
    """Return ln of the mean over batches of the density ratio to no shift."""
    terms = shift * (2 * seen - shift) / (2 * noise**2)
    most = terms.max(axis=1)
    return np.asarray(most + np.log(np.exp(terms - most[:, np.newaxis]).mean(axis=1)))


def _epsilon(losses: Floats, delta: float) -> float:
    """Return the epsilon at which the mean excess of the losses is delta."""

    def exceeds(epsilon: float) -> bool:
        beyond = losses[losses > epsilon]
        return float(-np.expm1(epsilon - beyond).sum()) / len(losses) > delta

    return largest_yes(exceeds)
