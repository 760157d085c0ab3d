"""The likelihood, from noisy sums, of how many canaries of a coordinate are included.

Given ``N`` ones among the coins of a coordinate, a step outputs ``x = j + noise`` with
``j`` drawn from ``P[j | N]`` (``sampling``) and noise of standard deviation ``s``.
Steps are independent given the coins, so

    ln L(N) = sum over steps of ln sum_j P[j | N] exp(-(x - j)^2 / (2 s^2)),

up to a constant of the coordinate. Only that vector, for ``N`` from 0 to the number of
canaries, is stored: each step is added to it and discarded, and coordinates, and so
shards, do not interact. Real gradients in a canary's coordinate are Gaussian noise of a
variance that one may estimate; it is added to that of the noise.

How it is computed. ``exp(-(x - j)^2 / (2 s^2))`` is, up to a factor that does not
depend on ``j``, the ``j``-th power of ``exp(x / s^2)`` times ``exp(-j^2 / (2 s^2))``,
with ``x`` and ``j`` counted from the middle of the sums. So a step is one exponential
and its powers for each coordinate, and one matrix product. The factors of several steps
are multiplied directly, and logs are taken only if a bound on the product might leave
the range of floats. If the powers themselves might leave it, a slower method is used:
exponentials relative to the largest, and sums in log space where even those underflow.
"""

from collections.abc import Mapping
from typing import TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit import _validate
from dpaudit.dpsgd.sampling import IndependentSampling
from dpaudit.errors import InvalidInputError
from dpaudit.mechanisms.exchangeable import SAFE, log_sum

__all__ = [
    "STRETCH",
    "CountLikelihood",
    "State",
    "checked_step",
    "fill_powers",
    "log_kernel",
    "saved_counts",
    "saved_rows",
]

Floats: TypeAlias = NDArray[np.float64]
State: TypeAlias = Mapping[str, NDArray[np.generic]]  # arrays of a checkpoint

STRETCH = 4096  # coordinates processed together: their numbers stay in the cache
_TERMS = 1 << 18  # processed together in log space
_STEEP = 250.0  # largest log of a power; keeps its rounding error below 1e-13
_RANGE = 600.0  # largest log of a product before the log is taken


@final
class CountLikelihood:
    """Log-likelihoods of the number of ones at each coordinate, one step at a time.

    Reference: Keinan, Shenfeld and Ligett, "alg:dp-sgd".

    Args:
        coordinates: The number of coordinates.
        per_coordinate: Canaries at each.
        sampling: How canaries are sampled in a step.

    Example:
        >>> from dpaudit.dpsgd.sampling import Poisson
        >>> seen = CountLikelihood(
        ...     coordinates=2, per_coordinate=3, sampling=Poisson(rate=1.0)
        ... )
        >>> seen.observe(np.array([2.1, 0.2]), scale=0.5)
        >>> seen.log_likelihood.argmax(axis=1)
        array([2, 0])
    """

    def __init__(
        self, *, coordinates: int, per_coordinate: int, sampling: IndependentSampling
    ) -> None:
        _validate.whole_number("coordinates", coordinates, least=1)
        _validate.whole_number("per_coordinate", per_coordinate, least=1)
        distribution = sampling.distribution(per_coordinate)
        self._coordinates = coordinates
        self._middle = float(distribution.sums[(len(distribution.sums) - 1) // 2])
        self._offsets = distribution.sums - self._middle
        self._log_probabilities = distribution.log_probabilities
        self._probabilities = np.exp(distribution.log_probabilities)
        self._tilted = (0.0, self._probabilities)
        rows, columns = distribution.log_probabilities.shape
        width = min(coordinates, STRETCH)
        self._powers = np.empty((columns, width))
        self._factor = np.empty((rows, width))
        self._stretches = [
            _Stretch(rows, min(STRETCH, coordinates - start))
            for start in range(0, coordinates, STRETCH)
        ]

    def observe(self, sums: NDArray[np.floating], scale: ArrayLike) -> None:
        """Add one step.

        Args:
            sums: The noisy sum at each coordinate, over the clipping norm.
            scale: Standard deviation of everything but canaries, over the clipping
                norm: one for all coordinates or one for each.
        """
        sums = np.asarray(sums)
        scales = checked_step(sums, scale, self._coordinates)
        if not scales.ndim:
            least, most = float(sums.min()), float(sums.max())
            self.observe_within(sums, float(scales), least=least, most=most)
            return
        for i, stretch in enumerate(self._stretches):
            part = slice(i * STRETCH, (i + 1) * STRETCH)
            x = np.subtract(sums[part], self._middle, dtype=np.float64)
            self._add_log(stretch, x, scales[part])

    def observe_within(
        self, sums: NDArray[np.floating], scale: float, *, least: float, most: float
    ) -> None:
        """Add one step with one scale, without checking it.

        Args:
            sums: As in ``observe``; finite.
            scale: Likewise.
            least: The smallest sum.
            most: The largest sum.
        """
        # One bound serves all stretches, unless a sum is an outlier.
        whole = self._size(least, most, scale)
        for i, stretch in enumerate(self._stretches):
            part = sums[i * STRETCH : (i + 1) * STRETCH]
            x = np.subtract(part, self._middle, dtype=np.float64)
            size = whole
            if whole > _STEEP:
                size = self._size(float(part.min()), float(part.max()), scale)
            if size <= _STEEP:
                self._add_factor(stretch, x, scale, size)
            else:
                self._add_log(stretch, x, np.asarray(scale))

    @property
    def log_likelihood(self) -> Floats:
        """``ln L(N)``: a row for each coordinate, largest 0; a column for each N."""
        for stretch in self._stretches:
            stretch.settle()
        return np.concatenate([stretch.log.T for stretch in self._stretches])

    def saved(self) -> dict[str, Floats]:
        """Return the state, as arrays that ``restore`` takes."""
        return {"log_likelihood": self.log_likelihood}

    def restore(self, saved: State) -> None:
        """Continue from what ``saved`` returned; call before any step is observed."""
        rows = saved_rows(saved, "log_likelihood", self._shape())
        for i, stretch in enumerate(self._stretches):
            stretch.add(rows[i * STRETCH : (i + 1) * STRETCH].T)

    def _shape(self) -> tuple[int, int]:
        return self._coordinates, len(self._log_probabilities)

    def _size(self, least: float, most: float, scale: float) -> float:
        """Return a bound on the absolute log of a step's factor."""
        reach, middle = float(self._offsets[-1]), self._middle
        farthest = max(most - middle, middle - least)
        return reach * (farthest + reach / 2) / scale**2

    def _add_factor(
        self, stretch: "_Stretch", x: Floats, scale: float, size: float
    ) -> None:
        powers = self._powers[:, : len(x)]
        factor = self._factor[:, : len(x)]
        fill_powers(x / scale**2, powers)
        np.matmul(self._tilt(scale), powers, out=factor)
        stretch.multiply(factor, size)

    def _add_log(self, stretch: "_Stretch", x: Floats, scale: Floats) -> None:
        terms = log_kernel(x, self._offsets, scale)
        terms -= terms.max(axis=0)
        factor = self._probabilities @ np.exp(terms)
        low = np.flatnonzero(factor.min(axis=0) <= SAFE)
        factor[:, low] = 1.0
        added = np.log(factor)
        step = max(1, _TERMS // self._probabilities.size)
        for start in range(0, len(low), step):
            some = low[start : start + step]
            columns = terms[:, some].T[:, np.newaxis]
            added[:, some] = log_sum(self._log_probabilities + columns).T
        stretch.add(added)

    def _tilt(self, scale: float) -> Floats:
        """Return the probabilities times the part of the density that is no power."""
        if self._tilted[0] != scale:
            tilt = np.exp(-0.5 * np.square(self._offsets / scale))
            self._tilted = (scale, self._probabilities * tilt)
        return self._tilted[1]


@final
class _Stretch:
    """The likelihoods of adjacent coordinates: a log, and a product not yet in it."""

    def __init__(self, rows: int, width: int) -> None:
        self.log = np.zeros((rows, width))
        self._product = np.ones((rows, width))
        self._size = 0.0

    def multiply(self, factor: Floats, size: float) -> None:
        """Multiply by a factor whose log is at most ``size``, up or down."""
        if self._size + size > _RANGE:
            self.settle()
        self._product *= factor
        self._size += size

    def add(self, log_factor: Floats) -> None:
        """Multiply by a factor of any size, given as its log."""
        self.log += log_factor
        self._centre()

    def settle(self) -> None:
        """Take the log of the product."""
        if self._size:
            self.log += np.log(self._product)
            self._product.fill(1.0)
            self._size = 0.0
            self._centre()

    def _centre(self) -> None:
        # Constants of a coordinate cancel; without them a million steps stay exact.
        self.log -= self.log.max(axis=0)


def fill_powers(log_base: Floats, out: Floats) -> None:
    """Fill the rows of ``out`` with powers, the zeroth in the middle.

    Example:
        >>> out = np.empty((4, 1))
        >>> fill_powers(np.log([2.0]), out)
        >>> out.ravel().round(9)
        array([0.5, 1. , 2. , 4. ])
    """
    middle = (len(out) - 1) // 2
    up, down = out[middle + 1], out[middle - 1]
    out[middle] = 1.0
    np.exp(log_base, out=up)
    for row in range(middle + 2, len(out)):
        np.multiply(out[row - 1], up, out=out[row])
    if middle:
        np.divide(1.0, up, out=down)
    for row in range(middle - 2, -1, -1):
        np.multiply(out[row + 1], down, out=out[row])


def log_kernel(x: Floats, offsets: Floats, scale: Floats) -> Floats:
    """Return -(x - j)^2 / (2 scale^2) up to a constant of each column, in row j."""
    j = offsets[:, np.newaxis]
    return np.asarray((x - j / 2) * j / np.square(scale))


def checked_step(
    sums: NDArray[np.floating], scale: ArrayLike, coordinates: int
) -> Floats:
    """Return the scales as an array of dimension 0 or 1; refuse an invalid step."""
    scales = np.asarray(scale, np.float64)
    if np.shape(sums) != (coordinates,) or scales.shape not in {(), (coordinates,)}:
        raise InvalidInputError(
            f"sums must hold one number for each of {coordinates} coordinates, and "
            "scale one for all or one for each; got shapes "
            f"{np.shape(sums)} and {scales.shape}"
        )
    least, most = float(scales.min()), max(float(sums.max()), -float(sums.min()))
    if not (least > 0 and np.isfinite(scales.max())):
        raise InvalidInputError(
            f"scale must be a finite number > 0, got scale={least!r}; for sums without "
            "noise pass a small one, such as 0.001"
        )
    if not (1 + most) / least < 1e150:
        raise InvalidInputError(
            "sums must be finite, and not too large for the scale to be squared; got "
            f"one of {most!r} with scale={least!r}"
        )
    return scales


def saved_rows(saved: State, name: str, shape: tuple[int, ...]) -> Floats:
    """Return saved numbers as floats; refuse those of another audit."""
    rows = _saved(saved, name)
    if rows.shape != shape or rows.dtype != np.float64 or np.isnan(rows).any():
        raise InvalidInputError(
            f"saved numbers {name!r} must be floats of shape {shape} without NaN, got "
            f"{rows.dtype} of shape {rows.shape}; they belong to another audit"
        )
    return np.array(rows, np.float64)  # a copy: the caller's array stays unchanged


def saved_counts(saved: State, name: str, size: int) -> list[int]:
    """Return saved whole numbers, none below 0; refuse those of another audit."""
    values = _saved(saved, name)
    whole = values.shape == (size,) and values.dtype.kind in "iub"
    counts = [int(each) for each in values.tolist()] if whole else [-1]
    if min(counts, default=0) < 0:
        raise InvalidInputError(
            f"saved numbers {name!r} must be {size} counts, got {values.dtype} of "
            f"shape {values.shape}; they belong to another audit"
        )
    return counts


def _saved(saved: State, name: str) -> NDArray[np.generic]:
    if name not in saved:
        raise InvalidInputError(
            f"saved numbers {name!r} are missing; they belong to another audit"
        )
    return saved[name]
