"""Canary by canary: what was guessed of each, and whether it was right.

A bound is about all canaries together. Whoever must explain it is asked about single
ones: which record was that, and how did the model give it away? No row by itself shows
anything, since half of all guesses would be right by chance.
"""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

__all__ = ["CanaryGuess", "guesses_of"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryGuess:
    """One canary of an audit that was judged.

    Attributes:
        id: Its place in the canaries' data set.
        included: Whether it was trained on, as its coin said.
        score: How much the final model speaks for that.
        guessed: Whether it was guessed to be included; None if nothing was guessed.

    Example:
        >>> CanaryGuess(id=7, included=True, score=0.5, guessed=False).right
        False
    """

    id: int
    included: bool
    score: float
    guessed: bool | None

    @property
    def right(self) -> bool | None:
        """Whether the guess was right; None if there was none."""
        return None if self.guessed is None else self.guessed == self.included


def guesses_of(
    values: NDArray[np.float64],
    included: NDArray[np.bool_],
    which: NDArray[np.int64],
    guessed: NDArray[np.bool_],
) -> tuple[CanaryGuess, ...]:
    """Return a row for each canary, by its number.

    Args:
        values: The score of each.
        included: Whether each was.
        which: Those that were guessed.
        guessed: As what.
    """
    said = dict(zip(which.tolist(), guessed.tolist(), strict=True))
    return tuple(
        CanaryGuess(id=i, included=there, score=score, guessed=said.get(i))
        for i, (there, score) in enumerate(
            zip(included.tolist(), values.tolist(), strict=True)
        )
    )
