"""The limit: the largest epsilon that a valid one-run audit can be expected to show.

Fix the canaries and the mechanism ``M``. For every epsilon-private mechanism a valid
audit gives a bound above epsilon with probability at most alpha. For one such mechanism
``N``, "the bound is above epsilon" is a test of ``N`` at level alpha, so its power
under ``M`` is at most that of the best test of ``N`` against ``M`` (Neyman and
Pearson). Whatever the audit reads and adapts to:

    P_M[bound > epsilon] <= the power of that best test.

Where this is below one half, the median bound is at most epsilon. The nearer ``N`` is
to ``M``, the sharper.

**The null.** The output consists of independent groups; for a group of ``s`` canaries
it gives the likelihood of each number of ones. ``N`` is the product of the nearest
private mechanisms of the groups (``nearest_mechanism.py``), and the limit is stated for
the epsilon computed from ``N``. With delta, the null may be ``M`` itself with
probability ``delta / d``, if ``M`` is (epsilon, d)-private.

**The power.** The likelihood ratio of ``M`` and ``N`` is a product over groups. The
distribution of its logarithm is discretised by connecting the dots, which preserves the
mass of both at every point and only makes them easier to distinguish; many groups are a
power of a Fourier transform. So the power is rounded up, and ``ROUNDING`` covers the
error of the transforms.

Reference: docs/explanation/why-the-bound-is-lower.md#the-limit-for-given-canaries.
Doroshenko et al. for connecting the dots, https://arxiv.org/abs/2207.04380.
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
_GRID_STEP = 0.02  # relative to the standard deviation of one group or 1 / sqrt(groups)
_MOST_POINTS = 1 << 22
_TAIL = 1e-13  # mass that may be folded over the ends of the grid
_TILTS = 4.0 ** np.arange(-5, 5)  # tried in the Chernoff bounds on the ends
_SAME_RATIO = 1e-12  # log-ratios closer than this differ by rounding only
_LIMIT_TOLERANCE = 1e-4  # distance of a limit from the turning point
_NEARLY_CERTAIN = 1 - 1e-12  # a power is cut off here to keep its quantile finite


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
        outputs: The likelihoods of each kind of output; any other output is
            uninformative.
        alpha: Probability that an audit's bound is wrong.
        delta: Of the privacy that is audited.
        share: One half for the median.
        near: An approximate value of the result, if known.
        largest: Where to give up the search and return infinity.
        fitted: Independent outputs of the same kinds to compute the null from, if
            outputs are simulated: a null fitted to the outputs from which its power is
            computed is nearer to these than to the mechanism, and the limit too low.

    Returns:
        Epsilon, rounded up, to 1e-4.

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
        power, null_epsilon = _power_at_most(against, epsilon, alpha, delta)
        if power < share:
            reached.append(null_epsilon)
        return float(special.ndtri(share) - special.ndtri(min(power, _NEARLY_CERTAIN)))

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
    """Return an upper bound on how often any valid audit exceeds an epsilon.

    Returns:
        The probability, and the epsilon for which it holds: that of the null, slightly
        above the given one because of the error of the null's marginals.

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
    masses[0][0] = max(0.0, 1.0 - sum(kind.outputs.probability for kind in against))
    null_epsilon, own_delta = epsilon, 0.0
    for kind in against:
        with np.errstate(divide="ignore", invalid="ignore"):
            null, kind_epsilon = kind.null(epsilon)
            own_delta += kind.outputs.probability * kind.delta(epsilon)
        representable = null[kind.joint > 0].all()
        if not (representable and isfinite(kind_epsilon) and isfinite(own_delta)):
            return 1.0, inf  # beyond the range of floats: the trivial limit
        places, distribution = _composed(
            kind.joint.ravel(), null.ravel(), kind.outputs.groups
        )
        losses.append(places)
        masses.append(kind.outputs.probability * distribution)
        null_epsilon = max(null_epsilon, kind_epsilon)
    leak = min(1.0, delta / own_delta) if own_delta > 0 else float(delta > 0)
    power = _power(np.concatenate(losses), np.concatenate(masses), alpha, leak)
    return power, null_epsilon


def _against(
    outputs: Sequence[OutputLikelihood], fitted: Sequence[OutputLikelihood] | None
) -> list["_Against"]:
    others: Sequence[OutputLikelihood | None] = (
        [None] * len(outputs) if fitted is None else fitted
    )
    return [_Against(*pair) for pair in zip(outputs, others, strict=True)]


@final
class _Against:
    """A mechanism, its nearest private mechanisms (nulls), and its own delta."""

    def __init__(
        self, outputs: OutputLikelihood, fitted: OutputLikelihood | None = None
    ) -> None:
        self.outputs, self.joint = outputs, _joint(outputs)
        self._nearest = Nearest(self.joint)
        self._fitted = None if fitted is None else Nearest(_joint(fitted))

    def null(self, epsilon: float) -> tuple[Floats, float]:
        """Return the joint probabilities of a null, and its epsilon."""
        if self._fitted is None:
            return self._nearest.at(epsilon)
        self._fitted.at(epsilon)
        return self._nearest.priced(epsilon, self._fitted.prices)

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta of the mechanism itself at an epsilon."""
        probabilities = self.joint / self.joint.sum(axis=0)
        some, more = probabilities[:, :-1], probabilities[:, 1:]
        sides = (more - np.exp(epsilon) * some, some - np.exp(epsilon) * more)
        return max(float(np.maximum(side, 0.0).sum(axis=0).max()) for side in sides)


def _joint(outputs: OutputLikelihood) -> Floats:
    """Return the joint probabilities of outputs and numbers of ones."""
    possible = outputs.weights > 0
    likelihood = outputs.log_likelihood[possible]
    logs = log_fair(outputs.log_likelihood.shape[1] - 1) + likelihood
    posterior = np.exp(logs - logs.max(axis=1, keepdims=True))
    posterior /= posterior.sum(axis=1, keepdims=True)
    return np.asarray(outputs.weights[possible][:, None] * posterior)


def _composed(one: Floats, other: Floats, groups: int) -> tuple[Floats, Floats]:
    """Return the distribution, under the first, of the log-ratio of ``groups`` draws.

    Points of mass 0 under the first are omitted: the log-ratio is minus infinity.
    """
    possible = one > 0
    one, other = one[possible], other[possible]
    losses = np.log(one / other)
    ends = float(losses.min()), float(losses.max())
    two = np.all(np.minimum(losses - ends[0], ends[1] - losses) < _SAME_RATIO)
    spread = sqrt(float(np.cov(losses, aweights=one, ddof=0)))
    step = max(
        _GRID_STEP * max(spread, 1 / sqrt(groups)), (ends[1] - ends[0]) / _MOST_POINTS
    )
    if ends[1] - ends[0] < _SAME_RATIO:
        return np.array([groups * ends[0]]), np.ones(1)
    if two:  # a lattice of two values: nothing is rounded
        step = ends[1] - ends[0]
    at = np.floor((losses - ends[0]) / step + _SAME_RATIO).astype(np.int64)
    # Masses at both ends of the cell that sum to the mass of the point, under both
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
    start = round((low - groups * ends[0]) / step)  # of the window
    unfolded = np.maximum(np.roll(summed, -start), 0.0)
    return groups * ends[0] + (start + np.arange(size)) * step, unfolded


def _reach(losses: Floats, probabilities: Floats, groups: int) -> tuple[float, float]:
    """Return ends outside which the sum has mass at most ``_TAIL`` (Chernoff)."""
    places, weight = losses[probabilities > 0], np.log(probabilities[probabilities > 0])
    ends = []
    for sign in (-1.0, 1.0):
        logs = [special.logsumexp(sign * tilt * places + weight) for tilt in _TILTS]
        reach = (groups * np.array(logs) - log(_TAIL)) / _TILTS
        ends.append(sign * (float(reach[np.isfinite(reach)].min()) + 1.0))
    return min(ends[0], -1.0), max(ends[1], 1.0)


def _power(losses: Floats, masses: Floats, alpha: float, leak: float) -> float:
    """Return the power of the best test of level alpha, from log-ratios and masses.

    With probability ``leak`` the null is the alternative: rejections of that part count
    against alpha, the more the larger the power.
    """
    possible = masses > 0  # elsewhere exp(-loss) may be infinite
    order = np.argsort(-losses[possible])
    mass, places = masses[possible][order], losses[possible][order]
    power = np.cumsum(mass)
    level = np.cumsum(np.exp(np.log(mass) - places))  # under the null; 1 at most
    spent = leak * power + (1 - leak) * level
    last = int(np.searchsorted(spent, alpha))
    if last == len(spent):
        return 1.0
    before = (power[last - 1], spent[last - 1]) if last else (0.0, 0.0)
    part = (alpha - before[1]) / (spent[last] - before[1])
    randomized = before[0] + part * (power[last] - before[0])
    return min(1.0, float(randomized) + ROUNDING)
