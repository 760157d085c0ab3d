"""Checks of what a mechanism supports, all in one place.

A mechanism is any object; its capabilities are the methods it has. One that supports
something only for some of its settings raises ``AttributeError`` for the others, as
``hasattr`` expects.
"""

from typing import Any, Protocol, TypeGuard

import numpy as np

from dpaudit.game.mechanism import HasPosterior, Mechanism
from dpaudit.game.pairs import Pairs
from dpaudit.mechanisms.loss_distribution import HasLossDistribution
from dpaudit.mechanisms.output_likelihood import HasOutputLikelihood
from dpaudit.mechanisms.table import HasDistribution
from dpaudit.privacy.guarantees import Guarantee
from dpaudit.theory.simulation import Explained

__all__ = [
    "MOST_ENUMERATED",
    "Enumerable",
    "HasPairs",
    "Playable",
    "Simulable",
    "can_be_enumerated",
    "can_be_played",
    "can_be_simulated",
    "guarantee_of",
    "has_loss_distribution",
    "has_output_likelihood",
]

MOST_ENUMERATED = 12
_MOST_CELLS = 1 << 22


class HasPairs(Protocol):
    """A mechanism that provides the pairs on which it is audited."""

    @property
    def pairs(self) -> Pairs:
        """The two records of each element."""
        ...


class Enumerable(HasDistribution[Any], HasPairs, Protocol):
    """A mechanism with finitely many outputs on known pairs."""


class Simulable(Explained[Any], HasPairs, Protocol):
    """A mechanism with known pairs that can be run and gives log-odds of coins."""


class Playable(Mechanism[Any], HasPosterior[Any], HasPairs, Protocol):
    """A mechanism with known pairs that can be run and guessed in turns."""


def has_loss_distribution(mechanism: object) -> TypeGuard[HasLossDistribution]:
    """Return whether the loss distribution is known for any number of elements."""
    return hasattr(mechanism, "loss_distribution")


def can_be_enumerated(mechanism: object, elements: int) -> TypeGuard[Enumerable]:
    """Return whether the distribution of all outputs is known and small."""
    if not _has(mechanism, "distribution", "pairs") or elements > MOST_ENUMERATED:
        return False
    finite: Any = mechanism
    outputs = len(
        finite.distribution(finite.pairs.choose(np.zeros(elements, np.uint8)))
    )
    return outputs << elements <= _MOST_CELLS


def can_be_simulated(mechanism: object) -> TypeGuard[Simulable]:
    """Return whether outputs of simulated runs come with log-odds of coins."""
    return _has(mechanism, "run", "log_odds", "pairs")


def can_be_played(mechanism: object) -> TypeGuard[Playable]:
    """Return whether outputs come with posteriors given revealed coins."""
    return _has(mechanism, "run", "posterior", "pairs")


def has_output_likelihood(mechanism: object) -> TypeGuard[HasOutputLikelihood]:
    """Return whether output likelihoods, and so the limit of audits, are known."""
    return _has(mechanism, "output_likelihood")


def guarantee_of(mechanism: object) -> Guarantee | None:
    """Return the guarantee proved for the mechanism, if any."""
    guarantee: Guarantee | None = getattr(mechanism, "guarantee", None)
    return guarantee


def _has(mechanism: object, *names: str) -> bool:
    return all(hasattr(mechanism, name) for name in names)
