"""Rules whose guesses all count the same, so many of them."""

from collections.abc import Sequence
from dataclasses import dataclass
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
    HalfCounts,
    Ranked,
    Reading,
)
from dpaudit.bounds.steinke import SteinkeBound
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.rules.base import Rules, right_guesses
from dpaudit.game.rules.table_scoring import Played

__all__ = [
    "AdaptiveCount",
    "EqualGuesses",
    "OneRun",
    "RandomHalf",
    "Ranking",
    "SeparateRuns",
]


class Unstaked(Rules):
    """Guesses that all count the same."""

    __slots__ = ()

    def stakes(
        self, guess: NDArray[np.int8], stake: ArrayLike | None
    ) -> NDArray[np.float64]:
        """Return ones: no guess counts more than another."""
        if stake is not None:
            raise InvalidRunError(
                f"{type(self).__name__} has no stakes: every guess counts the same"
            )
        return np.ones(len(guess))

    def are_stakes(
        self,
        guess: NDArray[np.int8],  # noqa: ARG002 (passes are written down alike)
        stake: NDArray[np.float64],
    ) -> bool:
        """Return whether a record's stakes are ones."""
        return bool((stake == 1).all())


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualGuesses(Unstaked):
    """So many guesses, which all count the same.

    Attributes:
        guesses: How many; one not made counts as wrong.
    """

    guesses: int

    def __post_init__(self) -> None:
        _validate.whole_number("guesses", self.guesses, least=1)
        object.__setattr__(self, "guesses", int(self.guesses))

    def max_guesses(self, canaries: int) -> int:  # noqa: ARG002 (as many as were fixed)
        """Return the number of guesses."""
        return self.guesses

    def read(self, played: Played, *, canaries: int) -> Reading:
        """Return how many guesses were right."""
        right = right_guesses(played)
        return Counts(
            canaries=canaries,
            guesses=self.guesses,
            correct=int(right.sum()),
            adaptive=self.adaptive,
            abstained=self.guesses - len(right),
        )

    def reading_from_counts(self, right: Sequence[int], *, canaries: int) -> Reading:
        """Return how many were right in all, if that is all that is read."""
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
    are made, and those are counted. A threshold on confidence needs no number then. At
    delta > 0 it costs more than a number that was fixed (``dpaudit.bounds.exact``).

    Reference: Keinan, Shenfeld and Ligett, "alg:one-run-auditing-auditor".

    Attributes:
        guesses: How many, fixed beforehand; one not made counts as wrong. None for as
            many as are made.

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
        """Whether the number of guesses is fixed beforehand."""
        return self.guesses is not None

    @property
    def reads(self) -> type[Reading]:
        """Counts, of guesses that were fixed or of those made."""
        return Counts if self.fixed else CountsAsMade

    @property
    def one_point(self) -> bool:
        """Whether it tests a claim at one point: if the number is not fixed."""
        return not self.fixed

    def max_guesses(self, canaries: int) -> int:
        """Return the number of guesses, or that of canaries if none is fixed."""
        return canaries if self.guesses is None else self.guesses

    def check_design(
        self,
        *,
        canaries: int,
        claimed: float,  # noqa: ARG002
        delta: float,
        alpha: float,
    ) -> None:
        """Refuse guesses without a number where delta costs all of alpha."""
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
        """Return the exact bound, or that on the number made."""
        return ExactBound() if self.fixed else AsMadeBound()

    def other_bounds(self) -> tuple[AnyBound, ...]:
        """Return the published bounds on counts, and the one for adaptive guesses."""
        return (PureBound(), SteinkeBound(), AdaptiveBound()) if self.fixed else ()

    def read(self, played: Played, *, canaries: int) -> Reading:
        """Return how many guesses were correct, of those fixed or of those made."""
        right = right_guesses(played)
        return self._counts(len(right), int(right.sum()), canaries)

    def reading_from_counts(self, right: Sequence[int], *, canaries: int) -> Reading:
        """Return how many of all guesses that are allowed were correct."""
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
    """Classic auditing: every canary has a run of its own, independent of the others.

    Attributes:
        guesses: How many; one not made counts as wrong.
    """

    kind = "separate-runs"
    reads = Counts
    adaptive = False

    def bound(self) -> AnyBound:
        """Return the bound for independent coins, for which delta costs less."""
        return SeparateRunsBound()

    def runs(self, canaries: int) -> int:
        """Return the number of canaries."""
        return canaries


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking(EqualGuesses):
    """All guesses at once, the surest first.

    Attributes:
        guesses: How many are ranked; one not made counts as wrong, at the end.
    """

    kind = "ranking"
    reads = Ranked
    adaptive = False
    one_point = True
    ordered = True

    def bound(self) -> AnyBound:
        """Return the bound that looks at the best few."""
        return RankedBound()

    def read(self, played: Played, *, canaries: int) -> Reading:
        """Return which of the ranked guesses were right."""
        right = right_guesses(played)
        ranked = np.zeros(self.guesses, bool)
        ranked[: len(right)] = right
        abstained = self.guesses - len(right)
        return Ranked(canaries=canaries, right=ranked, abstained=abstained)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RandomHalf(EqualGuesses):
    """All guesses at once, all "included", where a random half of the canaries was.

    For canaries without a coin each: half of them, rounded down, was drawn uniformly at
    random and included. The others are not guessed, which says the same as guessing all
    of them "excluded" (``dpaudit.bounds.hypergeometric``).

    Attributes:
        guesses: How many; no more than were included.
        records_per_swap: How many records of the data change where one canary takes the
            place of another: 2 under add/remove and zero-out adjacency, 1 under
            replace-one.
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
        """Return the number of guesses: all are "included"."""
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
        assert isinstance(reading, HalfCounts)  # whoever asks has seen to it
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
        """Refuse more guesses than canaries were included."""
        if self.guesses > canaries // 2:
            raise InvalidInputError(
                f"half of canaries={canaries} was included, and guesses={self.guesses} "
                "are more than that"
            )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveCount(EqualGuesses):
    """Coins are revealed on the way; the number of guesses is fixed.

    Attributes:
        guesses: How many; one not made counts as wrong.
    """

    kind = "adaptive-count"
    reads = Counts
    adaptive = True

    def bound(self) -> AnyBound:
        """Return the bound for counts of adaptive guesses."""
        return AdaptiveBound()
