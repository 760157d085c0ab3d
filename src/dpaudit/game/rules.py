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

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, TypeAlias, final

import numpy as np

from dpaudit import _canonical, _validate
from dpaudit.errors import InvalidInputError

__all__ = [
    "AdaptiveBets",
    "AdaptiveClasses",
    "AdaptiveCount",
    "AdaptiveRounds",
    "Classes",
    "OneRun",
    "Ranking",
    "Rules",
    "committed_guesses",
    "is_adaptive",
    "rules_from_plain",
    "rules_to_plain",
]


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
        _check_classes(self.weights, self.guesses)


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
        _check_classes(self.weights, self.guesses)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveRounds:
    """Coins are revealed after each round; what a round counts is fixed.

    Attributes:
        weights: What each round counts; a round not played counts as an empty one.
    """

    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if not all(np.isfinite(w) and w >= 0 for w in self.weights) or not any(
            self.weights
        ):
            raise InvalidInputError(
                "weights must be finite, 0 or more and not all 0, got "
                f"weights={self.weights!r}"
            )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveBets:
    """Coins are revealed on the way; each guess states its chance of being right."""


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


def rules_to_plain(rules: Rules) -> dict[str, _canonical.Json]:
    """Return the rules as plain JSON values."""
    kind = next(name for name, cls in _KINDS.items() if type(rules) is cls)
    return {"kind": kind, **asdict(rules)}


def rules_from_plain(plain: Mapping[str, Any]) -> Rules:
    """Return the rules that plain JSON values describe."""
    values: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in plain.items()
    }
    kind = values.pop("kind", None)
    if kind not in _KINDS:
        raise InvalidInputError(
            f"rules must have a kind, one of {', '.join(_KINDS)}, got {kind!r}"
        )
    try:
        rules: Rules = _KINDS[kind](**values)
    except TypeError as error:
        raise InvalidInputError(f"rules of kind {kind!r}: {error}") from error
    return rules


def _check_classes(weights: tuple[float, ...], guesses: tuple[int, ...]) -> None:
    if not len(weights) == len(guesses) > 0:
        raise InvalidInputError(
            f"weights and guesses must have one entry per class, got {len(weights)} "
            f"and {len(guesses)}"
        )
    if not all(np.isfinite(w) and w > 0 for w in weights) or (
        len(set(weights)) < len(weights)
    ):
        raise InvalidInputError(
            f"weights must be positive and all different, got weights={weights!r}"
        )
    for number in guesses:
        _validate.whole_number("guesses", number, least=1)
