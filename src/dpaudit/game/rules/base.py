"""The interface of rules, in three roles.

- ``Playing``: how many guesses are made, with which stakes, in which turns.
- ``Judging``: what is read of the guesses, and which bound is valid for it.
- ``TableScoring``: how guesses are made from a table of scores (``table_scoring``).

A rule has all three. It must define ``kind``, ``reads`` and ``adaptive``, and the
methods ``max_guesses``, ``stakes``, ``are_stakes``, ``read`` and ``bound``. Everything
else has a default. ``EqualGuesses`` and ``Slots`` define most of these.
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
    """A bound by which a game can be judged, on the reading that its rules return."""

    def __hash__(self) -> int: ...

    def epsilon_lower(
        self,
        reading: Any,  # noqa: ANN401 (the bound accepts what the rules return)
        /,
        *,
        delta: float,
        alpha: float,
    ) -> LowerBound:
        """Return the lower bound on epsilon."""
        ...


class Playing(ABC):
    """What may be guessed, and when.

    Attributes:
        adaptive: Whether coins are revealed during the game.
        independent_coins: Whether each canary has its own fair coin.
    """

    __slots__ = ()

    adaptive: ClassVar[bool]
    independent_coins: ClassVar[bool] = True

    @abstractmethod
    def max_guesses(self, canaries: int) -> int:
        """Return the maximum number of guesses."""

    @abstractmethod
    def stakes(
        self, guess: NDArray[np.int8], stake: ArrayLike | None
    ) -> NDArray[np.float64]:
        """Return the stakes of a turn's guesses.

        Raises:
            InvalidRunError: The rules do not allow them.
        """

    @abstractmethod
    def are_stakes(self, guess: NDArray[np.int8], stake: NDArray[np.float64]) -> bool:
        """Return whether recorded stakes could have been returned by ``stakes``."""

    def runs(self, canaries: int) -> int:  # noqa: ARG002 (for rules of many runs)
        """Return the number of independent runs in which the game is played."""
        return 1

    @property
    def fixed(self) -> bool:
        """Whether the number of guesses is fixed before the run."""
        return True

    @property
    def turns(self) -> int | None:
        """The number of turns; None if unlimited."""
        return None if self.adaptive else 1

    @property
    def free_turns(self) -> bool:
        """Whether a canary may be submitted in any turn."""
        return self.adaptive

    @property
    def uniforms_needed(self) -> int:
        """The number of committed uniform numbers that the bound uses."""
        return 0

    def check_turn(  # noqa: B027 (most have nothing to check)
        self, index: NDArray[np.int64], turn: NDArray[np.int64]
    ) -> None:
        """Refuse canaries submitted in turns that are not theirs."""

    def used(
        self,
        guess: NDArray[np.int8],
        stake: NDArray[np.float64],  # noqa: ARG002 (where weights are limited)
    ) -> NDArray[np.int64]:
        """Return how much of each limited quantity guesses use: here, their number."""
        return np.array([np.count_nonzero(guess)])

    def check_used(self, used: NDArray[np.int64], *, canaries: int) -> None:
        """Refuse more guesses in total than were fixed."""
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
        """The type of reading."""

    @property
    def one_point(self) -> bool:
        """Whether a claim is tested at one point only, not as a whole curve at once."""
        return False

    @property
    def min_epsilon(self) -> float:
        """The smallest epsilon that is tested; 0 by default."""
        return 0.0

    @abstractmethod
    def read(self, played: Played, *, canaries: int) -> Reading:
        """Return what the bound reads; missing guesses count as incorrect."""

    @abstractmethod
    def bound(self) -> AnyBound:
        """Return the bound that is valid for the game."""

    def other_bounds(self) -> tuple[AnyBound, ...]:
        """Return weaker bounds that are valid for the game too."""
        return ()

    def stated_odds(
        self,
        stake: NDArray[np.float64],  # noqa: ARG002 (most stakes state none)
    ) -> NDArray[np.float64] | None:
        """Return the log-odds of being correct that stakes state; None if none."""
        return None

    def check_reading(self, reading: Reading) -> None:  # noqa: B027
        """Refuse a reading of a game by other rules of the same kind."""

    def check_design(  # noqa: B027
        self, *, canaries: int, claimed: float, delta: float, alpha: float
    ) -> None:
        """Refuse a game in which delta costs so much that no bound is possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules(Playing, Judging, TableScoring):
    """The rules of a game.

    Attributes:
        kinds: All known rules, by kind.
        kind: The name of the rules in documents.
    """

    kinds: ClassVar[Registry["Rules"]] = Registry("rules must have a kind,")
    kind: ClassVar[str]

    def __init_subclass__(cls) -> None:
        super(Rules, cls).__init_subclass__()
        Rules.kinds.add(cls)


def right_guesses(played: Played) -> NDArray[np.bool_]:
    """Return which of the guesses made are correct, in order."""
    return np.asarray((played.guess == played.truth)[played.guess != 0])
