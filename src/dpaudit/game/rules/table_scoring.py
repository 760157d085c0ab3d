"""How guesses are made from a table of scores, all at once, most confident first.

A rule states how many of the most confident guesses are "included", the stake of each,
and what its bound reads: single guesses, or counts alone, which are all that a tally of
a large table keeps.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Protocol, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.bounds.readings import Reading
from dpaudit.errors import InvalidInputError

__all__ = ["Played", "TableScoring"]


class Played(Protocol):
    """The columns of a game's record, a row for each canary submitted, in order."""

    @property
    def index(self) -> NDArray[np.int64]:
        """Canaries."""
        ...

    @property
    def guess(self) -> NDArray[np.int8]:
        """-1 or +1 for each, 0 for an abstention."""
        ...

    @property
    def truth(self) -> NDArray[np.int8]:
        """The coin of each, -1 or +1."""
        ...

    @property
    def stake(self) -> NDArray[np.float64]:
        """The stake on each."""
        ...

    @property
    def turn(self) -> NDArray[np.int64]:
        """The number of the submission of each, from 0."""
        ...

    @property
    def uniforms(self) -> NDArray[np.float64]:
        """Committed uniform numbers."""
        ...


class TableScoring(ABC):
    """How guesses are made from a table of scores.

    Attributes:
        ordered: Whether guesses are read one by one, in their order.
    """

    __slots__ = ()

    ordered: ClassVar[bool] = False

    @abstractmethod
    def max_guesses(self, canaries: int) -> int:
        """Return the maximum number of guesses."""

    @abstractmethod
    def read(self, played: Played, *, canaries: int) -> Reading:
        """Return what the bound reads; missing guesses count as incorrect."""

    def most_confident_stakes(self, guesses: int) -> NDArray[np.float64]:
        """Return the stakes of guesses made at once, the most confident first."""
        return np.ones(guesses)

    def from_top(self, guesses: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many of the first n guesses are "included" (of high scores)."""
        return (guesses + 1) // 2

    def read_surest(self, right: NDArray[np.bool_], *, canaries: int) -> Reading:
        """Return what the bound reads of guesses made at once, most confident first.

        Args:
            right: Which of them are correct.
            canaries: The number of canaries.
        """
        return self.read(
            _AtOnce(right, self.most_confident_stakes(len(right))), canaries=canaries
        )

    def read_alike(
        self,
        right: NDArray[np.bool_],
        probability: float,  # noqa: ARG002 (where it is not stated)
        *,
        canaries: int,
    ) -> Reading:
        """Return what the bound reads of guesses with equal probability of success."""
        return self.read_surest(right, canaries=canaries)

    def class_ends(self, canaries: int) -> list[int]:
        """Return after how many guesses correct ones are counted, most confident first.

        These counts are all that ``reading_from_counts`` needs, unless the rules are
        ``ordered``. So a class ends wherever ``most_confident_stakes`` changes.
        """
        return [self.max_guesses(canaries)]

    def reading_from_counts(self, right: Sequence[int], *, canaries: int) -> Reading:
        """Return what the bound reads of the correct guesses up to each class's end.

        Raises:
            InvalidInputError: Guesses of one class have different stakes, and the
                counts do not determine which of them are correct.
        """
        ends = self.class_ends(canaries)
        sizes, made = np.diff([0, *right]), np.diff([0, *ends])
        stakes = self.most_confident_stakes(ends[-1])
        for end, k, n in zip(ends, sizes, made, strict=True):
            if 0 < k < n and np.ptp(stakes[end - n : end]):
                raise InvalidInputError(
                    f"{k} of the guesses {end - n + 1} to {end} were right, and their "
                    "stakes differ: the counts do not show on which of them. "
                    f"{type(self).__name__}.class_ends must end wherever "
                    "most_confident_stakes changes"
                )
        parts = [np.arange(n) < k for k, n in zip(sizes, made, strict=True)]
        return self.read_surest(np.concatenate(parts), canaries=canaries)


@final
class _AtOnce:
    """Guesses made at once, most confident first, as the record of a game."""

    def __init__(self, right: NDArray[np.bool_], stake: NDArray[np.float64]) -> None:
        self.index, self.stake = np.arange(len(right)), stake
        self.guess = np.ones(len(right), np.int8)
        self.truth = np.where(right, 1, -1).astype(np.int8)
        self.turn, self.uniforms = np.zeros(len(right), np.int64), np.empty(0)
