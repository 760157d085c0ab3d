"""Distributions of the distributional privacy loss, as ``dpaudit.theory`` uses them.

For the families here the losses of all ``n`` elements, given the output, have a simple
form. With some probability the output is of a certain kind; then the elements fall into
independent, identically distributed groups, the members of a group share the size
``|l|`` of their loss, and the remaining elements have loss 0. Local mechanisms are
``n`` groups of one; a count is one group of ``n``; count-in-sets lies between;
all-or-nothing is a mix of two kinds; name-and-shame is one group of one and ``n - 1``
elements of loss 0. Elements are exchangeable: those of loss 0 are chosen uniformly.

Only integrals ``int f(P[|l| >= t]) dp(t)`` with ``p(t) = e^t / (1 + e^t)`` are needed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Protocol, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.errors import InvalidInputError

__all__ = [
    "DiscreteLoss",
    "HasLossDistribution",
    "Loss",
    "LossDistribution",
    "OutputComponent",
    "SmoothLoss",
]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DiscreteLoss:
    """A distribution of the loss size with finitely many values.

    Attributes:
        values: Sizes ``|l|``, rising; the last may be infinite.
        probabilities: The probability of each; they sum to one.

    Example:
        >>> fair = DiscreteLoss(
        ...     values=np.array([0.0, np.inf]), probabilities=np.ones(2) / 2
        ... )
        >>> fair.tail(3.0), fair.supremum
        (0.5, inf)
    """

    values: NDArray[np.float64]
    probabilities: NDArray[np.float64]

    def __post_init__(self) -> None:
        if self.values.ndim != 1 or self.values.shape != self.probabilities.shape:
            raise InvalidInputError(
                "values and probabilities must be two lists of one size"
            )
        if not (self.values[0] >= 0 and np.all(np.diff(self.values) > 0)):
            raise InvalidInputError("values must rise from 0 or more")
        if not (
            np.all(self.probabilities >= 0) and abs(self.probabilities.sum() - 1) < 1e-9
        ):
            raise InvalidInputError("probabilities must be at least 0 and add up to 1")

    @property
    def supremum(self) -> float:
        """The largest size that can occur."""
        return float(self.values[np.flatnonzero(self.probabilities)[-1]])

    def tail(self, size: float) -> float:
        """Return P[|l| >= size]."""
        return float(self.probabilities[np.searchsorted(self.values, size) :].sum())


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SmoothLoss:
    """A distribution of the loss size that is smooth between a few break points.

    Attributes:
        tail_at: The function ``t -> P[|l| >= t]``, for arrays.
        breaks: Where it may jump or bend, rising from 0; beyond the last it is zero or
            negligible.
        supremum: The largest size that can occur; infinite if there is none.
    """

    tail_at: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    breaks: tuple[float, ...]
    supremum: float = inf

    def tail(self, size: float) -> float:
        """Return P[|l| >= size]."""
        return float(self.tail_at(np.array([size]))[0])


Loss: TypeAlias = DiscreteLoss | SmoothLoss


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OutputComponent:
    """One kind of output: its probability, and the losses of the elements under it.

    Attributes:
        probability: The probability of an output of this kind.
        groups: The number of independent, identically distributed groups.
        size: Elements of a group; they share the size of their loss.
        loss: The distribution of that size.
    """

    probability: float
    groups: int
    size: int
    loss: Loss

    def __post_init__(self) -> None:
        _validate.probability("probability", self.probability)
        _validate.whole_number("groups", self.groups, least=1)
        _validate.whole_number("size", self.size, least=1)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LossDistribution:
    """The distribution of the losses of all elements.

    Attributes:
        elements: The number of elements.
        kinds: The kinds of output under which elements may have a loss; under all
            others every loss is 0.
    """

    elements: int
    kinds: tuple[OutputComponent, ...]

    def __post_init__(self) -> None:
        _validate.whole_number("elements", self.elements, least=1)
        if sum(kind.probability for kind in self.kinds) > 1 + 1e-12:
            raise InvalidInputError(
                "the probabilities of the kinds add up to more than 1"
            )
        if any(kind.groups * kind.size > self.elements for kind in self.kinds):
            raise InvalidInputError(f"groups hold more than elements={self.elements}")


class HasLossDistribution(Protocol):
    """A mechanism whose loss distribution is known for any number of elements."""

    def loss_distribution(self, elements: int) -> LossDistribution:
        """Return the loss distribution of this many elements."""
        ...
