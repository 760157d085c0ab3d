"""Shared parts of mechanisms: a base class for elementwise outputs, and a check."""

from abc import ABC, abstractmethod
from typing import Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError
from dpaudit.game.mechanism import FixedPosterior
from dpaudit.game.pairs import Records
from dpaudit.mechanisms.loss_distribution import LossDistribution
from dpaudit.mechanisms.output_likelihood import (
    OutputLikelihood,
    elementwise_likelihood,
)
from dpaudit.privacy.guarantees import Adjacency, ApproxDP

__all__ = ["NOTHING", "ElementByElement", "one_each"]

O = TypeVar("O")  # noqa: E741 (the paper's letter for an output)

# Holds for every mechanism. A mechanism with this guarantee is known to have no
# privacy; for one without a guarantee nothing is known.
NOTHING: Final = ApproxDP(epsilon=0.0, delta=1.0, adjacency=Adjacency.REPLACE_ONE)


def one_each(data: Records, elements: int) -> None:
    """Check that the data hold one row per element."""
    if len(data) != elements:
        raise InvalidInputError(
            f"the mechanism was built for elements={elements}, got data of "
            f"{len(data)}; give one row per element"
        )


class ElementByElement(ABC, Generic[O]):
    """A mechanism whose output has an independent part for each element."""

    __slots__ = ()

    @abstractmethod
    def log_odds(self, output: O) -> NDArray[np.float64]:
        """Return ln P[S = +1 | output] / P[S = -1 | output] for each element."""

    @abstractmethod
    def loss_distribution(self, elements: int) -> LossDistribution:
        """Return the loss distribution of this many elements."""

    def posterior(self, output: O) -> FixedPosterior:
        """Return the posterior; revealed coins are no evidence about others."""
        return FixedPosterior(self.log_odds(output))

    def output_likelihood(self, elements: int) -> list[OutputLikelihood]:
        """Return the likelihood of outputs, element by element."""
        return elementwise_likelihood(self.loss_distribution(elements))
