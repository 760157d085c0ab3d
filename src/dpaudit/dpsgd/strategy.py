"""Strategies of matrix mechanisms, which correlate the noise of different steps.

A matrix mechanism (DP-FTRL, BandMF) adds ``C^-1 z`` to the sums of its ``T`` steps:
``z`` is independent Gaussian noise and ``C``, the *strategy*, a public lower triangular
matrix. Noise of one step is cancelled in later ones, so that a model, which adds steps
up, sees less of it. Multiplying the sums of a coordinate by ``C`` makes the noise
independent again,

    C (u + C^-1 z) = C u + z,

so to an observer a canary that participates in steps ``u`` is the vector ``C u`` in
independent noise. If ``u`` is known that is one Gaussian number, the *matched filter*
``(C u) . (C sums) = (C^T C u) . sums``, with mean ``|C u|^2`` and standard deviation
``sigma |C u|``: the weights of the steps are known beforehand, so no step is stored. If
no inner product of two columns of ``C`` is negative, the largest ``|C u|`` over the
allowed participations is the sensitivity that an accountant must divide by. Otherwise,
as with negative entries, a record that contributes opposite gradients to two steps may
have more influence, and the largest ``|C u|`` is a lower bound on the sensitivity.

Only columns of ``C`` are used, so a *banded* strategy, whose columns are short, costs
the same whatever the number of steps.

Reference: Choquette-Choo, Ganesh, McKenna, McMahan, Rush, Thakurta and Xu, "(Amplified)
Banded Matrix Factorization", https://arxiv.org/abs/2306.08153; Dvijotham, McMahan,
Pillutla, Steinke and Thakurta, "Efficient and Near-Optimal Noise Generation",
https://arxiv.org/abs/2404.16706, for strategies with a short recurrence.
"""

from dataclasses import dataclass, field
from math import sqrt
from typing import Protocol, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.game.setting import (
    MatrixStrategy,
    StrategySetting,
    ToeplitzStrategy,
    sha256_of,
)

__all__ = [
    "Independent",
    "Matrix",
    "Strategy",
    "Toeplitz",
    "Whitening",
    "gram_row",
    "length",
    "strategy_setting",
]

Floats: TypeAlias = NDArray[np.float64]

_MOST_DENSE = 1 << 12  # steps of a matrix that is stored in full


class Strategy(Protocol):
    """A lower triangular matrix, by its columns."""

    @property
    def steps(self) -> int | None:
        """The number of steps it is for; None for any number."""
        ...

    @property
    def bands(self) -> int:
        """The largest number of entries of a column, from the diagonal down."""
        ...

    def column(self, step: int) -> Floats:
        """Return a column's entries from the diagonal down, at most ``bands``."""
        ...

    def __hash__(self) -> int: ...


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Independent:
    """Independent noise in every step: the identity matrix.

    Example:
        >>> Independent().column(3)
        array([1.])
    """

    @property
    def steps(self) -> None:
        """None, for any number of steps."""
        return

    @property
    def bands(self) -> int:
        """1: only the diagonal."""
        return 1

    def column(self, step: int) -> Floats:  # noqa: ARG002 (all are the same)
        """Return the diagonal's entry."""
        return np.ones(1)

    def __str__(self) -> str:
        return "independent noise"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Toeplitz:
    """The same coefficients in every column.

    Attributes:
        coefficients: From the diagonal down; as many as there are bands.
        steps: The number of steps.
        normalized: Whether columns that the end cuts off are scaled to the norm of the
            others.

    Example:
        >>> strategy = Toeplitz(coefficients=(1.0, 0.5), steps=3)
        >>> [strategy.column(step) for step in range(3)]
        [array([1. , 0.5]), array([1. , 0.5]), array([1.])]
    """

    coefficients: tuple[float, ...]
    steps: int
    normalized: bool = False
    _values: Floats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _validate.whole_number("steps", self.steps, least=1)
        values = np.asarray(self.coefficients, np.float64)
        if values.ndim != 1 or not values.size or not np.isfinite(values).all():
            raise InvalidInputError(
                "coefficients must be a row of finite numbers, the diagonal's first, "
                f"got coefficients={self.coefficients!r:.60}"
            )
        if not values[0]:
            raise InvalidInputError("coefficients must not begin with 0")
        kept = values[: self.steps].copy()
        kept.setflags(write=False)
        object.__setattr__(self, "coefficients", tuple(kept.tolist()))
        object.__setattr__(self, "steps", int(self.steps))
        object.__setattr__(self, "_values", kept)

    @property
    def bands(self) -> int:
        """The number of coefficients."""
        return len(self.coefficients)

    def column(self, step: int) -> Floats:
        """Return the coefficients, cut off at the last step."""
        column = self._values[: self.steps - step]
        if self.normalized and len(column) < len(self._values):
            return column * (length(self._values) / length(column))
        return column

    def __str__(self) -> str:
        return str(strategy_setting(self))


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Matrix:
    """Any lower triangular matrix that is small enough to be stored.

    Attributes:
        rows: The matrix; a copy is made.
        bands: The number of bands, including the diagonal.

    Example:
        >>> Matrix(rows=[[1.0, 0.0], [0.5, 2.0]]).column(0)
        array([1. , 0.5])
    """

    rows: Floats
    bands: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rows = np.array(self.rows, np.float64)
        square = rows.ndim == 2 and rows.shape[0] == rows.shape[1] and rows.size
        if not square or not np.isfinite(rows).all() or np.triu(rows, 1).any():
            raise InvalidInputError(
                "rows must be a lower triangular matrix of finite numbers, got shape "
                f"{rows.shape}"
            )
        if not np.diagonal(rows).all():
            raise InvalidInputError(
                "rows must have no 0 on the diagonal: a step would have no noise of "
                "its own"
            )
        if len(rows) > _MOST_DENSE:
            raise InvalidInputError(
                f"a matrix of {len(rows)} steps is too large to be kept; pass "
                "Toeplitz(coefficients=..., steps=...) if it is one"
            )
        rows.setflags(write=False)
        object.__setattr__(self, "rows", rows)
        below, right = np.nonzero(rows)
        object.__setattr__(self, "bands", int((below - right).max()) + 1)

    @property
    def steps(self) -> int:
        """The number of rows."""
        return len(self.rows)

    def column(self, step: int) -> Floats:
        """Return a column from the diagonal down."""
        return self.rows[step : step + self.bands, step]

    def __str__(self) -> str:
        return str(strategy_setting(self))


def strategy_setting(strategy: Strategy | None) -> StrategySetting | None:
    """Return the setting that a design records; None if noise is independent.

    A Toeplitz strategy is recorded in full, any other by its size, and by the hash of
    its entries if it is for a known number of steps.

    Example:
        >>> strategy_setting(Toeplitz(coefficients=(1.0, 0.5), steps=3))
        ToeplitzStrategy(steps=3, coefficients=(1.0, 0.5), normalized=False)
        >>> strategy_setting(Independent()) is None
        True
    """
    match strategy:
        case None | Independent():
            return None
        case Toeplitz():
            return ToeplitzStrategy(
                steps=strategy.steps,
                coefficients=strategy.coefficients,
                normalized=strategy.normalized,
            )
        case Matrix(rows=rows):
            numbers: Floats | None = rows.ravel()
        case _:
            numbers, steps = None, strategy.steps
            if steps is not None:
                numbers = np.concatenate([strategy.column(t) for t in range(steps)])
    return MatrixStrategy(
        steps=strategy.steps,
        bands=strategy.bands,
        sha256=None if numbers is None else sha256_of(numbers),
    )


def gram_row(strategy: Strategy, step: int, steps: int) -> tuple[int, Floats]:
    """Return the nonzero part of a row of C^T C: its first column, and its entries.

    Args:
        strategy: ``C``.
        step: The row.
        steps: The number of steps.

    Example:
        >>> gram_row(Toeplitz(coefficients=(1.0, 0.5), steps=3), 1, 3)
        (0, array([0.5 , 1.25, 0.5 ]))
    """
    column = strategy.column(step)[: steps - step]
    first = max(0, step - strategy.bands + 1)
    last = min(steps, step + len(column))
    products = np.zeros(last - first)
    for other in range(first, last):
        theirs = strategy.column(other)[: steps - other]
        low, high = max(step, other), min(step + len(column), other + len(theirs))
        if low < high:
            ours = column[low - step : high - step]
            products[other - first] = ours @ theirs[low - other : high - other]
    return first, products


@final
class Whitening:
    """Multiplies the outputs of steps by a strategy, one step at a time.

    Stores only as many steps as there are bands.

    Args:
        strategy: ``C``.
        coordinates: The number of values that a step outputs.

    Example:
        >>> whitening = Whitening(Toeplitz(coefficients=(1.0, 0.5), steps=3), 1)
        >>> [float(whitening.add(np.ones(1))[0]) for _ in range(3)]
        [1.0, 1.5, 1.5]
    """

    def __init__(self, strategy: Strategy, coordinates: int) -> None:
        self._strategy = strategy
        self.recent = np.zeros((strategy.bands - 1, coordinates))  # the newest last
        self.step = 0

    @property
    def diagonal(self) -> float:
        """The diagonal entry of ``C`` for the next step."""
        return float(self._strategy.column(self.step)[0])

    def add(self, shown: NDArray[np.number]) -> Floats:
        """Return the step's row of C times the outputs so far."""
        s, t = self._strategy, self.step
        whitened: Floats = np.multiply(shown, s.column(t)[0], dtype=np.float64)
        for back in range(1, min(t, len(self.recent)) + 1):
            column = s.column(t - back)
            if back < len(column):
                whitened += column[back] * self.recent[-back]
        if len(self.recent):
            self.recent = np.roll(self.recent, -1, axis=0)
            self.recent[-1] = shown
        self.step += 1
        return whitened


def length(vector: Floats) -> float:
    """Return the Euclidean norm."""
    return sqrt(float(vector @ vector))
