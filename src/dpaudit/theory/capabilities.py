"""What a mechanism offers to theory, asked in one place.

Mechanisms are any objects; what they can do is seen from the methods they have. One
that offers something only for some of its settings raises ``AttributeError`` where it
does not, as ``hasattr`` expects.
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
    """A mechanism that knows the pairs on which it is audited."""

    @property
    def pairs(self) -> Pairs:
        """The two records of each element."""
        ...


class Enumerable(HasDistribution[Any], HasPairs, Protocol):
    """A mechanism with finitely many outputs on known pairs."""


class Simulable(Explained[Any], HasPairs, Protocol):
    """A mechanism that can be run and explained on known pairs."""


class Playable(Mechanism[Any], HasPosterior[Any], HasPairs, Protocol):
    """A mechanism that can be run and guessed in turns on known pairs."""


def has_loss_distribution(mechanism: object) -> TypeGuard[HasLossDistribution]:
    """Whether the distribution of losses is known at any size."""
    return hasattr(mechanism, "loss_distribution")


def can_be_enumerated(mechanism: object, elements: int) -> TypeGuard[Enumerable]:
    """Whether the distribution of all outputs is known and small."""
    if not _has(mechanism, "distribution", "pairs") or elements > MOST_ENUMERATED:
        return False
    finite: Any = mechanism
    outputs = len(
        finite.distribution(finite.pairs.choose(np.zeros(elements, np.uint8)))
    )
    return outputs << elements <= _MOST_CELLS


def can_be_simulated(mechanism: object) -> TypeGuard[Simulable]:
    """Whether runs can be explained."""
    return _has(mechanism, "run", "log_odds", "pairs")


def can_be_played(mechanism: object) -> TypeGuard[Playable]:
    """Whether runs can be explained once some coins are revealed."""
    return _has(mechanism, "run", "posterior", "pairs")


def has_output_likelihood(mechanism: object) -> TypeGuard[HasOutputLikelihood]:
    """Whether all that outputs say is known, and so what any audit could tell."""
    return _has(mechanism, "output_likelihood")


def guarantee_of(mechanism: object) -> Guarantee | None:
    """Return what is proved about the mechanism, if anything."""
    found: Guarantee | None = getattr(mechanism, "guarantee", None)
    return found


def _has(mechanism: object, *names: str) -> bool:
    return all(hasattr(mechanism, name) for name in names)
