"""The likelihood of an output given its coins, group by group.

Where the output consists of independent parts, one for each group of elements, and the
part of a group depends on its coins through the number of ones only, all that an audit
can learn is in one table: how likely each part is, and how likely each number of ones
makes it. ``dpaudit.theory.limit`` is computed from it.
"""

from dataclasses import dataclass
from math import inf
from typing import Protocol, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.mechanisms.exchangeable import log_fair
from dpaudit.mechanisms.loss_distribution import DiscreteLoss, Loss, LossDistribution

__all__ = [
    "HasOutputLikelihood",
    "OutputLikelihood",
    "count_likelihood",
    "elementwise_likelihood",
    "parity_likelihood",
]

Floats: TypeAlias = NDArray[np.float64]

_STEPS = 4000  # that a smooth loss is cut into
_SURE = 700.0  # a loss that floats cannot tell from an infinite one


class HasOutputLikelihood(Protocol):
    """A mechanism that knows the likelihood of its outputs."""

    def output_likelihood(self, elements: int) -> list["OutputLikelihood"]:
        """Return the likelihood of each kind of output; others reveal nothing."""
        ...


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OutputLikelihood:
    """The likelihood of the output of independent, identically distributed groups.

    Attributes:
        probability: How likely an output of this kind is; every other reveals nothing.
        groups: How many groups.
        weights: How likely each output of a group is.
        log_likelihood: A row for each of them: of the numbers of ones, from none to
            all canaries of the group.

    Example:
        >>> sure = OutputLikelihood(  # randomised response, right three times of four
        ...     groups=100,
        ...     weights=np.ones(2) / 2,
        ...     log_likelihood=np.log([[3, 1], [1, 3]]),
        ... )
        >>> sure.cells
        4
    """

    probability: float = 1.0
    groups: int
    weights: Floats
    log_likelihood: Floats

    def __post_init__(self) -> None:
        _validate.probability("probability", self.probability)
        _validate.whole_number("groups", self.groups, least=1)
        rows, columns = self.log_likelihood.shape
        if columns < 2 or self.weights.shape != (rows,):
            raise InvalidInputError(
                "each weight needs the likelihoods of two numbers of ones or more, got "
                f"shapes {self.weights.shape} and {self.log_likelihood.shape}"
            )
        if not (np.all(self.weights >= 0) and abs(self.weights.sum() - 1) < 1e-9):
            raise InvalidInputError("weights must be at least 0 and add up to 1")
        if not np.all(np.isfinite(self.log_likelihood)):
            raise InvalidInputError("log-likelihoods must be finite")

    @property
    def cells(self) -> int:
        """How many pairs of an output and a number of ones there are."""
        return self.log_likelihood.size


def elementwise_likelihood(losses: LossDistribution) -> list[OutputLikelihood]:
    """Return the likelihood of outputs that consist of one part for each element.

    The distribution of losses alone does not tell whether they are: of two elements a
    parity says nothing, of both together something. So it is the mechanism that must
    know.

    A smooth size of loss is rounded up on a fine grid. Who learns a coin better can
    always flip some answers and know it worse, so a limit is none too low.

    Example:
        >>> from dpaudit.mechanisms.loss_distribution import OutputComponent
        >>> flat = DiscreteLoss(values=np.array([1.0]), probabilities=np.ones(1))
        >>> kind = OutputComponent(probability=1.0, groups=100, size=1, loss=flat)
        >>> losses = LossDistribution(elements=100, kinds=(kind,))
        >>> (flat,) = elementwise_likelihood(losses)
        >>> flat.groups, flat.log_likelihood.tolist()
        (100, [[0.5, -0.5], [-0.5, 0.5]])
    """
    found = []
    for kind in losses.kinds:
        assert kind.size == 1  # whoever shares a loss is not alone
        values, probabilities = _atoms(kind.loss)
        half = np.concatenate([-values[::-1], values]) / 2
        found.append(
            OutputLikelihood(
                probability=kind.probability,
                groups=kind.groups,
                weights=np.concatenate([probabilities[::-1], probabilities]) / 2,
                log_likelihood=np.column_stack([-half, half]),
            )
        )
    return found


def count_likelihood(groups: int, log_likelihood: Floats) -> list[OutputLikelihood]:
    """Return the likelihood of outputs that depend on the number of ones of groups.

    Args:
        groups: How many.
        log_likelihood: A row for each output: how likely each number of ones makes it,
            on a fine grid if there are infinitely many.

    Example:
        >>> sure = np.log([[0.9, 0.1], [0.1, 0.9]])  # of one coin
        >>> count_likelihood(5, sure)[0].weights
        array([0.5, 0.5])
    """
    rows = np.maximum(log_likelihood, -_SURE)
    weights = np.exp(rows + log_fair(rows.shape[1] - 1)).sum(axis=1)
    return [
        OutputLikelihood(
            groups=groups, weights=weights / weights.sum(), log_likelihood=rows
        )
    ]


def parity_likelihood(
    groups: int, size: int, log_odds: float
) -> list[OutputLikelihood]:
    """Return the likelihood of outputs that reveal the parity of groups, so surely.

    Example:
        >>> parity_likelihood(1, 2, 1.0)[0].log_likelihood.tolist()
        [[0.5, -0.5, 0.5], [-0.5, 0.5, -0.5]]
    """
    odd = np.where(np.arange(size + 1) % 2, 0.5, -0.5) * min(log_odds, _SURE)
    return [
        OutputLikelihood(
            groups=groups, weights=np.ones(2) / 2, log_likelihood=np.stack([-odd, odd])
        )
    ]


def _atoms(loss: Loss) -> tuple[Floats, Floats]:
    """Return sizes of loss and their probabilities, none too small."""
    if isinstance(loss, DiscreteLoss):
        return np.minimum(loss.values, _SURE), loss.probabilities
    end = loss.supremum if loss.supremum < inf else loss.breaks[-1]
    points = np.linspace(0.0, end, _STEPS + 1)
    points = np.union1d(points, [each for each in loss.breaks if each < end])
    tails = np.append(loss.tail_at(points), 0.0)
    probabilities = np.maximum(-np.diff(tails), 0.0)
    values = np.append(points[1:], _SURE if loss.supremum == inf else end)
    keep = probabilities > 0
    return np.minimum(values, _SURE)[keep], probabilities[keep] / probabilities.sum()
