"""What was guessed and what was true, canary by canary."""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpaudit.bounds.reads import Counts
from dpaudit.game.design import Design

__all__ = ["Transcript"]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Transcript:
    """The record of one game; only a referee makes it.

    Attributes:
        design: What the game was opened with.
        index: Canaries submitted, in order.
        guess: -1 or +1 for each, 0 for a pass.
        truth: The coin of each, -1 or +1.
    """

    design: Design
    index: NDArray[np.int64]
    guess: NDArray[np.int8]
    truth: NDArray[np.int8]

    def counts(self) -> Counts:
        """Return what a bound on counts reads; guesses not made count as wrong."""
        return Counts(
            canaries=self.design.canaries,
            guesses=self.design.guesses,
            correct=int(np.count_nonzero(self.guess == self.truth)),
        )
