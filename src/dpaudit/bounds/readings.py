"""What a bound sees of a run: one frozen value per kind of game.

``Counts`` is the simplest: numbers of guesses and of correct guesses. In
``CountsAsMade`` the output decided how many guesses to make. In ``EventCounts`` every
canary had its own run, and its output alone decided whether and what to guess.
``HalfCounts`` is for runs where a random half of the canaries was included instead of
one coin flip per canary. ``Ranked`` keeps the order of confidence, ``Weighted`` sorts
guesses into classes of different weight, ``Rounds`` is a sequence of games, each of
which may use the coins revealed before, and ``Bets`` is a sequence of single guesses
with a stake on each.

A reading determines its game. Counts and weights come from two: all guesses made at
once, or one after the other with coins revealed in between (``adaptive``). Delta costs
less if they are made at once, and that price is not proved for an adaptive guesser, so
a bound for one refuses a reading of the other.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit._codec import Document
from dpaudit._registry import Registry
from dpaudit.errors import InvalidInputError, InvalidRunError

__all__ = [
    "WIDEST_JUMP",
    "Bets",
    "BiasedCoinCounts",
    "Counts",
    "CountsAsMade",
    "EventCounts",
    "HalfCounts",
    "Ranked",
    "Reading",
    "Rounds",
    "Weighted",
    "check_at_once",
    "check_jump",
    "check_order",
]

_LARGEST_WEIGHT = 1e100  # sums of squares of larger weights would overflow
WIDEST_JUMP = 10.0  # standard deviations; a larger jump would limit nothing


class Reading(Document, ABC):
    """The data of one game that a bound uses.

    Attributes:
        kinds: All known types of readings, by kind.
        kind: Its name in documents.
        canaries: Canaries of the game, guessed or not.
        tally: Whether it holds only counts, of guesses that would have been the same
            had others been correct.
        adaptive: Whether coins were revealed while guesses were still to be made.
    """

    __slots__ = ()

    form = "dpaudit.reading.1"
    kinds: ClassVar[Registry["Reading"]] = Registry("kind must be")
    kind: ClassVar[str]
    tally: ClassVar[bool] = False
    canaries: int
    adaptive: bool = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        Reading.kinds.add(cls)

    @property
    def counted(self) -> "Counts | None":
        """The reading itself if it is plain counts of guesses; None otherwise."""
        return None

    @abstractmethod
    def correct_and_guesses(self) -> tuple[int, int]:
        """Return the numbers of correct guesses and of guesses.

        If the number of guesses was fixed beforehand, it is returned whether or not
        all were made; otherwise the number made is.
        """

    @abstractmethod
    def perfect(self) -> Self:
        """Return the reading of the same run, had every guess made been correct.

        Guesses, abstentions, stakes and committed randomness are the same.
        """


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Counts(Reading):
    """Numbers of canaries, of guesses and of correct guesses.

    Attributes:
        canaries: Canaries decided by a fair coin each, independently.
        guesses: The number of guesses committed to before the run.
        correct: Guesses that matched the coin; one not made counts as wrong.
        adaptive: Whether coins were revealed while guesses were still to be made.
        abstained: How many of the guesses committed to were not made.
    """

    canaries: int
    guesses: int
    correct: int
    adaptive: bool = False
    abstained: int = field(default=0, repr=False)

    kind = "counts"
    tally = True
    optional = ("abstained",)

    def __post_init__(self) -> None:
        _validate.make_whole(
            self,
            canaries=0,
            guesses=0,
            correct=0,
            abstained=0,
        )
        _check_flag("adaptive", self.adaptive)
        if not self.correct <= self.guesses <= self.canaries:
            raise InvalidInputError(
                "expected correct <= guesses <= canaries, got "
                f"correct={self.correct}, guesses={self.guesses}, "
                f"canaries={self.canaries}"
            )
        _check_abstained(self.abstained, self.guesses - self.correct)

    @property
    def counted(self) -> "Counts":
        """Itself."""
        return self

    def correct_and_guesses(self) -> tuple[int, int]:
        """Return the numbers of correct guesses and of guesses."""
        return self.correct, self.guesses

    def perfect(self) -> Self:
        """Return the reading, had every guess made been correct."""
        return replace(self, correct=self.guesses - self.abstained)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CountsAsMade(Reading):
    """Numbers of guesses and of correct ones, where the output decided how many.

    Attributes:
        canaries: Canaries decided by a fair coin each, independently.
        guesses: Guesses made, all at once; the output decided how many.
        correct: Guesses that matched the coin.
    """

    canaries: int
    guesses: int
    correct: int

    kind = "counts-as-made"
    tally = True

    def __post_init__(self) -> None:
        _validate.make_whole(self, canaries=0, guesses=0, correct=0)
        if not self.correct <= self.guesses <= self.canaries:
            raise InvalidInputError(
                "expected correct <= guesses <= canaries, got "
                f"correct={self.correct}, guesses={self.guesses}, "
                f"canaries={self.canaries}"
            )

    def correct_and_guesses(self) -> tuple[int, int]:
        """Return the numbers of correct guesses and of guesses."""
        return self.correct, self.guesses

    def perfect(self) -> Self:
        """Return the reading, had every guess made been correct."""
        return replace(self, correct=self.guesses)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class EventCounts(Reading):
    """Numbers of correct and wrong guesses, each decided by one canary's own run.

    Runs are independent and alike.

    Attributes:
        canaries: Canaries, each with its own run and its own fair coin.
        correct: Guesses that matched the coin.
        wrong: Guesses that did not.
        slope: The slope of the line that orders outcomes, fixed before the runs.
        intercept: Where that line begins.
        one_sided: Whether only one of the two coins is ever guessed.
    """

    canaries: int
    correct: int
    wrong: int
    slope: float
    intercept: float
    one_sided: bool = False

    kind = "event-counts"
    tally = True

    def __post_init__(self) -> None:
        _validate.make_whole(self, canaries=1, correct=0, wrong=0)
        check_order(self.slope, self.intercept)
        _check_flag("one_sided", self.one_sided)
        if not self.correct + self.wrong <= self.canaries:
            raise InvalidInputError(
                "expected correct + wrong <= canaries, got "
                f"correct={self.correct}, wrong={self.wrong}, canaries={self.canaries}"
            )

    def correct_and_guesses(self) -> tuple[int, int]:
        """Return the numbers of correct guesses and of guesses."""
        return self.correct, self.correct + self.wrong

    def perfect(self) -> Self:
        """Return the reading, had every guess made been correct."""
        return replace(self, correct=self.correct + self.wrong, wrong=0)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BiasedCoinCounts(Reading):
    """Counts for biased coins, with one known probability of inclusion.

    Attributes:
        canaries: Canaries, each included independently with the same probability.
        inclusion: That probability.
        guesses_in: Guesses "included".
        guesses_out: Guesses "excluded".
        correct: Correct guesses of both kinds; one not made counts as wrong.
        committed: Whether ``guesses_in`` and ``guesses_out`` were fixed before the run.
            If the output decided them, the bound is weaker at delta > 0.
    """

    canaries: int
    inclusion: float
    guesses_in: int
    guesses_out: int
    correct: int
    committed: bool

    kind = "unequal"
    tally = True

    def __post_init__(self) -> None:
        _validate.make_whole(self, canaries=0, guesses_in=0, guesses_out=0, correct=0)
        _check_flag("committed", self.committed)
        if not 0 < self.inclusion < 1:
            raise InvalidInputError(
                "inclusion is the known probability that a canary is included and must "
                f"be in (0, 1), got inclusion={self.inclusion!r}"
            )
        if not self.correct <= self.guesses_in + self.guesses_out <= self.canaries:
            raise InvalidInputError(
                "expected correct <= guesses_in + guesses_out <= canaries, got "
                f"{self.correct}, {self.guesses_in} + {self.guesses_out}, "
                f"{self.canaries}"
            )

    def correct_and_guesses(self) -> tuple[int, int]:
        """Return the numbers of correct guesses and of guesses."""
        return self.correct, self.guesses_in + self.guesses_out

    def perfect(self) -> Self:
        """Return the reading, had every guess been correct."""
        return replace(self, correct=self.guesses_in + self.guesses_out)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class HalfCounts(Reading):
    """Counts where a uniformly random half of the canaries was included.

    Attributes:
        canaries: Canaries, of which half, rounded down, was included.
        guesses: Canaries guessed "included", a number fixed before the run and no
            larger than the number included.
        correct: How many of them were included.
        records_per_swap: How many records change when one canary replaces another: 2
            under add/remove and zero-out adjacency, 1 under replace-one.
    """

    canaries: int
    guesses: int
    correct: int
    records_per_swap: int = 2

    kind = "half-counts"
    tally = True

    def __post_init__(self) -> None:
        _validate.make_whole(self, canaries=2, guesses=1, correct=0, records_per_swap=1)
        if not self.correct <= self.guesses <= self.included:
            raise InvalidInputError(
                "expected correct <= guesses <= canaries / 2, got "
                f"correct={self.correct}, guesses={self.guesses}, "
                f"canaries={self.canaries}"
            )
        if self.records_per_swap > 2:
            raise InvalidInputError(
                "a swap changes one record or two, got "
                f"records_per_swap={self.records_per_swap}"
            )

    @property
    def included(self) -> int:
        """How many canaries were included."""
        return self.canaries // 2

    def correct_and_guesses(self) -> tuple[int, int]:
        """Return the numbers of correct guesses and of guesses."""
        return self.correct, self.guesses

    def perfect(self) -> Self:
        """Return the reading, had every guess been correct."""
        return replace(self, correct=self.guesses)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ranked(Reading):
    """Guesses ranked by confidence, the most confident first, and their correctness.

    Attributes:
        canaries: Canaries decided by a fair coin each, independently.
        right: For each guess whether it matched the coin. The order depends on the
            output only; how many are ranked is fixed before the run.
        abstained: How many of them, at the end, were not made.
    """

    canaries: int
    right: NDArray[np.bool_]
    abstained: int = field(default=0, repr=False)

    kind = "ranked"
    optional = ("abstained",)

    def __post_init__(self) -> None:
        _validate.make_whole(self, canaries=1, abstained=0)
        if self.right.ndim != 1 or not 1 <= len(self.right) <= self.canaries:
            raise InvalidInputError(
                f"right must list between 1 and canaries={self.canaries} guesses, got "
                f"shape {self.right.shape}"
            )
        last = int(np.max(np.flatnonzero(self.right), initial=-1))
        _check_abstained(self.abstained, len(self.right) - 1 - last)

    @classmethod
    def of(cls, log_odds: NDArray[np.float64], bits: NDArray[np.uint8]) -> Self:
        """Rank a guess for every canary by its log-odds of inclusion.

        Args:
            log_odds: Any function of the output; its sign is the guess, its size the
                confidence.
            bits: The coins.

        Among guesses of equal confidence the wrong ones come first. No tie-breaking,
        random or by row, has fewer correct guesses among the first ones, so a bound
        that holds for an order chosen before the coins holds for this one.
        """
        wrong = (log_odds >= 0) != (bits == 1)
        # Bit patterns of nonnegative floats sort like the floats; one bit is unused.
        confidence = np.abs(np.asarray(log_odds, np.float64)).view(np.uint64)
        most_confident_last = np.sort(confidence << np.uint64(1) | wrong)
        return cls(
            canaries=len(bits), right=most_confident_last[::-1] & np.uint64(1) == 0
        )

    def correct_and_guesses(self) -> tuple[int, int]:
        """Return the numbers of correct guesses and of guesses."""
        return int(self.right.sum()), len(self.right)

    def perfect(self) -> Self:
        """Return the reading, had every guess made been correct."""
        made = len(self.right) - self.abstained
        return replace(self, right=np.arange(len(self.right)) < made)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Weighted(Reading):
    """Guesses in classes, each class with its weight.

    Attributes:
        canaries: Canaries decided by a fair coin each, independently.
        weights: The weight of each class, positive, independent of the coins.
        guesses: Number of guesses in each class; one not made counts as wrong.
        correct: How many of them were correct.
        committed: Whether ``weights`` and ``guesses`` were fixed before the run. If the
            output decided them, delta costs more.
        adaptive: Whether coins were revealed while guesses were still to be made.
        abstained: How many guesses of each class were not made; empty if all were.
    """

    canaries: int
    weights: tuple[float, ...]
    guesses: tuple[int, ...]
    correct: tuple[int, ...]
    committed: bool
    adaptive: bool = False
    abstained: tuple[int, ...] = field(default=(), repr=False)

    kind = "weighted"
    tally = True
    optional = ("abstained",)

    def __post_init__(self) -> None:
        _validate.make_whole(self, canaries=1)
        for name in ("committed", "adaptive"):
            _check_flag(name, getattr(self, name))
        if not len(self.weights) == len(self.guesses) == len(self.correct) > 0:
            raise InvalidInputError(
                "weights, guesses and correct must have one entry per class, got "
                f"{len(self.weights)}, {len(self.guesses)} and {len(self.correct)}"
            )
        if not all(0 < w <= _LARGEST_WEIGHT for w in self.weights):
            raise InvalidInputError(
                f"weights must be positive and at most {_LARGEST_WEIGHT:g}, got "
                f"{self.weights}"
            )
        object.__setattr__(self, "weights", tuple(map(float, self.weights)))
        pairs = zip(self.correct, self.guesses, strict=True)
        if not all(0 <= v <= r for v, r in pairs) or sum(self.guesses) > self.canaries:
            raise InvalidInputError(
                "expected 0 <= correct <= guesses in every class and no more guesses "
                f"than canaries={self.canaries}, got correct={self.correct}, "
                f"guesses={self.guesses}"
            )
        for name in ("guesses", "correct", "abstained"):
            for number in getattr(self, name):
                _validate.whole_number(name, number)
            object.__setattr__(self, name, tuple(map(int, getattr(self, name))))
        if not any(self.abstained):
            object.__setattr__(self, "abstained", ())
        elif len(self.abstained) != len(self.guesses):
            raise InvalidInputError(
                "abstained must have one entry per class, or none, got "
                f"{len(self.abstained)} for {len(self.guesses)}"
            )
        for v, r, n in zip(self.correct, self.guesses, self.abstained, strict=False):
            _check_abstained(n, r - v)

    @property
    def score(self) -> float:
        """The total weight of the correct guesses."""
        return float(np.dot(self.weights, self.correct))

    def correct_and_guesses(self) -> tuple[int, int]:
        """Return the numbers of correct guesses and of guesses."""
        return sum(self.correct), sum(self.guesses)

    def perfect(self) -> Self:
        """Return the reading, had every guess made been correct."""
        abstained = self.abstained or (0,) * len(self.guesses)
        made = (r - n for r, n in zip(self.guesses, abstained, strict=True))
        return replace(self, correct=tuple(made))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds(Reading):
    """Games played one after the other; each may use the coins revealed before.

    Attributes:
        canaries: Canaries of all rounds together.
        rounds: The guesses of each round, made all at once, then revealed. The weight
            of a class is the log-odds of being correct that the guesser stated.
        round_weights: The weight of each round, fixed before the run.
        uniforms: For each round a uniform number from committed randomness, which the
            guesser could not know before the round's guesses were made.
        max_jump: The most that a correct guess may add to the evidence, in its standard
            deviations, fixed before the run; canary ``i`` was played in round ``i``
            modulo the number of rounds. None if neither was fixed.
        randomness_share: Share of the evidence's variance that comes from committed
            randomness, at most half.
        noise_uniform: A uniform number from committed randomness for it.
    """

    canaries: int
    rounds: tuple[Weighted, ...]
    round_weights: tuple[float, ...]
    uniforms: tuple[float, ...]
    max_jump: float | None = None
    randomness_share: float = 0.0
    noise_uniform: float = 0.5

    kind = "rounds"
    adaptive = True

    def __post_init__(self) -> None:
        _validate.make_whole(self, canaries=1)
        if not len(self.rounds) == len(self.round_weights) == len(self.uniforms) > 0:
            raise InvalidInputError(
                "rounds, round_weights and uniforms must have one entry per round, got "
                f"{len(self.rounds)}, {len(self.round_weights)} and "
                f"{len(self.uniforms)}"
            )
        if not all(0 <= w <= _LARGEST_WEIGHT for w in self.round_weights) or not any(
            self.round_weights
        ):
            raise InvalidInputError(
                f"round_weights must be >= 0, finite and not all 0, and at most "
                f"{_LARGEST_WEIGHT:g}, got {self.round_weights}"
            )
        object.__setattr__(self, "round_weights", tuple(map(float, self.round_weights)))
        if any(played.adaptive for played in self.rounds):
            raise InvalidInputError(
                "the guesses of a round are made all at once, got adaptive=True"
            )
        if sum(sum(r.guesses) for r in self.rounds) > self.canaries:
            raise InvalidInputError(f"more guesses than canaries={self.canaries}")
        for uniform in (*self.uniforms, self.noise_uniform):
            _validate.probability("uniforms", uniform)
        check_jump(self.max_jump, self.randomness_share)
        for r, played in enumerate(self.rounds):
            most = len(range(r, self.canaries, len(self.rounds)))
            if self.max_jump is not None and sum(played.guesses) > most:
                raise InvalidInputError(
                    f"with a jump, round {r} of {len(self.rounds)} is for {most} of "
                    f"{self.canaries} canaries, got guesses={played.guesses}"
                )

    def correct_and_guesses(self) -> tuple[int, int]:
        """Return the numbers of correct guesses and of guesses."""
        scores = [played.correct_and_guesses() for played in self.rounds]
        return sum(v for v, _ in scores), sum(r for _, r in scores)

    def perfect(self) -> Self:
        """Return the reading, had every guess been correct."""
        return replace(self, rounds=tuple(played.perfect() for played in self.rounds))


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bets(Reading):
    """Single guesses in the order they were made, each with its stated probability.

    Attributes:
        canaries: Canaries decided by a fair coin each, independently.
        right: Whether each guess matched the coin.
        stated_probabilities: The probability of being correct that the guesser stated
            for each guess before its coin was revealed, from all coins revealed before.
    """

    canaries: int
    right: NDArray[np.bool_]
    stated_probabilities: NDArray[np.float64]

    kind = "bets"
    adaptive = True

    def __post_init__(self) -> None:
        _validate.make_whole(self, canaries=1)
        if self.right.shape != self.stated_probabilities.shape or self.right.ndim != 1:
            raise InvalidInputError(
                "right and stated_probabilities must be two lists of one length, got "
                f"shapes {self.right.shape} and {self.stated_probabilities.shape}"
            )
        if len(self.right) > self.canaries:
            raise InvalidInputError(
                f"{len(self.right)} bets on canaries={self.canaries}; each canary may "
                "be guessed once"
            )
        if not np.all(
            (self.stated_probabilities >= 0) & (self.stated_probabilities <= 1)
        ):
            raise InvalidInputError("stated_probabilities must be in [0, 1]")

    def correct_and_guesses(self) -> tuple[int, int]:
        """Return the numbers of correct guesses and of guesses."""
        return int(self.right.sum()), len(self.right)

    def perfect(self) -> Self:
        """Return the reading, had every guess been correct."""
        return replace(self, right=np.ones_like(self.right))


def _check_abstained(abstained: int, wrong: int) -> None:
    if abstained > wrong:
        raise InvalidInputError(
            f"a guess that was not made counts as wrong, got abstained={abstained} and "
            f"{wrong} wrong"
        )


def _check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise InvalidInputError(f"{name} must be true or false, got {name}={value!r}")


def check_at_once(reading: Counts | Weighted, method: str) -> None:
    """Refuse adaptive guesses for a bound proved for guesses made at once.

    Example:
        >>> counts = Counts(canaries=9, guesses=2, correct=1, adaptive=True)
        >>> check_at_once(counts, "exact")
        Traceback (most recent call last):
        dpaudit.errors.InvalidRunError: the exact bound is proved for guesses made all \
at once, and these were made while coins were revealed; use the adaptive bound
    """
    if reading.adaptive:
        proved = "slots" if reading.counted is None else "adaptive"
        raise InvalidRunError(
            f"the {method} bound is proved for guesses made all at once, and these "
            f"were made while coins were revealed; use the {proved} bound"
        )


def check_order(slope: float, intercept: float) -> None:
    """Refuse a line that orders no outcomes."""
    _validate.nonnegative("slope", slope)
    if not (0 <= intercept < 1 and slope < _LARGEST_WEIGHT and slope + intercept > 0):
        raise InvalidInputError(
            "intercept must be in [0, 1), slope finite, and not both 0, got "
            f"intercept={intercept!r}, slope={slope!r}"
        )


def check_jump(max_jump: float | None, randomness_share: float) -> None:
    """Refuse an invalid jump or share of committed randomness for rounds."""
    if max_jump is not None and not 0 < max_jump <= WIDEST_JUMP:
        raise InvalidInputError(
            f"max_jump must be positive and at most {WIDEST_JUMP:g}, or None for no "
            f"limit, got max_jump={max_jump!r}"
        )
    if not 0 <= randomness_share <= 0.5:
        raise InvalidInputError(
            "randomness_share is a share of the variance and must be from 0 to 0.5, "
            f"got randomness_share={randomness_share!r}"
        )
