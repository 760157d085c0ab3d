"""The rules a game is played by, fixed before it begins.

A rule knows its whole game: what is revealed when, what of the guesser's freedom is
pinned down, how the guesses of a turn are checked, what is read of them at the end, and
which bound is valid for that. Whoever adds a game writes a rule.

One run: all guesses at once, nothing revealed before.

- ``OneRun``: so many guesses.
- ``SeparateRuns``: so many guesses, and a run of its own for every canary.
- ``Ranking``: so many guesses, in order of confidence; the bound looks at the best few.
- ``RandomHalf``: so many guesses "included", where a random half was included.
- ``Classes``: so many guesses of each weight.

Adaptive: a coin is revealed once its canary was submitted, guessed or passed.

- ``AdaptiveCount``: so many guesses; one not made counts as wrong.
- ``AdaptiveClasses``: so many guesses of each weight; every guess takes a free slot.
- ``AdaptiveRounds``: so many rounds of planned weight; any guesses within a round.
- ``AdaptiveBets``: any guesses, each with a stated chance; stop at will.

Counting the guesses that an adaptive guesser happened to make, as if their number had
been fixed, is not among them: docs/explanation/errata.md shows why.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, ClassVar, Final, Protocol, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from dpaudit import _validate
from dpaudit._kinds import Kinds
from dpaudit.bounds.adaptive import Adaptive, coupling_price
from dpaudit.bounds.bets import Betting
from dpaudit.bounds.bound import GameBound, Grid, LowerBound
from dpaudit.bounds.exact import Classic, Exact, Pure
from dpaudit.bounds.hypergeometric import Hypergeometric
from dpaudit.bounds.ranked import RankedLooks
from dpaudit.bounds.readings import (
    Bets,
    Counts,
    HalfCounts,
    Ranked,
    Reading,
    Rounds,
    Weighted,
    check_jump,
)
from dpaudit.bounds.rounds import (
    MOST_CHANCE,
    StoufferRounds,
    left_to_chance,
    rounds_price,
)
from dpaudit.bounds.steinke import Steinke
from dpaudit.bounds.weighted import AdaptiveSlots, WeightedGuesses
from dpaudit.errors import InvalidInputError, VoidAuditError

__all__ = [
    "LARGEST_WEIGHT",
    "AdaptiveBets",
    "AdaptiveClasses",
    "AdaptiveCount",
    "AdaptiveRounds",
    "Classes",
    "EqualGuesses",
    "JudgingBound",
    "OneRun",
    "Played",
    "RandomHalf",
    "Ranking",
    "Rules",
    "SeparateRuns",
    "Slots",
]

LARGEST_WEIGHT: Final = 1e9  # larger ratios make one class all that counts


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


class Played(Protocol):
    """The columns of a game's record, a row for each canary submitted, in order."""

    @property
    def index(self) -> NDArray[np.int64]:
        """Canaries."""
        ...

    @property
    def guess(self) -> NDArray[np.int8]:
        """-1 or +1 for each, 0 for a pass."""
        ...

    @property
    def truth(self) -> NDArray[np.int8]:
        """The coin of each, -1 or +1."""
        ...

    @property
    def stake(self) -> NDArray[np.float64]:
        """What was put on each."""
        ...

    @property
    def turn(self) -> NDArray[np.int64]:
        """In which submission each came, from 0."""
        ...

    @property
    def uniforms(self) -> NDArray[np.float64]:
        """Committed uniform numbers."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules(ABC):
    """What a game is played by.

    Attributes:
        kinds: All rules that are known, by kind.
        kind: Its name in documents.
        reads: What is read of it.
        reveals: Whether coins are revealed while the game goes on.
        fixed: Whether the number of guesses is fixed beforehand.
        one_point: Whether it tests a claim at one point, and no whole curve at once.
        ordered: Whether guesses are read one by one, in their order.
        own_coins: Whether each canary has a fair coin of its own.
    """

    kinds: ClassVar[Kinds["Rules"]] = Kinds("rules must have a kind,")
    kind: ClassVar[str]
    reads: ClassVar[type[Reading]]
    reveals: ClassVar[bool]
    fixed: ClassVar[bool] = True
    one_point: ClassVar[bool] = False
    ordered: ClassVar[bool] = False
    own_coins: ClassVar[bool] = True

    @property
    def start(self) -> float:
        """The smallest epsilon that is tested; 0 unless the rules have another."""
        return 0.0

    def __init_subclass__(cls) -> None:
        super(Rules, cls).__init_subclass__()
        Rules.kinds.add(cls)

    @abstractmethod
    def most(self, canaries: int) -> int:
        """Return how many guesses are allowed at most."""

    @abstractmethod
    def bound(self) -> GameBound[Any]:
        """Return the bound that is valid for the game."""

    def also(self) -> tuple[GameBound[Any], ...]:
        """Return other bounds that are valid for the game, though weaker."""
        return ()

    def runs(self, canaries: int) -> int:  # noqa: ARG002 (a few have many)
        """Return in how many independent runs the game is played."""
        return 1

    @abstractmethod
    def read(self, played: Played, *, canaries: int) -> Reading:
        """Return what the bound reads; what is missing is wrong."""

    @abstractmethod
    def stakes(
        self, guess: NDArray[np.int8], stake: ArrayLike | None
    ) -> NDArray[np.float64]:
        """Return the stakes of a turn's guesses.

        Raises:
            VoidAuditError: They are none that the rules have.
        """

    @abstractmethod
    def are_stakes(self, guess: NDArray[np.int8], stake: NDArray[np.float64]) -> bool:
        """Return whether a record's stakes are such as ``stakes`` returns."""

    def surest_stakes(self, guesses: int) -> NDArray[np.float64]:
        """Return the stakes of guesses that are made at once, the surest first."""
        return np.ones(guesses)

    def from_top(self, guesses: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many of so many surest guesses are "included": of high scores."""
        return (guesses + 1) // 2

    def read_surest(self, right: NDArray[np.bool_], *, canaries: int) -> Reading:
        """Return what the bound reads of guesses made at once, the surest first.

        Args:
            right: Which of them were right.
            canaries: How many canaries there are.
        """
        return self.read(
            _AtOnce(right, self.surest_stakes(len(right))), canaries=canaries
        )

    def read_alike(
        self,
        right: NDArray[np.bool_],
        chance: float,  # noqa: ARG002 (where it is not stated)
        *,
        canaries: int,
    ) -> Reading:
        """Return what the bound reads of guesses that all have the same chance."""
        return self.read_surest(right, canaries=canaries)

    def cuts(self, canaries: int) -> list[int]:
        """Return after how many guesses the right ones are counted, the surest first.

        Who has these counts has all that ``count`` needs, unless the rules are
        ``ordered``. So there is a cut wherever ``surest_stakes`` changes.
        """
        return [self.most(canaries)]

    def count(self, right: Sequence[int], *, canaries: int) -> Reading:
        """Return what the bound reads of how many were right up to each cut.

        Raises:
            InvalidInputError: Guesses between two cuts have different stakes, and the
                counts do not say which of them were right.
        """
        ends = self.cuts(canaries)
        sizes, made = np.diff([0, *right]), np.diff([0, *ends])
        stakes = self.surest_stakes(ends[-1])
        for end, k, n in zip(ends, sizes, made, strict=True):
            if 0 < k < n and np.ptp(stakes[end - n : end]):
                raise InvalidInputError(
                    f"{k} of the guesses {end - n + 1} to {end} were right, and their "
                    "stakes differ: the counts do not say on which of them. "
                    f"{type(self).__name__}.cuts must end wherever surest_stakes "
                    "changes"
                )
        parts = [np.arange(n) < k for k, n in zip(sizes, made, strict=True)]
        return self.read_surest(np.concatenate(parts), canaries=canaries)

    def stated_odds(
        self,
        stake: NDArray[np.float64],  # noqa: ARG002 (of most it says nothing)
    ) -> NDArray[np.float64] | None:
        """Return the log-odds of being right that stakes state; None if they do not."""
        return None

    @property
    def turns(self) -> int | None:
        """How many turns there are; None for as many as one likes."""
        return None if self.reveals else 1

    @property
    def free_turns(self) -> bool:
        """Whether it makes no difference in which turn a canary came."""
        return self.reveals

    @property
    def uniforms(self) -> int:
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
        (made,), allowed = used, self.most(canaries)
        if made > allowed:
            raise VoidAuditError(
                f"{made} guesses were made, but the design allows guesses={allowed}; "
                "the number must be fixed before the run"
            )

    def check_reading(self, reading: Reading) -> None:  # noqa: B027
        """Refuse a reading of another game by rules of the same kind."""

    def check_price(  # noqa: B027
        self, *, canaries: int, claimed: float, delta: float, alpha: float
    ) -> None:
        """Refuse a game whose delta costs so much that nothing could be shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualGuesses(Rules):
    """So many guesses, which all count the same.

    Attributes:
        guesses: How many; one not made counts as wrong.
    """

    guesses: int

    def __post_init__(self) -> None:
        _validate.whole_number("guesses", self.guesses, least=1)
        object.__setattr__(self, "guesses", int(self.guesses))

    def most(self, canaries: int) -> int:  # noqa: ARG002 (as many as were fixed)
        """Return the number of guesses."""
        return self.guesses

    def stakes(
        self, guess: NDArray[np.int8], stake: ArrayLike | None
    ) -> NDArray[np.float64]:
        """Return ones: no guess counts more than another."""
        if stake is not None:
            raise VoidAuditError(
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

    def read(self, played: Played, *, canaries: int) -> Reading:
        """Return how many guesses were right."""
        right = _right(played)
        return Counts(
            canaries=canaries,
            guesses=self.guesses,
            correct=int(right.sum()),
            adaptive=self.reveals,
            abstained=self.guesses - len(right),
        )

    def count(self, right: Sequence[int], *, canaries: int) -> Reading:
        """Return how many were right in all, if that is all that is read."""
        if self.ordered:
            return Rules.count(self, right, canaries=canaries)
        return Counts(
            canaries=canaries,
            guesses=self.guesses,
            correct=right[-1],
            adaptive=self.reveals,
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OneRun(EqualGuesses):
    """All guesses at once.

    Attributes:
        guesses: How many; one not made counts as wrong.
    """

    kind = "one-run"
    reads = Counts
    reveals = False

    def bound(self) -> GameBound[Any]:
        """Return the exact bound."""
        return Exact()

    def also(self) -> tuple[GameBound[Any], ...]:
        """Return the published bounds on counts, and the one for adaptive guesses."""
        return Pure(), Steinke(), Adaptive()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SeparateRuns(EqualGuesses):
    """Classic auditing: every canary has a run of its own, independent of the others.

    Attributes:
        guesses: How many; one not made counts as wrong.
    """

    kind = "separate-runs"
    reads = Counts
    reveals = False

    def bound(self) -> GameBound[Any]:
        """Return the bound for independent coins, for which delta costs less."""
        return Classic()

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
    reveals = False
    one_point = True
    ordered = True

    def bound(self) -> GameBound[Any]:
        """Return the bound that looks at the best few."""
        return RankedLooks()

    def read(self, played: Played, *, canaries: int) -> Reading:
        """Return which of the ranked guesses were right."""
        right = _right(played)
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
    reveals = False
    own_coins = False

    def __post_init__(self) -> None:
        EqualGuesses.__post_init__(self)
        if self.records_per_swap not in (1, 2):
            raise InvalidInputError(
                "a swap changes one record or two, got "
                f"records_per_swap={self.records_per_swap!r}"
            )

    def bound(self) -> GameBound[Any]:
        """Return the bound for a random half."""
        return Hypergeometric()

    def from_top(self, guesses: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of guesses: all are "included"."""
        return guesses

    def read(self, played: Played, *, canaries: int) -> Reading:
        """Return how many of the guessed were included."""
        return self.count([int(_right(played).sum())], canaries=canaries)

    def count(self, right: Sequence[int], *, canaries: int) -> Reading:
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
            raise VoidAuditError("the reading's records_per_swap is not the rules'")

    def check_price(
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
    reveals = True

    def bound(self) -> GameBound[Any]:
        """Return the bound for counts of adaptive guesses."""
        return Adaptive()


class _Staked(Rules):
    """Every guess has a stake of its own; a pass has none."""

    __slots__ = ()

    about: ClassVar[str]  # what a stake is
    limits: ClassVar[tuple[float, float]] = (1 / LARGEST_WEIGHT, LARGEST_WEIGHT)

    def stakes(
        self, guess: NDArray[np.int8], stake: ArrayLike | None
    ) -> NDArray[np.float64]:
        puts = self._given(len(guess)) if stake is None else _numbers(stake)
        if puts.shape != guess.shape:
            raise VoidAuditError(
                f"stake must be as long as guess, got shapes {puts.shape} and "
                f"{guess.shape}"
            )
        if not self._in_range(puts[guess != 0]):
            raise VoidAuditError(f"a stake is {self.about}")
        return np.where(guess != 0, puts, 0.0)

    def are_stakes(self, guess: NDArray[np.int8], stake: NDArray[np.float64]) -> bool:
        made = guess != 0
        return self._in_range(stake[made]) and bool((stake[~made] == 0).all())

    def _in_range(self, made: NDArray[np.float64]) -> bool:
        low, high = self.limits
        return bool(np.all((made >= low) & (made <= high)))

    def _given(self, size: int) -> NDArray[np.float64]:  # noqa: ARG002
        """Return the stakes of a turn of which none are stated."""
        raise VoidAuditError(f"{type(self).__name__} needs a stake for every guess")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots(_Staked):
    """So many guesses of each weight."""

    weights: tuple[float, ...]
    guesses: tuple[int, ...]

    reads = Weighted
    about = (
        f"a weight and must be positive, from {1 / LARGEST_WEIGHT:g} to "
        f"{LARGEST_WEIGHT:g}"
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", _weights(self.weights))
        object.__setattr__(self, "guesses", tuple(self.guesses))
        _check_classes(self.weights, self.guesses)
        object.__setattr__(self, "guesses", tuple(int(r) for r in self.guesses))

    def most(self, canaries: int) -> int:  # noqa: ARG002 (as many as there are slots)
        """Return the number of slots."""
        return sum(self.guesses)

    def stakes(
        self, guess: NDArray[np.int8], stake: ArrayLike | None
    ) -> NDArray[np.float64]:
        """Return the weights of a turn's guesses."""
        puts = _Staked.stakes(self, guess, stake)
        if not self._are_weights(puts[guess != 0]):
            raise VoidAuditError(f"a stake must be one of the weights {self.weights}")
        return puts

    def are_stakes(self, guess: NDArray[np.int8], stake: NDArray[np.float64]) -> bool:
        """Return whether every guess of a record has one of the weights."""
        known = self._are_weights(stake[guess != 0])
        return known and _Staked.are_stakes(self, guess, stake)

    def used(
        self, guess: NDArray[np.int8], stake: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Return how many slots of each weight guesses use, and how many they are."""
        made = stake[guess != 0]
        slots = [np.count_nonzero(made == weight) for weight in self.weights]
        return np.array([*slots, len(made)])

    def check_used(self, used: NDArray[np.int64], *, canaries: int) -> None:
        """Refuse more guesses of one weight than there are slots for them."""
        Rules.check_used(self, used[-1:], canaries=canaries)
        fixed = zip(used[:-1], self.weights, self.guesses, strict=True)
        for made, weight, slots in fixed:
            if made > slots:
                raise VoidAuditError(
                    f"{made} guesses of weight {weight:g} were made, but the design "
                    f"has {slots} slots for them"
                )

    def read(self, played: Played, *, canaries: int) -> Reading:
        """Return how many guesses of each weight were right."""
        made = played.stake[played.guess != 0]
        right = made[_right(played)]
        correct = [int(np.sum(right == w)) for w in self.weights]
        slots = zip(self.weights, self.guesses, strict=True)
        abstained = tuple(r - int(np.sum(made == w)) for w, r in slots)
        return replace(self._counted(correct, canaries), abstained=abstained)

    def surest_stakes(self, guesses: int) -> NDArray[np.float64]:
        """Return the weights, the heaviest first."""
        order = self._heaviest_first()
        return np.repeat(
            [self.weights[i] for i in order], [self.guesses[i] for i in order]
        )[:guesses]

    def cuts(self, canaries: int) -> list[int]:  # noqa: ARG002 (as many as slots)
        """Return the ends of the classes, the heaviest first."""
        return list(accumulate(self.guesses[i] for i in self._heaviest_first()))

    def count(self, right: Sequence[int], *, canaries: int) -> Reading:
        """Return how many guesses of each weight were right."""
        found = dict(zip(self._heaviest_first(), np.diff([0, *right]), strict=True))
        return self._counted([int(found[i]) for i in range(len(found))], canaries)

    def _heaviest_first(self) -> list[int]:
        return sorted(range(len(self.weights)), key=lambda i: -self.weights[i])

    def _counted(self, correct: list[int], canaries: int) -> Weighted:
        return Weighted(
            canaries=canaries,
            weights=self.weights,
            guesses=self.guesses,
            correct=tuple(correct),
            committed=True,
            adaptive=self.reveals,
        )

    def check_reading(self, reading: Reading) -> None:
        """Refuse a reading of other classes."""
        assert isinstance(reading, Weighted)  # whoever asks has seen to it
        fixed = (self.weights, self.guesses, True)
        if (reading.weights, reading.guesses, reading.committed) != fixed:
            raise VoidAuditError("the reading's classes are not those of the rules")

    def _are_weights(self, made: NDArray[np.float64]) -> bool:
        return bool(np.isin(made, self.weights).all())


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Classes(Slots):
    """All guesses at once, in classes of different weight.

    Attributes:
        weights: The weight of each class, positive, all different.
        guesses: How many guesses of each; one not made counts as wrong.
    """

    kind = "classes"
    reveals = False

    def bound(self) -> GameBound[Any]:
        """Return the bound for weighted guesses."""
        return WeightedGuesses()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveClasses(Slots):
    """Coins are revealed on the way; every guess takes a slot of some weight.

    Attributes:
        weights: The weight of each class, positive, all different.
        guesses: How many slots of each; one left free counts as wrong.
    """

    kind = "adaptive-classes"
    reveals = True

    def bound(self) -> GameBound[Any]:
        """Return the bound for slots of adaptive guesses."""
        return AdaptiveSlots()


class _Sequential(_Staked):
    """Any guesses, revealed on the way; the smallest epsilon tested is fixed."""

    __slots__ = ()

    reveals = True
    fixed = False
    one_point = True
    cheaper: ClassVar[str]  # what makes delta so
    start: float

    def most(self, canaries: int) -> int:
        return canaries

    def check_price(
        self, *, canaries: int, claimed: float, delta: float, alpha: float
    ) -> None:
        price = self._price(canaries, delta)
        if self.start > claimed:
            raise InvalidInputError(
                f"start={self.start:g} lies above the claim's epsilon {claimed:g}: a "
                "bound could exceed the claim without a test of it; start at the claim "
                "or below"
            )
        if price >= alpha:
            raise InvalidInputError(
                f"delta costs {price:.3g} at start={self.start:g}, no less than "
                f"alpha={alpha:g}: nothing could be shown; give "
                f"{type(self).__name__} {self.cheaper}, use fewer canaries, or play by "
                "AdaptiveCount"
            )

    @abstractmethod
    def _price(self, canaries: int, delta: float) -> float:
        """Return what delta costs at the start."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveRounds(_Sequential):
    """Coins are revealed after each round; what a round counts is fixed.

    A round's evidence is randomised where counts tie, and what an empty round would
    have contributed is left to committed chance.

    A stake is the log-odds of being right that the guesser gives a guess; against a
    claim of epsilon it counts by how much it exceeds that.

    Attributes:
        weights: What each round counts; a round not played counts as an empty one.
        start: The smallest epsilon that is tested. A larger one pays less for delta;
            a truth below it is reported as 0.
        jump: The most that a right guess may add to the evidence, in its standard
            deviations; delta then costs much less. Canary ``i`` must be played in round
            ``i`` modulo the number of rounds. None for no limit and free play.
        noise: Share of the evidence's variance that is committed chance, revealed at
            the end; with a jump it lowers what delta costs in the last rounds.
    """

    weights: tuple[float, ...]
    start: float = 0.0
    jump: float | None = None
    noise: float = 0.0

    kind = "adaptive-rounds"
    reads = Rounds
    cheaper = "a smaller jump, a larger start"
    about = (
        f"log-odds and must be positive, from {1 / LARGEST_WEIGHT:g} to "
        f"{LARGEST_WEIGHT:g}"
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", _weights(self.weights))
        _validate.nonnegative("start", self.start)
        object.__setattr__(self, "start", float(self.start))
        check_jump(self.jump, self.noise)
        if self.jump is not None:
            object.__setattr__(self, "jump", float(self.jump))
        object.__setattr__(self, "noise", float(self.noise))
        if not all(0 <= w <= LARGEST_WEIGHT for w in self.weights) or not any(
            self.weights
        ):
            raise InvalidInputError(
                f"weights must be from 0 to {LARGEST_WEIGHT:g} and not all 0, got "
                f"weights={self.weights!r}"
            )

    @property
    def turns(self) -> int | None:
        """The number of rounds."""
        return len(self.weights)

    @property
    def free_turns(self) -> bool:
        """Whether canaries may be played in any round."""
        return self.jump is None

    @property
    def uniforms(self) -> int:
        """One for each round, and one for the noise at the end."""
        return len(self.weights) + 1

    def bound(self) -> GameBound[Any]:
        """Return the bound that adds the rounds' evidence."""
        return StoufferRounds(grid=Grid(start=self.start))

    def check_turn(self, index: NDArray[np.int64], turn: NDArray[np.int64]) -> None:
        """Refuse canaries in rounds that are not theirs, if there is a jump."""
        rounds = len(self.weights)
        if self.jump is None or not (wrong := index % rounds != turn).any():
            return
        first = int(turn[wrong][0])
        raise VoidAuditError(
            f"with a jump, canary i is played in round i modulo {rounds}: round "
            f"{first} is for canaries {first}, {first + rounds}, and so on"
        )

    def read(self, played: Played, *, canaries: int) -> Reading:
        """Return what was guessed in each round, and committed chance."""
        return Rounds(
            canaries=canaries,
            rounds=tuple(_round(played, j, canaries) for j in range(len(self.weights))),
            weights=self.weights,
            uniforms=tuple(played.uniforms[:-1].tolist()),
            jump=self.jump,
            noise=self.noise,
            noise_uniform=float(played.uniforms[-1]),
        )

    def check_reading(self, reading: Reading) -> None:
        """Refuse a reading of other rounds."""
        assert isinstance(reading, Rounds)  # whoever asks has seen to it
        fixed = (self.weights, self.jump, self.noise)
        if (reading.weights, reading.jump, reading.noise) != fixed or any(
            each.canaries != reading.canaries or each.committed
            for each in reading.rounds
        ):
            raise VoidAuditError(
                "the reading's rounds, jump and noise are not those that were fixed "
                "beforehand"
            )

    def stated_odds(self, stake: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the stakes: they are log-odds."""
        return stake

    def _given(self, size: int) -> NDArray[np.float64]:
        """Return stakes that count all guesses of a round the same."""
        return np.full(size, LARGEST_WEIGHT)

    def _price(self, canaries: int, delta: float) -> float:
        left = left_to_chance(
            canaries=canaries,
            weights=self.weights,
            jump=self.jump,
            noise=self.noise,
            epsilon=self.start,
        )
        if left > MOST_CHANCE:
            raise InvalidInputError(
                f"with jump={self.jump!r} and noise={self.noise!r}, {left:.0%} of "
                "the evidence would be chance even if every canary were guessed, and "
                "nothing could be shown; use a larger jump, more canaries or fewer "
                "rounds"
            )
        return rounds_price(
            canaries=canaries,
            weights=self.weights,
            jump=self.jump,
            noise=self.noise,
            epsilon=self.start,
            delta=delta,
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveBets(_Sequential):
    """Coins are revealed on the way; each guess states its chance of being right.

    Attributes:
        start: The smallest epsilon that is tested. A larger one pays less for delta;
            a truth below it is reported as 0.
    """

    start: float = 0.0

    kind = "adaptive-bets"
    reads = Bets
    cheaper = "a larger start"
    about = "a chance and must be in [0, 1]"
    limits = (0.0, 1.0)

    def __post_init__(self) -> None:
        _validate.nonnegative("start", self.start)
        object.__setattr__(self, "start", float(self.start))

    def bound(self) -> GameBound[Any]:
        """Return the bound from bets."""
        return Betting(grid=Grid(start=self.start))

    def read(self, played: Played, *, canaries: int) -> Reading:
        """Return which guesses were right, and what was staked on them."""
        stakes = played.stake[played.guess != 0]
        return Bets(canaries=canaries, right=_right(played), stakes=stakes)

    def read_alike(
        self, right: NDArray[np.bool_], chance: float, *, canaries: int
    ) -> Reading:
        """Return what the bound reads of guesses on which that chance is put."""
        stakes = np.full(len(right), min(chance, 1 - 1e-9))
        return Bets(canaries=canaries, right=right, stakes=stakes)

    def stated_odds(self, stake: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the log-odds of the chances that were staked."""
        return np.asarray(special.logit(stake))

    def _price(self, canaries: int, delta: float) -> float:
        return coupling_price(canaries, self.start, delta)


def _weights(weights: Iterable[float]) -> tuple[float, ...]:
    try:
        return tuple(float(w) for w in weights)
    except (OverflowError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"weights must be a list of numbers, got weights={weights!r}"
        ) from error


def _check_classes(weights: tuple[float, ...], guesses: tuple[int, ...]) -> None:
    if not len(weights) == len(guesses) > 0:
        raise InvalidInputError(
            f"weights and guesses must have one entry per class, got {len(weights)} "
            f"and {len(guesses)}"
        )
    sized = all(1 / LARGEST_WEIGHT <= w <= LARGEST_WEIGHT for w in weights)
    if not sized or len(set(weights)) < len(weights):
        raise InvalidInputError(
            f"weights must be positive (from {1 / LARGEST_WEIGHT:g} to "
            f"{LARGEST_WEIGHT:g}) and all different, got weights={weights!r}"
        )
    for number in guesses:
        _validate.whole_number("guesses", number, least=1)


@final
class _AtOnce:
    """Guesses that were made at once, the surest first, as the record of a game."""

    def __init__(self, right: NDArray[np.bool_], stake: NDArray[np.float64]) -> None:
        self.index, self.stake = np.arange(len(right)), stake
        self.guess = np.ones(len(right), np.int8)
        self.truth = np.where(right, 1, -1).astype(np.int8)
        self.turn, self.uniforms = np.zeros(len(right), np.int64), np.empty(0)


def _right(played: Played) -> NDArray[np.bool_]:
    """Return which of the guesses that were made are right, in order."""
    return np.asarray((played.guess == played.truth)[played.guess != 0])


def _round(played: Played, turn: int, canaries: int) -> Weighted:
    """Return what was guessed in one round; an empty one has no guess at all."""
    here = (played.turn == turn) & (played.guess != 0)
    right = (played.guess == played.truth)[here]
    weights, which = np.unique(played.stake[here], return_inverse=True)
    if not len(weights):
        weights, which = np.ones(1), np.zeros(0, int)
    size = len(weights)
    return Weighted(
        canaries=canaries,
        weights=tuple(weights.tolist()),
        guesses=tuple(np.bincount(which, minlength=size).tolist()),
        correct=tuple(np.bincount(which[right], minlength=size).tolist()),
        committed=False,
    )


def _numbers(stake: ArrayLike) -> NDArray[np.float64]:
    try:
        return np.array(stake, np.float64)
    except (TypeError, ValueError) as error:
        raise VoidAuditError(f"stake must hold numbers: {error}") from error
