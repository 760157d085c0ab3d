"""The likelihood of an output given its coins, group by group.

If the output consists of independent parts, one for each group of elements, and the
part of a group depends on its coins through the number of ones only, all that an audit
can learn is in one table: the probability of each part, and its likelihood given each
number of ones. ``dpaudit.theory.limit`` is computed from it.
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

_STEPS = 4000  # grid points for a smooth loss
_MAX_LOSS = 700.0  # floats cannot distinguish larger losses from infinite ones


class HasOutputLikelihood(Protocol):
    """A mechanism whose output likelihoods are known."""

    def output_likelihood(self, elements: int) -> list["OutputLikelihood"]:
        """Return the likelihood of each kind of output; others reveal nothing."""
        ...


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OutputLikelihood:
    """The likelihood of the output of independent, identically distributed groups.

    Attributes:
        probability: The probability of an output of this kind; others reveal nothing.
        groups: The number of groups.
        weights: The probability of each output of a group.
        log_likelihood: A row for each output, a column for each number of ones, from
            none to all canaries of the group.

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
        """The number of pairs of an output and a number of ones."""
        return self.log_likelihood.size


def elementwise_likelihood(losses: LossDistribution) -> list[OutputLikelihood]:
    """Return the likelihood of outputs that consist of one part for each element.

    Only for mechanisms whose outputs have this form, which the loss distribution alone
    does not show: the parity of two elements has no loss for either, but is evidence
    about both together.

    A smooth distribution of the loss size is rounded up on a fine grid. An adversary
    with a larger loss can simulate a smaller one by flipping some answers, so the limit
    is never too low.

    Example:
        >>> from dpaudit.mechanisms.loss_distribution import OutputComponent
        >>> flat = DiscreteLoss(values=np.array([1.0]), probabilities=np.ones(1))
        >>> kind = OutputComponent(probability=1.0, groups=100, size=1, loss=flat)
        >>> losses = LossDistribution(elements=100, kinds=(kind,))
        >>> (flat,) = elementwise_likelihood(losses)
        >>> flat.groups, flat.log_likelihood.tolist()
        (100, [[0.5, -0.5], [-0.5, 0.5]])
    """
    likelihoods = []
    for kind in losses.kinds:
        assert kind.size == 1  # each element is a group of its own
        values, probabilities = _atoms(kind.loss)
        half = np.concatenate([-values[::-1], values]) / 2
        likelihoods.append(
            OutputLikelihood(
                probability=kind.probability,
                groups=kind.groups,
                weights=np.concatenate([probabilities[::-1], probabilities]) / 2,
                log_likelihood=np.column_stack([-half, half]),
            )
        )
    return likelihoods


def count_likelihood(groups: int, log_likelihood: Floats) -> list[OutputLikelihood]:
    """Return the likelihood of outputs that depend on each group's number of ones.

    Args:
        groups: The number of groups.
        log_likelihood: A row for each output, a column for each number of ones; on a
            fine grid if there are infinitely many outputs.

    Example:
        >>> sure = np.log([[0.9, 0.1], [0.1, 0.9]])  # of one coin
        >>> count_likelihood(5, sure)[0].weights
        array([0.5, 0.5])
    """
    rows = np.maximum(log_likelihood, -_MAX_LOSS)
    weights = np.exp(rows + log_fair(rows.shape[1] - 1)).sum(axis=1)
    return [
        OutputLikelihood(
            groups=groups, weights=weights / weights.sum(), log_likelihood=rows
        )
    ]


def parity_likelihood(
    groups: int, size: int, log_odds: float
) -> list[OutputLikelihood]:
    """Return the likelihood of outputs that reveal groups' parities, with log-odds.

    Example:
        >>> parity_likelihood(1, 2, 1.0)[0].log_likelihood.tolist()
        [[0.5, -0.5, 0.5], [-0.5, 0.5, -0.5]]
    """
    odd = np.where(np.arange(size + 1) % 2, 0.5, -0.5) * min(log_odds, _MAX_LOSS)
    return [
        OutputLikelihood(
            groups=groups, weights=np.ones(2) / 2, log_likelihood=np.stack([-odd, odd])
        )
    ]


def _atoms(loss: Loss) -> tuple[Floats, Floats]:
    """Return sizes of the loss, rounded up, and their probabilities."""
    if isinstance(loss, DiscreteLoss):
        return np.minimum(loss.values, _MAX_LOSS), loss.probabilities
    end = loss.supremum if loss.supremum < inf else loss.breaks[-1]
    points = np.linspace(0.0, end, _STEPS + 1)
    points = np.union1d(points, [each for each in loss.breaks if each < end])
    tails = np.append(loss.tail_at(points), 0.0)
    probabilities = np.maximum(-np.diff(tails), 0.0)
    values = np.append(points[1:], _MAX_LOSS if loss.supremum == inf else end)
    keep = probabilities > 0
    kept = probabilities[keep] / probabilities.sum()
    return np.minimum(values, _MAX_LOSS)[keep], kept
