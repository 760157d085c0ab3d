"""Rules whose guesses have weights, with a fixed number of slots of each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import ClassVar, Final, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit import _validate
from dpaudit.bounds.bound import AnyBound
from dpaudit.bounds.readings import Reading, Weighted
from dpaudit.bounds.weighted import AdaptiveWeightedBound, WeightedBound
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.rules.base import Rules, right_guesses
from dpaudit.game.rules.table_scoring import Played

__all__ = [
    "LARGEST_WEIGHT",
    "AdaptiveClasses",
    "Slots",
    "Staked",
    "WeightClasses",
    "weights_of",
]

LARGEST_WEIGHT: Final = 1e9  # with larger ratios only one class would count


class Staked(Rules):
    """Every guess has its own stake; an abstention has none."""

    __slots__ = ()

    about: ClassVar[str]  # what a stake is
    limits: ClassVar[tuple[float, float]] = (1 / LARGEST_WEIGHT, LARGEST_WEIGHT)

    def stakes(
        self, guess: NDArray[np.int8], stake: ArrayLike | None
    ) -> NDArray[np.float64]:
        """Return the stake on each guess, 0 on an abstention."""
        stakes = self._given(len(guess)) if stake is None else _numbers(stake)
        if stakes.shape != guess.shape:
            raise InvalidRunError(
                f"stake must be as long as guess, got shapes {stakes.shape} and "
                f"{guess.shape}"
            )
        if not self._in_range(stakes[guess != 0]):
            raise InvalidRunError(f"a stake is {self.about}")
        return np.where(guess != 0, stakes, 0.0)

    def are_stakes(self, guess: NDArray[np.int8], stake: NDArray[np.float64]) -> bool:
        """Return whether every guess has a valid stake, and no abstention has one."""
        made = guess != 0
        return self._in_range(stake[made]) and bool((stake[~made] == 0).all())

    def _in_range(self, made: NDArray[np.float64]) -> bool:
        low, high = self.limits
        return bool(np.all((made >= low) & (made <= high)))

    def _given(self, size: int) -> NDArray[np.float64]:  # noqa: ARG002
        """Return the default stakes of a turn for which none are stated."""
        raise InvalidRunError(f"{type(self).__name__} needs a stake for every guess")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots(Staked):
    """A fixed number of guesses of each weight."""

    weights: tuple[float, ...]
    guesses: tuple[int, ...]

    reads = Weighted
    about = (
        f"a weight and must be positive, from {1 / LARGEST_WEIGHT:g} to "
        f"{LARGEST_WEIGHT:g}"
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", weights_of(self.weights))
        object.__setattr__(self, "guesses", tuple(self.guesses))
        _check_classes(self.weights, self.guesses)
        object.__setattr__(self, "guesses", tuple(int(r) for r in self.guesses))

    def max_guesses(self, canaries: int) -> int:  # noqa: ARG002 (as many as there are slots)
        """Return the number of slots."""
        return sum(self.guesses)

    def stakes(
        self, guess: NDArray[np.int8], stake: ArrayLike | None
    ) -> NDArray[np.float64]:
        """Return the weights of a turn's guesses."""
        stakes = Staked.stakes(self, guess, stake)
        if not self._are_weights(stakes[guess != 0]):
            raise InvalidRunError(f"a stake must be one of the weights {self.weights}")
        return stakes

    def are_stakes(self, guess: NDArray[np.int8], stake: NDArray[np.float64]) -> bool:
        """Return whether the stake of every guess is one of the weights."""
        known = self._are_weights(stake[guess != 0])
        return known and Staked.are_stakes(self, guess, stake)

    def used(
        self, guess: NDArray[np.int8], stake: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """Return how many slots of each weight guesses use, and their total number."""
        made = stake[guess != 0]
        slots = [np.count_nonzero(made == weight) for weight in self.weights]
        return np.array([*slots, len(made)])

    def check_used(self, used: NDArray[np.int64], *, canaries: int) -> None:
        """Refuse more guesses of one weight than it has slots."""
        Rules.check_used(self, used[-1:], canaries=canaries)
        fixed = zip(used[:-1], self.weights, self.guesses, strict=True)
        for made, weight, slots in fixed:
            if made > slots:
                raise InvalidRunError(
                    f"{made} guesses of weight {weight:g} were made, but the design "
                    f"has {slots} slots for them"
                )

    def read(self, played: Played, *, canaries: int) -> Reading:
        """Return the number of correct guesses of each weight."""
        made = played.stake[played.guess != 0]
        right = made[right_guesses(played)]
        correct = [int(np.sum(right == w)) for w in self.weights]
        slots = zip(self.weights, self.guesses, strict=True)
        abstained = tuple(r - int(np.sum(made == w)) for w, r in slots)
        return replace(self._counted(correct, canaries), abstained=abstained)

    def most_confident_stakes(self, guesses: int) -> NDArray[np.float64]:
        """Return the weights of all slots, the heaviest first."""
        order = self._heaviest_first()
        return np.repeat(
            [self.weights[i] for i in order], [self.guesses[i] for i in order]
        )[:guesses]

    def class_ends(self, canaries: int) -> list[int]:  # noqa: ARG002 (as many as slots)
        """Return the ends of the classes, the heaviest first."""
        return list(accumulate(self.guesses[i] for i in self._heaviest_first()))

    def reading_from_counts(self, right: Sequence[int], *, canaries: int) -> Reading:
        """Return the number of correct guesses of each weight."""
        correct = dict(zip(self._heaviest_first(), np.diff([0, *right]), strict=True))
        return self._counted([int(correct[i]) for i in range(len(correct))], canaries)

    def _heaviest_first(self) -> list[int]:
        return sorted(range(len(self.weights)), key=lambda i: -self.weights[i])

    def _counted(self, correct: list[int], canaries: int) -> Weighted:
        return Weighted(
            canaries=canaries,
            weights=self.weights,
            guesses=self.guesses,
            correct=tuple(correct),
            committed=True,
            adaptive=self.adaptive,
        )

    def check_reading(self, reading: Reading) -> None:
        """Refuse a reading of other classes."""
        assert isinstance(reading, Weighted)  # guaranteed by callers
        fixed = (self.weights, self.guesses, True)
        if (reading.weights, reading.guesses, reading.committed) != fixed:
            raise InvalidRunError("the reading's classes are not those of the rules")

    def _are_weights(self, made: NDArray[np.float64]) -> bool:
        return bool(np.isin(made, self.weights).all())


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WeightClasses(Slots):
    """All guesses at once, in classes of different weight.

    Attributes:
        weights: The weight of each class, positive, all different.
        guesses: The number of guesses of each; one not made counts as incorrect.
    """

    kind = "classes"
    adaptive = False

    def bound(self) -> AnyBound:
        """Return the bound for weighted guesses."""
        return WeightedBound()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveClasses(Slots):
    """Coins are revealed in turns; every guess takes a slot of some weight.

    Attributes:
        weights: The weight of each class, positive, all different.
        guesses: The number of slots of each; one left free counts as incorrect.
    """

    kind = "adaptive-classes"
    adaptive = True

    def bound(self) -> AnyBound:
        """Return the bound for slots of adaptive guesses."""
        return AdaptiveWeightedBound()


def weights_of(weights: Iterable[float], name: str = "weights") -> tuple[float, ...]:
    """Return weights as numbers."""
    try:
        return tuple(float(w) for w in weights)
    except (OverflowError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{name} must be a list of numbers, got {name}={weights!r}"
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


def _numbers(stake: ArrayLike) -> NDArray[np.float64]:
    try:
        return np.array(stake, np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidRunError(f"stake must hold numbers: {error}") from error
