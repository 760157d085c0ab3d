"""What a rule must say, and what it may: in three roles.

- ``Playing``: how many guesses there are, what is put on them, and in which turns.
- ``Judging``: what is read of the guesses, and which bound is valid for that.
- ``TableScoring``: how guesses are made from a table of scores (``table_scoring``).

A rule has all three. It must give ``kind``, ``reads`` and ``adaptive``, and the methods
``max_guesses``, ``stakes``, ``are_stakes``, ``read`` and ``bound``. All else has a
default. Rules that derive from ``EqualGuesses`` or ``Slots`` have most of these from
there.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit._registry import Registry
from dpaudit.bounds.bound import AnyBound, LowerBound
from dpaudit.bounds.readings import Reading
from dpaudit.errors import InvalidRunError
from dpaudit.game.rules.table_scoring import Played, TableScoring

__all__ = ["Judging", "JudgingBound", "Playing", "Rules", "right_guesses"]


class JudgingBound(Protocol):
    """A bound that a game can be judged by; it reads what the game's rules give."""

    def __hash__(self) -> int: ...

    def epsilon_lower(
        self,
        reading: Any,  # noqa: ANN401 (what the rules give is what the bound reads)
        /,
        *,
        delta: float,
        alpha: float,
    ) -> LowerBound:
        """Return the lower bound."""
        ...


class Playing(ABC):
    """What may be guessed, and when.

    Attributes:
        adaptive: Whether coins are revealed while the game goes on.
        independent_coins: Whether each canary has a fair coin of its own.
    """

    __slots__ = ()

    adaptive: ClassVar[bool]
    independent_coins: ClassVar[bool] = True

    @abstractmethod
    def max_guesses(self, canaries: int) -> int:
        """Return how many guesses are allowed at most."""

    @abstractmethod
    def stakes(
        self, guess: NDArray[np.int8], stake: ArrayLike | None
    ) -> NDArray[np.float64]:
        """Return the stakes of a turn's guesses.

        Raises:
            InvalidRunError: They are none that the rules have.
        """

    @abstractmethod
    def are_stakes(self, guess: NDArray[np.int8], stake: NDArray[np.float64]) -> bool:
        """Return whether a record's stakes are such as ``stakes`` returns."""

    def runs(self, canaries: int) -> int:  # noqa: ARG002 (a few have many)
        """Return in how many independent runs the game is played."""
        return 1

    @property
    def fixed(self) -> bool:
        """Whether the number of guesses is fixed beforehand."""
        return True

    @property
    def turns(self) -> int | None:
        """How many turns there are; None for as many as one likes."""
        return None if self.adaptive else 1

    @property
    def free_turns(self) -> bool:
        """Whether it makes no difference in which turn a canary came."""
        return self.adaptive

    @property
    def uniforms_needed(self) -> int:
        """How many committed uniform numbers the bound uses."""
        return 0

    def check_turn(  # noqa: B027 (most have nothing to check)
        self, index: NDArray[np.int64], turn: NDArray[np.int64]
    ) -> None:
        """Refuse canaries in turns that are not theirs."""

    def used(
        self,
        guess: NDArray[np.int8],
        stake: NDArray[np.float64],  # noqa: ARG002 (where weights are limited)
    ) -> NDArray[np.int64]:
        """Return how much guesses use of what is limited: here, their number."""
        return np.array([np.count_nonzero(guess)])

    def check_used(self, used: NDArray[np.int64], *, canaries: int) -> None:
        """Refuse more guesses in all than were fixed."""
        (made,), allowed = used, self.max_guesses(canaries)
        if made > allowed:
            raise InvalidRunError(
                f"{made} guesses were made, but the design allows guesses={allowed}; "
                "the number must be fixed before the run"
            )


class Judging(ABC):
    """What is read of the guesses, and the bound that is valid for it."""

    __slots__ = ()

    @property
    @abstractmethod
    def reads(self) -> type[Reading]:
        """What is read."""

    @property
    def one_point(self) -> bool:
        """Whether it tests a claim at one point, and no whole curve at once."""
        return False

    @property
    def min_epsilon(self) -> float:
        """The smallest epsilon that is tested; 0 unless the rules have another."""
        return 0.0

    @abstractmethod
    def read(self, played: Played, *, canaries: int) -> Reading:
        """Return what the bound reads; what is missing is wrong."""

    @abstractmethod
    def bound(self) -> AnyBound:
        """Return the bound that is valid for the game."""

    def other_bounds(self) -> tuple[AnyBound, ...]:
        """Return other bounds that are valid for the game, though weaker."""
        return ()

    def stated_odds(
        self,
        stake: NDArray[np.float64],  # noqa: ARG002 (of most it says nothing)
    ) -> NDArray[np.float64] | None:
        """Return the log-odds of being right that stakes state; None if they do not."""
        return None

    def check_reading(self, reading: Reading) -> None:  # noqa: B027
        """Refuse a reading of another game by rules of the same kind."""

    def check_design(  # noqa: B027
        self, *, canaries: int, claimed: float, delta: float, alpha: float
    ) -> None:
        """Refuse a game whose delta costs so much that nothing could be shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules(Playing, Judging, TableScoring):
    """What a game is played by.

    Attributes:
        kinds: All rules that are known, by kind.
        kind: Its name in documents.
    """

    kinds: ClassVar[Registry["Rules"]] = Registry("rules must have a kind,")
    kind: ClassVar[str]

    def __init_subclass__(cls) -> None:
        super(Rules, cls).__init_subclass__()
        Rules.kinds.add(cls)


def right_guesses(played: Played) -> NDArray[np.bool_]:
    """Return which of the guesses that were made are right, in order."""
    return np.asarray((played.guess == played.truth)[played.guess != 0])
