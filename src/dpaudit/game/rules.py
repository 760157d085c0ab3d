"""The rules a game is played by, fixed before it begins.

Rules say what is revealed when, and what of the guesser's freedom is pinned down so
that the bound at the end is valid.

One run: all guesses at once, nothing revealed before.

- ``OneRun``: so many guesses.
- ``Ranking``: so many guesses, in order of confidence; the bound looks at the best few.
- ``Classes``: so many guesses of each weight.

Adaptive: a coin is revealed once its canary was submitted, guessed or passed.

- ``AdaptiveCount``: so many guesses; one not made counts as wrong.
- ``AdaptiveClasses``: so many guesses of each weight; every guess takes a free slot.
- ``AdaptiveRounds``: so many rounds of planned weight; any guesses within a round.
- ``AdaptiveBets``: any guesses, each with a stated chance; stop at will.

Counting the guesses that an adaptive guesser happened to make, as if their number had
been fixed, is not among them: docs/explanation/errata.md shows why.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Final, TypeAlias, assert_never, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _canonical, _validate
from dpaudit.bounds.reads import check_jump
from dpaudit.errors import InvalidInputError, VoidAuditError

__all__ = [
    "LARGEST_WEIGHT",
    "AdaptiveBets",
    "AdaptiveClasses",
    "AdaptiveCount",
    "AdaptiveRounds",
    "Classes",
    "OneRun",
    "Ranking",
    "Rules",
    "check_number",
    "check_slots",
    "committed_guesses",
    "is_adaptive",
    "rules_from_plain",
    "rules_to_plain",
    "stake_range",
]

LARGEST_WEIGHT: Final = 1e9  # larger ratios make one class all that counts


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OneRun:
    """All guesses at once.

    Attributes:
        guesses: How many; one not made counts as wrong.
    """

    guesses: int

    def __post_init__(self) -> None:
        _validate.whole_number("guesses", self.guesses, least=1)
        object.__setattr__(self, "guesses", int(self.guesses))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """All guesses at once, the surest first.

    Attributes:
        guesses: How many are ranked; one not made counts as wrong, at the end.
    """

    guesses: int

    def __post_init__(self) -> None:
        _validate.whole_number("guesses", self.guesses, least=1)
        object.__setattr__(self, "guesses", int(self.guesses))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Classes:
    """All guesses at once, in classes of different weight.

    Attributes:
        weights: The weight of each class, positive, all different.
        guesses: How many guesses of each; one not made counts as wrong.
    """

    weights: tuple[float, ...]
    guesses: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", _weights(self.weights))
        object.__setattr__(self, "guesses", tuple(self.guesses))
        _check_classes(self.weights, self.guesses)
        object.__setattr__(self, "guesses", tuple(int(r) for r in self.guesses))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveCount:
    """Coins are revealed on the way; the number of guesses is fixed.

    Attributes:
        guesses: How many; one not made counts as wrong.
    """

    guesses: int

    def __post_init__(self) -> None:
        _validate.whole_number("guesses", self.guesses, least=1)
        object.__setattr__(self, "guesses", int(self.guesses))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveClasses:
    """Coins are revealed on the way; every guess takes a slot of some weight.

    Attributes:
        weights: The weight of each class, positive, all different.
        guesses: How many slots of each; one left free counts as wrong.
    """

    weights: tuple[float, ...]
    guesses: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", _weights(self.weights))
        object.__setattr__(self, "guesses", tuple(self.guesses))
        _check_classes(self.weights, self.guesses)
        object.__setattr__(self, "guesses", tuple(int(r) for r in self.guesses))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveRounds:
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


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveBets:
    """Coins are revealed on the way; each guess states its chance of being right.

    Attributes:
        start: The smallest epsilon that is tested. A larger one pays less for delta;
            a truth below it is reported as 0.
    """

    start: float = 0.0

    def __post_init__(self) -> None:
        _validate.nonnegative("start", self.start)
        object.__setattr__(self, "start", float(self.start))


Rules: TypeAlias = (
    OneRun
    | Ranking
    | Classes
    | AdaptiveCount
    | AdaptiveClasses
    | AdaptiveRounds
    | AdaptiveBets
)

_KINDS: MappingProxyType[str, type[Rules]] = MappingProxyType(
    {
        "one-run": OneRun,
        "ranking": Ranking,
        "classes": Classes,
        "adaptive-count": AdaptiveCount,
        "adaptive-classes": AdaptiveClasses,
        "adaptive-rounds": AdaptiveRounds,
        "adaptive-bets": AdaptiveBets,
    }
)


def is_adaptive(rules: Rules) -> bool:
    """Return whether coins are revealed while the game goes on.

    Example:
        >>> is_adaptive(OneRun(guesses=10)), is_adaptive(AdaptiveCount(guesses=10))
        (False, True)
    """
    return isinstance(
        rules, AdaptiveCount | AdaptiveClasses | AdaptiveRounds | AdaptiveBets
    )


def committed_guesses(rules: Rules, canaries: int) -> int:
    """Return how many guesses the rules allow at most."""
    match rules:
        case OneRun() | Ranking() | AdaptiveCount():
            return rules.guesses
        case Classes() | AdaptiveClasses():
            return sum(rules.guesses)
        case AdaptiveRounds() | AdaptiveBets():
            return canaries


def check_number(made: int, allowed: int) -> None:
    """Refuse more guesses than a design allows."""
    if made > allowed:
        raise VoidAuditError(
            f"{made} guesses were made, but the design allows guesses={allowed}; the "
            "number must be fixed before the run"
        )


def check_slots(rules: Classes | AdaptiveClasses, stakes: NDArray[np.float64]) -> None:
    """Refuse more guesses of one weight than there are slots for them."""
    for weight, slots in zip(rules.weights, rules.guesses, strict=True):
        used = int(np.count_nonzero(stakes == weight))
        if used > slots:
            raise VoidAuditError(
                f"{used} guesses of weight {weight:g} were made, but the design has "
                f"{slots} slots for them"
            )


def stake_range(rules: Rules) -> tuple[float, float]:
    """Return the least and the largest stake that a guess may have.

    Example:
        >>> stake_range(OneRun(guesses=10)), stake_range(AdaptiveBets())
        ((1.0, 1.0), (0.0, 1.0))
    """
    match rules:
        case OneRun() | Ranking() | AdaptiveCount():
            return 1.0, 1.0
        case Classes() | AdaptiveClasses() | AdaptiveRounds():
            return 1 / LARGEST_WEIGHT, LARGEST_WEIGHT
        case AdaptiveBets():
            return 0.0, 1.0
        case _:
            assert_never(rules)


def rules_to_plain(rules: Rules) -> dict[str, _canonical.Json]:
    """Return the rules as plain JSON values."""
    kind = next(name for name, cls in _KINDS.items() if type(rules) is cls)
    return {"kind": kind, **asdict(rules)}


def rules_from_plain(plain: Mapping[str, Any]) -> Rules:
    """Return the rules that plain JSON values describe."""
    if not isinstance(plain, Mapping):
        raise InvalidInputError(f"rules must be an object, got {plain!r}")
    values: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in plain.items()
    }
    kind = values.pop("kind", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InvalidInputError(
            f"rules must have a kind, one of {', '.join(_KINDS)}, got {kind!r}"
        )
    try:
        rules: Rules = _KINDS[kind](**values)
    except (OverflowError, TypeError, ValueError) as error:
        raise InvalidInputError(f"rules of kind {kind!r}: {error}") from error
    return rules


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
