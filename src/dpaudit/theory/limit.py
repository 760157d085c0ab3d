"""The limit: what no valid audit of one run shows, however it guesses.

Fix the canaries and the mechanism ``M``. A valid audit gives, for every mechanism that
is epsilon-private, a bound above epsilon with a probability of at most alpha. Take one
such mechanism ``N``: "the bound is above epsilon" is a test of ``N`` with level alpha,
and so ``M`` passes it no more often than the best test of ``N`` against ``M`` does
(Neyman and Pearson). Whatever the audit reads, whatever it adapts to:

    P_M[bound > epsilon] <= the power of that best test.

Where this is below one half, the median bound is at most epsilon. The nearer ``N`` is
to ``M``, the sharper.

**The null.** The output falls into independent groups; of a group of ``s`` canaries it
says how likely each number of ones is. ``N`` is the product of the private mechanisms
that are nearest to each (``nearest_mechanism.py``), and the epsilon that it is found to
have is the one that the limit is said for. With delta, the null may be ``M`` itself
with a probability of ``delta / d``, if ``M`` is (epsilon, d)-private.

**The power.** The ratio of likelihoods of ``M`` and ``N`` is a product over groups. The
distribution of its logarithm is put on a grid by connecting the dots, which keeps the
mass of both at every point and only makes them easier to tell apart; many groups are a
power of a Fourier transform. So the power is too high rather than too low, and
``ROUNDING`` covers the transforms.

Reference: docs/explanation/limit.md. Doroshenko et al. for connecting the dots,
https://arxiv.org/abs/2207.04380.
"""

from collections.abc import Sequence
from functools import cache
from math import ceil, inf, isfinite, log, sqrt
from typing import Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy import fft, optimize, special

from dpaudit import _validate
from dpaudit.mechanisms.exchangeable import log_fair
from dpaudit.mechanisms.output_likelihood import OutputLikelihood
from dpaudit.theory.nearest_mechanism import Nearest

__all__ = ["ROUNDING", "limit", "power_at_most"]

Floats: TypeAlias = NDArray[np.float64]

ROUNDING: Final = 1e-9
_GRID_STEP = 0.02  # of the grid, over the standard deviation of a sum, or over 1
_MOST_POINTS = 1 << 22
_TAIL = 1e-13  # mass that may be folded over the ends of the grid
_TILTS = 4.0 ** np.arange(-5, 5)  # tried for the ends
_SAME_RATIO = 1e-12  # log-ratios that differ by rounding only
_LIMIT_TOLERANCE = 1e-4  # how near to the turning point a limit is
_NEARLY_CERTAIN = 1 - 1e-12  # a power, where more would be infinitely far away


def limit(
    outputs: Sequence[OutputLikelihood],
    *,
    alpha: float,
    delta: float = 0.0,
    share: float = 0.5,
    near: float | None = None,
    largest: float = 20.0,
    fitted: Sequence[OutputLikelihood] | None = None,
) -> float:
    """Return an epsilon that no valid audit exceeds in more than this share of runs.

    Args:
        outputs: What outputs of each kind say; outputs of no kind say nothing.
        alpha: Probability of an audit's bound being wrong.
        delta: Of the privacy that is audited.
        share: One half for the median.
        near: About where it is, if that is known.
        largest: Where to give up; infinity is returned then.
        fitted: Outputs of the same kinds that the null is found from, where both are
            simulated: a null that is nearest to the outputs which its power is computed
            from is nearer to these than to the mechanism, and the limit too low.

    Returns:
        Epsilon, from above, to 1e-4.

    Example:
        >>> loud = OutputLikelihood(groups=10, weights=np.ones(2) / 2,
        ...     log_likelihood=np.array([[0.0, -30.0], [-30.0, 0.0]]))
        >>> round(limit([loud], alpha=0.05), 3)
        1.351
    """
    _validate.probability("share", share)
    against = _against(outputs, fitted)

    reached: list[float] = []

    @cache
    def short(epsilon: float) -> float:
        """Return by how much the power falls short, in standard deviations."""
        found, paid = _power_at_most(against, epsilon, alpha, delta)
        if found < share:
            reached.append(paid)
        return float(special.ndtri(share) - special.ndtri(min(found, _NEARLY_CERTAIN)))

    low, high = (0.0, 0.25) if not near else (0.96 * near, 1.04 * near)
    while short(high) <= 0:
        low, high = high, 2 * high
        if high > largest:
            return inf
    while low > 0 and short(low) > 0:
        low, high = (0.8 * low, low) if low > _LIMIT_TOLERANCE else (0.0, low)
    if short(low) < 0:
        optimize.brentq(short, low, high, xtol=_LIMIT_TOLERANCE)
    return min(reached)


def power_at_most(
    outputs: Sequence[OutputLikelihood],
    epsilon: float,
    *,
    alpha: float,
    delta: float = 0.0,
) -> tuple[float, float]:
    """Return how often any valid audit exceeds an epsilon, at most, and which.

    Returns:
        A probability, and the epsilon that it holds for: that of the null, which is the
        one given and what the null's marginals err by.

    Example:
        >>> outputs = OutputLikelihood(groups=100, weights=np.ones(2) / 2,
        ...     log_likelihood=np.log([[3, 1], [1, 3]]))
        >>> power, epsilon = power_at_most([outputs], 1.0, alpha=0.05)
        >>> round(power, 4), round(epsilon, 6)
        (0.1101, 1.0)
    """
    _validate.nonnegative("epsilon", epsilon)
    _validate.probability("alpha", alpha)
    _validate.probability("delta", delta)
    return _power_at_most(_against(outputs, None), epsilon, alpha, delta)


def _power_at_most(
    against: Sequence["_Against"], epsilon: float, alpha: float, delta: float
) -> tuple[float, float]:
    losses, masses = [np.zeros(1)], [np.zeros(1)]
    masses[0][0] = max(0.0, 1.0 - sum(each.outputs.probability for each in against))
    paid, own_delta = epsilon, 0.0
    for each in against:
        with np.errstate(divide="ignore", invalid="ignore"):
            null, private = each.null(epsilon)
            own_delta += each.outputs.probability * each.delta(epsilon)
        known = null[each.joint > 0].all()
        if not (known and isfinite(private) and isfinite(own_delta)):
            return 1.0, inf  # what floats cannot hold limits nothing
        places, distribution = _composed(
            each.joint.ravel(), null.ravel(), each.outputs.groups
        )
        losses.append(places)
        masses.append(each.outputs.probability * distribution)
        paid = max(paid, private)
    leak = min(1.0, delta / own_delta) if own_delta > 0 else float(delta > 0)
    found = _power(np.concatenate(losses), np.concatenate(masses), alpha, leak)
    return found, paid


def _against(
    outputs: Sequence[OutputLikelihood], fitted: Sequence[OutputLikelihood] | None
) -> list["_Against"]:
    others: Sequence[OutputLikelihood | None] = (
        [None] * len(outputs) if fitted is None else fitted
    )
    return [_Against(*each) for each in zip(outputs, others, strict=True)]


@final
class _Against:
    """A mechanism, the nulls near to it, and how private it is itself."""

    def __init__(
        self, outputs: OutputLikelihood, fitted: OutputLikelihood | None = None
    ) -> None:
        self.outputs, self.joint = outputs, _joint(outputs)
        self._nearest = Nearest(self.joint)
        self._fitted = None if fitted is None else Nearest(_joint(fitted))

    def null(self, epsilon: float) -> tuple[Floats, float]:
        """Return the joint probabilities of a null, and the epsilon it has."""
        if self._fitted is None:
            return self._nearest.at(epsilon)
        self._fitted.at(epsilon)
        return self._nearest.priced(epsilon, self._fitted.prices)

    def delta(self, epsilon: float) -> float:
        """Return the least delta with which the mechanism itself is private."""
        probabilities = self.joint / self.joint.sum(axis=0)
        some, more = probabilities[:, :-1], probabilities[:, 1:]
        sides = (more - np.exp(epsilon) * some, some - np.exp(epsilon) * more)
        return max(float(np.maximum(each, 0.0).sum(axis=0).max()) for each in sides)


def _joint(outputs: OutputLikelihood) -> Floats:
    """Return how likely each thing said and each number of ones are together."""
    there = outputs.weights > 0
    logs = log_fair(outputs.log_likelihood.shape[1] - 1) + outputs.log_likelihood[there]
    posterior = np.exp(logs - logs.max(axis=1, keepdims=True))
    posterior /= posterior.sum(axis=1, keepdims=True)
    return np.asarray(outputs.weights[there][:, None] * posterior)


def _composed(one: Floats, other: Floats, groups: int) -> tuple[Floats, Floats]:
    """Return the distribution, under the first, of the log-ratio of ``groups`` draws.

    What the first rules out is left out: the log-ratio there is minus infinity.
    """
    there = one > 0
    one, other = one[there], other[there]
    losses = np.log(one / other)
    ends = float(losses.min()), float(losses.max())
    two = np.all(np.minimum(losses - ends[0], ends[1] - losses) < _SAME_RATIO)
    spread = sqrt(float(np.cov(losses, aweights=one, ddof=0)))
    step = max(
        _GRID_STEP * max(spread, 1 / sqrt(groups)), (ends[1] - ends[0]) / _MOST_POINTS
    )
    if ends[1] - ends[0] < _SAME_RATIO:
        return np.array([groups * ends[0]]), np.ones(1)
    if two:  # on a lattice of their own, where nothing is rounded
        step = ends[1] - ends[0]
    at = np.floor((losses - ends[0]) / step + _SAME_RATIO).astype(np.int64)
    # Masses at both ends of the cell that add up to those of the point, for both
    # distributions.
    below, above = (np.exp(ends[0] + (at + more) * step) for more in (0, 1))
    upper = np.clip((one - other * below) / (above - below), 0.0, other)
    points = int(at.max()) + 2
    distribution: Floats = np.bincount(at, (other - upper) * below, points).astype(
        np.float64
    )
    distribution += np.bincount(at + 1, upper * above, points)
    places: Floats = ends[0] + np.arange(points, dtype=np.float64) * step
    low, high = _reach(places, distribution, groups)
    size = fft.next_fast_len(ceil((high - low) / step) + 2, real=True)
    folded = np.bincount(np.arange(points) % size, distribution, size)
    summed = fft.irfft(fft.rfft(folded) ** groups, size)
    start = round((low - groups * ends[0]) / step)  # of the window it is seen in
    found = np.maximum(np.roll(summed, -start), 0.0)
    return groups * ends[0] + (start + np.arange(size)) * step, found


def _reach(losses: Floats, probabilities: Floats, groups: int) -> tuple[float, float]:
    """Return ends that the sum leaves with probability at most ``_TAIL`` (Chernoff)."""
    places, weight = losses[probabilities > 0], np.log(probabilities[probabilities > 0])
    ends = []
    for sign in (-1.0, 1.0):
        logs = [special.logsumexp(sign * tilt * places + weight) for tilt in _TILTS]
        reach = (groups * np.array(logs) - log(_TAIL)) / _TILTS
        ends.append(sign * (float(reach[np.isfinite(reach)].min()) + 1.0))
    return min(ends[0], -1.0), max(ends[1], 1.0)


def _power(losses: Floats, masses: Floats, alpha: float, leak: float) -> float:
    """Return the power of the best test of level alpha, from log-ratios and masses.

    With a probability of ``leak`` the null is the other one: what is caught of that
    counts against alpha, and the more so the larger the power.
    """
    there = masses > 0  # where there is none, exp(-loss) may be infinite
    order = np.argsort(-losses[there])
    some, places = masses[there][order], losses[there][order]
    power = np.cumsum(some)
    level = np.cumsum(np.exp(np.log(some) - places))  # the null's, 1 at most in all
    spent = leak * power + (1 - leak) * level
    last = int(np.searchsorted(spent, alpha))
    if last == len(spent):
        return 1.0
    before = (power[last - 1], spent[last - 1]) if last else (0.0, 0.0)
    part = (alpha - before[1]) / (spent[last] - before[1])
    found = before[0] + part * (power[last] - before[0])
    return min(1.0, float(found) + ROUNDING)
