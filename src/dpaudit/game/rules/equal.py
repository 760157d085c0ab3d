"""Rules under which all guesses count the same."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit import _validate
from dpaudit.bounds.adaptive import AdaptiveBound, coupling_failure_probability
from dpaudit.bounds.bound import AnyBound
from dpaudit.bounds.exact import AsMadeBound, ExactBound, PureBound, SeparateRunsBound
from dpaudit.bounds.hypergeometric import HypergeometricBound
from dpaudit.bounds.ranked import RankedBound
from dpaudit.bounds.readings import (
    Counts,
    CountsAsMade,
    EventCounts,
    HalfCounts,
    Ranked,
    Reading,
    check_order,
)
from dpaudit.bounds.steinke import SteinkeBound
from dpaudit.bounds.whole_claim import WholeClaimBound
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.rules.base import Rules, right_guesses
from dpaudit.game.rules.table_scoring import Played

__all__ = [
    "AdaptiveCount",
    "EqualGuesses",
    "OneRun",
    "RandomHalf",
    "Ranking",
    "RunByRun",
    "SeparateRuns",
    "Sides",
]


class Unstaked(Rules):
    """Guesses that all count the same."""

    __slots__ = ()

    def stakes(
        self, guess: NDArray[np.int8], stake: ArrayLike | None
    ) -> NDArray[np.float64]:
        """Return ones: all guesses count the same."""
        if stake is not None:
            raise InvalidRunError(
                f"{type(self).__name__} has no stakes: every guess counts the same"
            )
        return np.ones(len(guess))

    def are_stakes(
        self,
        guess: NDArray[np.int8],  # noqa: ARG002 (abstentions have stake 1 too)
        stake: NDArray[np.float64],
    ) -> bool:
        """Return whether a record's stakes are ones."""
        return bool((stake == 1).all())


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualGuesses(Unstaked):
    """A fixed number of guesses, which all count the same.

    Attributes:
        guesses: The number of guesses; one not made counts as incorrect.
    """

    guesses: int

    def __post_init__(self) -> None:
        _validate.whole_number("guesses", self.guesses, least=1)
        object.__setattr__(self, "guesses", int(self.guesses))

    def max_guesses(self, canaries: int) -> int:  # noqa: ARG002 (as many as were fixed)
        """Return the number of guesses."""
        return self.guesses

    def read(self, played: Played, *, canaries: int) -> Reading:
        """Return the number of correct guesses."""
        right = right_guesses(played)
        return Counts(
            canaries=canaries,
            guesses=self.guesses,
            correct=int(right.sum()),
            adaptive=self.adaptive,
            abstained=self.guesses - len(right),
        )

    def reading_from_counts(self, right: Sequence[int], *, canaries: int) -> Reading:
        """Return the total number of correct guesses, unless guesses are ordered."""
        if self.ordered:
            return Rules.reading_from_counts(self, right, canaries=canaries)
        return Counts(
            canaries=canaries,
            guesses=self.guesses,
            correct=right[-1],
            adaptive=self.adaptive,
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OneRun(Unstaked):
    """All guesses at once.

    Without a number it is Algorithm 1 as printed: the output decides how many guesses
    are made, and those are counted. A threshold on confidence then needs no number. At
    delta > 0 this costs more than a fixed number (``dpaudit.bounds.exact``).

    Reference: Keinan, Shenfeld and Ligett, "alg:one-run-auditing-auditor".

    Attributes:
        guesses: The number of guesses, fixed before the run; one not made counts as
            incorrect. None for as many as are made.

    Example:
        >>> OneRun(guesses=10).bound().method, OneRun(guesses=None).bound().method
        ('exact', 'as made')
    """

    guesses: int | None

    kind = "one-run"
    adaptive = False

    def __post_init__(self) -> None:
        if self.guesses is not None:
            _validate.whole_number("guesses", self.guesses, least=1)
            object.__setattr__(self, "guesses", int(self.guesses))

    @property
    def fixed(self) -> bool:
        """Whether the number of guesses is fixed before the run."""
        return self.guesses is not None

    @property
    def reads(self) -> type[Reading]:
        """Counts for a fixed number of guesses, or counts of those made."""
        return Counts if self.fixed else CountsAsMade

    @property
    def one_point(self) -> bool:
        """Whether a claim is tested at one point only: if the number is not fixed."""
        return not self.fixed

    def max_guesses(self, canaries: int) -> int:
        """Return the number of guesses, or of canaries if none is fixed."""
        return canaries if self.guesses is None else self.guesses

    def check_design(
        self,
        *,
        canaries: int,
        claimed: float,  # noqa: ARG002
        delta: float,
        alpha: float,
    ) -> None:
        """Refuse an unfixed number of guesses if delta costs all of alpha."""
        price = (
            0.0 if self.fixed else coupling_failure_probability(canaries, 0.0, delta)
        )
        if price >= alpha:
            raise InvalidInputError(
                f"if the output decides on the number of guesses, delta={delta:g} "
                f"costs {price:.3g}, no less than alpha={alpha:g}: nothing could be "
                "shown; fix a number, OneRun(guesses=...), or use fewer canaries"
            )

    def bound(self) -> AnyBound:
        """Return the exact bound, or the one for guesses as made."""
        return ExactBound() if self.fixed else AsMadeBound()

    def other_bounds(self) -> tuple[AnyBound, ...]:
        """Return the published bounds for counts, and the one for adaptive guesses."""
        return (PureBound(), SteinkeBound(), AdaptiveBound()) if self.fixed else ()

    def read(self, played: Played, *, canaries: int) -> Reading:
        """Return the number of correct guesses, of those fixed or of those made."""
        right = right_guesses(played)
        return self._counts(len(right), int(right.sum()), canaries)

    def reading_from_counts(self, right: Sequence[int], *, canaries: int) -> Reading:
        """Return the number of correct guesses if the maximum number was made."""
        return self._counts(self.max_guesses(canaries), right[-1], canaries)

    def _counts(self, made: int, correct: int, canaries: int) -> Reading:
        if self.guesses is None:
            return CountsAsMade(canaries=canaries, guesses=made, correct=correct)
        return Counts(
            canaries=canaries,
            guesses=self.guesses,
            correct=correct,
            abstained=self.guesses - made,
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SeparateRuns(EqualGuesses):
    """Classic auditing: every canary has its own run, independent of the others.

    Attributes:
        guesses: The number of guesses; one not made counts as incorrect.
    """

    kind = "separate-runs"
    reads = Counts
    adaptive = False

    def bound(self) -> AnyBound:
        """Return the bound for independent runs, in which delta costs less."""
        return SeparateRunsBound()

    def runs(self, canaries: int) -> int:
        """Return the number of canaries."""
        return canaries


def _made_and_correct(reading: Reading) -> tuple[int, int]:
    correct, made = reading.correct_and_guesses()
    return made, correct


class Sides(StrEnum):
    """Which coins a guesser may guess."""

    BOTH = "both"
    INCLUDED = "included"
    EXCLUDED = "excluded"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RunByRun(Unstaked):
    """Every canary has its own run, whose output alone decides about its guess.

    Whether and what is guessed after a run is a function of that run's output, fixed
    before the runs: an event. The number of guesses is not fixed, and the whole claim
    is tested at once (``dpaudit.bounds.whole_claim``). Runs are independent and alike.

    Attributes:
        slope: The slope of the line that orders outcomes: ``correct - slope wrong``.
        intercept: Where that line begins, as a share of the canaries.
        sides: Which coins may be guessed.

    Example:
        >>> RunByRun(slope=2.7, intercept=0.0).bound().method
        'whole claim'
    """

    slope: float
    intercept: float
    sides: Sides = Sides.BOTH

    kind = "run-by-run"
    reads = EventCounts
    adaptive = False

    def __post_init__(self) -> None:
        check_order(self.slope, self.intercept)
        _validate.kind("sides", self.sides, Sides)

    @property
    def fixed(self) -> bool:
        """Whether the number of guesses is fixed before the runs: it is not."""
        return False

    def max_guesses(self, canaries: int) -> int:
        """Return the number of canaries."""
        return canaries

    def runs(self, canaries: int) -> int:
        """Return the number of canaries."""
        return canaries

    def stakes(
        self, guess: NDArray[np.int8], stake: ArrayLike | None
    ) -> NDArray[np.float64]:
        """Return ones; refuse guesses of a coin that may not be guessed."""
        if not self._allowed(guess):
            raise InvalidRunError(
                f'only "{self.sides}" may be guessed (sides), and another guess was '
                "made"
            )
        return Unstaked.stakes(self, guess, stake)

    def are_stakes(self, guess: NDArray[np.int8], stake: NDArray[np.float64]) -> bool:
        """Return whether a record's guesses are allowed and its stakes are ones."""
        return self._allowed(guess) and Unstaked.are_stakes(self, guess, stake)

    def from_top(self, guesses: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many of the first n guesses are "included"."""
        match self.sides:
            case Sides.INCLUDED:
                return guesses
            case Sides.EXCLUDED:
                return np.zeros_like(guesses)
        return Unstaked.from_top(self, guesses)

    def bound(self) -> AnyBound:
        """Return the bound that tests the whole claim."""
        return WholeClaimBound()

    def read(self, played: Played, *, canaries: int) -> Reading:
        """Return the numbers of correct and of wrong guesses."""
        right = right_guesses(played)
        return self._counts(len(right), int(right.sum()), canaries)

    def reading_from_counts(self, right: Sequence[int], *, canaries: int) -> Reading:
        """Return the counts if every canary was guessed."""
        return self._counts(canaries, right[-1], canaries)

    def check_reading(self, reading: Reading) -> None:
        """Refuse a reading whose outcomes are ordered otherwise."""
        if reading != self._counts(*_made_and_correct(reading), reading.canaries):
            raise InvalidRunError(
                "the rules fix slope, intercept and sides before the runs, and the "
                f"reading has others: {reading}"
            )

    def _allowed(self, guess: NDArray[np.int8]) -> bool:
        return not (
            (self.sides is Sides.INCLUDED and (guess < 0).any())
            or (self.sides is Sides.EXCLUDED and (guess > 0).any())
        )

    def _counts(self, made: int, correct: int, canaries: int) -> Reading:
        return EventCounts(
            canaries=canaries,
            correct=correct,
            wrong=made - correct,
            slope=self.slope,
            intercept=self.intercept,
            one_sided=self.sides is not Sides.BOTH,
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking(EqualGuesses):
    """All guesses at once, the most confident first.

    Attributes:
        guesses: The number of ranked guesses; those not made count as incorrect and
            come last.
    """

    kind = "ranking"
    reads = Ranked
    adaptive = False
    one_point = True
    ordered = True

    def bound(self) -> AnyBound:
        """Return the bound that reads increasing numbers of the best guesses."""
        return RankedBound()

    def read(self, played: Played, *, canaries: int) -> Reading:
        """Return which of the ranked guesses were correct."""
        right = right_guesses(played)
        ranked = np.zeros(self.guesses, bool)
        ranked[: len(right)] = right
        abstained = self.guesses - len(right)
        return Ranked(canaries=canaries, right=ranked, abstained=abstained)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RandomHalf(EqualGuesses):
    """All guesses at once, all "included", if a random half of the canaries was.

    For canaries without their own coins: half of them, rounded down, was drawn
    uniformly at random and included. The others are not guessed, which is equivalent to
    guessing all of them "excluded" (``dpaudit.bounds.hypergeometric``).

    Attributes:
        guesses: The number of guesses; no more than were included.
        records_per_swap: How many records of the data change if one canary replaces
            another: 2 under add/remove and zero-out adjacency, 1 under replace-one.
    """

    records_per_swap: int = 2

    kind = "random-half"
    reads = HalfCounts
    adaptive = False
    independent_coins = False

    def __post_init__(self) -> None:
        EqualGuesses.__post_init__(self)
        if self.records_per_swap not in (1, 2):
            raise InvalidInputError(
                "a swap changes one record or two, got "
                f"records_per_swap={self.records_per_swap!r}"
            )

    def bound(self) -> AnyBound:
        """Return the bound for a random half."""
        return HypergeometricBound()

    def from_top(self, guesses: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of guesses, as all are "included"."""
        return guesses

    def read(self, played: Played, *, canaries: int) -> Reading:
        """Return how many of the guessed were included."""
        return self.reading_from_counts(
            [int(right_guesses(played).sum())], canaries=canaries
        )

    def reading_from_counts(self, right: Sequence[int], *, canaries: int) -> Reading:
        """Return how many of the guessed were included."""
        return HalfCounts(
            canaries=canaries,
            guesses=self.guesses,
            correct=right[-1],
            records_per_swap=self.records_per_swap,
        )

    def check_reading(self, reading: Reading) -> None:
        """Refuse a reading of another adjacency."""
        assert isinstance(reading, HalfCounts)  # guaranteed by callers
        if reading.records_per_swap != self.records_per_swap:
            raise InvalidRunError("the reading's records_per_swap is not the rules'")

    def check_design(
        self,
        *,
        canaries: int,
        claimed: float,  # noqa: ARG002
        delta: float,  # noqa: ARG002
        alpha: float,  # noqa: ARG002
    ) -> None:
        """Refuse more guesses than included canaries."""
        if self.guesses > canaries // 2:
            raise InvalidInputError(
                f"half of canaries={canaries} was included, and guesses={self.guesses} "
                "are more than that"
            )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveCount(EqualGuesses):
    """Coins are revealed in turns; the number of guesses is fixed.

    Attributes:
        guesses: The number of guesses; one not made counts as incorrect.
    """

    kind = "adaptive-count"
    reads = Counts
    adaptive = True

    def bound(self) -> AnyBound:
        """Return the bound for counts of adaptive guesses."""
        return AdaptiveBound()
