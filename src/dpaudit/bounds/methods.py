"""Which bound for which reading, and the bounds on counts by name."""

from types import MappingProxyType
from typing import TypeAlias, assert_never

from dpaudit.bounds.adaptive import Adaptive
from dpaudit.bounds.bets import Betting
from dpaudit.bounds.bound import LowerBound, ParameterBound
from dpaudit.bounds.classic import Classic
from dpaudit.bounds.exact import Exact
from dpaudit.bounds.fdp import GaussianFamily
from dpaudit.bounds.independent_runs import IndependentRuns
from dpaudit.bounds.pure import Pure
from dpaudit.bounds.ranked import RankedLooks
from dpaudit.bounds.reads import Bets, Counts, Ranked, Rounds, Unequal, Weighted
from dpaudit.bounds.rounds import StoufferRounds
from dpaudit.bounds.slots import AdaptiveSlots
from dpaudit.bounds.steinke import Steinke
from dpaudit.bounds.unequal import UnequalCoins
from dpaudit.bounds.weighted import WeightedGuesses

__all__ = [
    "ABOUT",
    "KNOWN",
    "METHODS",
    "CountsMethod",
    "bound_counts",
    "bound_other",
    "proved_methods",
]

CountsMethod: TypeAlias = Exact | Pure | Steinke | Adaptive | Classic | GaussianFamily

METHODS: MappingProxyType[str, CountsMethod] = MappingProxyType(
    {
        "exact": Exact(),
        "pure": Pure(),
        "adaptive": Adaptive(),
        "steinke": Steinke(),
        "classic": Classic(),
        "gdp": GaussianFamily(),
    }
)

# Every method of this package by the name that results hold: any other is a user's own.
KNOWN: frozenset[str] = frozenset(METHODS) | {
    each.method
    for each in (
        AdaptiveSlots,
        Betting,
        IndependentRuns,
        RankedLooks,
        StoufferRounds,
        UnequalCoins,
        WeightedGuesses,
    )
}

ABOUT: MappingProxyType[str, str] = MappingProxyType(
    {
        "exact": "all guesses at once",
        "pure": "delta = 0 only",
        "adaptive": "coins revealed after each guess",
        "steinke": "as published; for comparison",
        "classic": "one coin per independent run",
        "gdp": "only if the mechanism is Gaussian-private",
    }
)


def proved_methods(counts: Counts) -> tuple[str, ...]:
    """Return the names of the bounds that hold for the game of counts, its own first.

    Example:
        >>> proved_methods(Counts(canaries=9, guesses=2, correct=1))
        ('exact', 'pure', 'adaptive', 'steinke', 'classic', 'gdp')
        >>> proved_methods(Counts(canaries=9, guesses=2, correct=1, adaptive=True))
        ('adaptive',)
    """
    return ("adaptive",) if counts.adaptive else tuple(METHODS)


def bound_counts(
    method: str, counts: Counts, *, delta: float, alpha: float
) -> LowerBound | ParameterBound:
    """Return what the named method makes of counts.

    Example:
        >>> counts = Counts(canaries=100, guesses=100, correct=75)
        >>> bound_counts("pure", counts, delta=0.0, alpha=0.05).method
        'pure'
    """
    found = METHODS[method]
    if isinstance(found, GaussianFamily):
        return found.parameter_lower(counts, delta=delta, alpha=alpha)
    return found.epsilon_lower(counts, delta=delta, alpha=alpha)


def bound_other(
    reading: Unequal | Ranked | Weighted | Rounds | Bets, *, delta: float, alpha: float
) -> LowerBound:
    """Return what the one bound for such a reading makes of it.

    Raises:
        VoidAuditError: No bound is proved for the game that it is of.
    """
    match reading:
        case Unequal():
            return UnequalCoins().epsilon_lower(reading, delta=delta, alpha=alpha)
        case Ranked():
            return RankedLooks().epsilon_lower(reading, delta=delta, alpha=alpha)
        case Weighted(adaptive=True):
            return AdaptiveSlots().epsilon_lower(reading, delta=delta, alpha=alpha)
        case Weighted():
            return WeightedGuesses().epsilon_lower(reading, delta=delta, alpha=alpha)
        case Rounds():
            return StoufferRounds().epsilon_lower(reading, delta=delta, alpha=alpha)
        case Bets():
            return Betting().epsilon_lower(reading, delta=delta, alpha=alpha)
        case _:
            assert_never(reading)
