"""The guess about each canary, and whether it was correct.

A bound is about all canaries together. To explain it, one needs single ones: which
record was that, and how did the model reveal it? No row by itself is evidence, since
half of all guesses would be correct by chance.
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
        id: Its index in the canaries' data set.
        included: Whether its coin flip included it in training.
        score: Its score by the final model, higher where that is more likely.
        guessed: Whether it was guessed to be included; None for an abstention.

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
        """Whether the guess was correct; None if there was none."""
        return None if self.guessed is None else self.guessed == self.included


def guesses_of(
    values: NDArray[np.float64],
    included: NDArray[np.bool_],
    which: NDArray[np.int64],
    guessed: NDArray[np.bool_],
) -> tuple[CanaryGuess, ...]:
    """Return a row for each canary, by its number.

    Args:
        values: The score of each canary.
        included: Whether each was trained on.
        which: The canaries that were guessed about.
        guessed: Whether each of these was guessed to be included.
    """
    guess = dict(zip(which.tolist(), guessed.tolist(), strict=True))
    return tuple(
        CanaryGuess(id=i, included=trained, score=score, guessed=guess.get(i))
        for i, (trained, score) in enumerate(
            zip(included.tolist(), values.tolist(), strict=True)
        )
    )
