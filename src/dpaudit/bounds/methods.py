"""The bound for each reading, the bounds on counts by name, and tests of claims."""

from types import MappingProxyType
from typing import TypeAlias

from dpaudit.bounds.adaptive import AdaptiveBound
from dpaudit.bounds.bets import BettingBound
from dpaudit.bounds.bound import (
    AnyBound,
    ClaimTest,
    LowerBound,
    ParameterBound,
)
from dpaudit.bounds.curve import GaussianFamily
from dpaudit.bounds.exact import AsMadeBound, ExactBound, PureBound, SeparateRunsBound
from dpaudit.bounds.hypergeometric import HypergeometricBound
from dpaudit.bounds.independent_runs import IndependentRunsBound, PooledRunsBound
from dpaudit.bounds.ranked import RankedBound
from dpaudit.bounds.readings import (
    Bets,
    BiasedCoinCounts,
    Counts,
    CountsAsMade,
    EventCounts,
    HalfCounts,
    Ranked,
    Reading,
    Rounds,
    Weighted,
)
from dpaudit.bounds.rounds import RoundsBound
from dpaudit.bounds.steinke import SteinkeBound
from dpaudit.bounds.unequal import BiasedCoinsBound
from dpaudit.bounds.weighted import AdaptiveWeightedBound, WeightedBound
from dpaudit.bounds.whole_claim import WholeClaimBound
from dpaudit.errors import InvalidInputError
from dpaudit.privacy.guarantees import Guarantee

__all__ = [
    "ABOUT",
    "KNOWN",
    "METHODS",
    "CountsMethod",
    "bound_counts",
    "bound_for",
    "judge_claim",
    "proved_methods",
]

CountsMethod: TypeAlias = (
    ExactBound
    | PureBound
    | SteinkeBound
    | AdaptiveBound
    | SeparateRunsBound
    | GaussianFamily
)

METHODS: MappingProxyType[str, CountsMethod] = MappingProxyType(
    {
        "exact": ExactBound(),
        "pure": PureBound(),
        "adaptive": AdaptiveBound(),
        "steinke": SteinkeBound(),
        "separate": SeparateRunsBound(),
        "gdp": GaussianFamily(),
    }
)

# The bound for a reading, if guesses are made at once and while coins are revealed.
_BOUNDS: MappingProxyType[type[Reading], tuple[AnyBound | None, AnyBound | None]] = (
    MappingProxyType(
        {
            Counts: (ExactBound(), AdaptiveBound()),
            CountsAsMade: (AsMadeBound(), None),
            EventCounts: (WholeClaimBound(), None),
            BiasedCoinCounts: (BiasedCoinsBound(), None),
            HalfCounts: (HypergeometricBound(), None),
            Ranked: (RankedBound(), None),
            Weighted: (WeightedBound(), AdaptiveWeightedBound()),
            Rounds: (None, RoundsBound()),
            Bets: (None, BettingBound()),
        }
    )
)

# The names of all methods in this package; a result with any other is from user code.
KNOWN: frozenset[str] = frozenset(METHODS) | {
    IndependentRunsBound.method,
    PooledRunsBound.method,
    *(bound.method for pair in _BOUNDS.values() for bound in pair if bound is not None),
}

ABOUT: MappingProxyType[str, str] = MappingProxyType(
    {
        "exact": "all guesses at once",
        "pure": "delta = 0 only",
        "adaptive": "coins revealed after each guess",
        "steinke": "as published; for comparison",
        "separate": "one coin per independent run",
        "gdp": "only if the mechanism is Gaussian-private",
    }
)


def bound_for(reading: Reading) -> AnyBound:
    """Return the bound for a reading's game.

    Example:
        >>> bound_for(Counts(canaries=9, guesses=2, correct=1, adaptive=True))
        AdaptiveBound()
    """
    at_once, adaptive = _BOUNDS.get(type(reading), (None, None))
    bound = adaptive if reading.adaptive else at_once
    if bound is None:
        raise InvalidInputError(
            f"{type(reading).__name__} is read by a bound of its own; give it as "
            "bound=..."
        )
    return bound


def judge_claim(
    claim: Guarantee,
    reading: Reading,
    *,
    alpha: float,
    bound: AnyBound | None = None,
) -> ClaimTest:
    """Return whether a reading refutes a claim at level ``alpha``.

    A claim (epsilon, delta) with epsilon > 0 is refuted if and only if the lower bound
    at that delta is at least epsilon (``GameBound.claim_p_value``).

    Args:
        claim: The guarantee that the mechanism is claimed to satisfy.
        reading: The reading of the run.
        alpha: Significance level: probability of refuting a true claim.
        bound: Another valid bound to use instead of the one for the reading's game.

    Example:
        >>> from dpaudit.privacy.guarantees import ApproxDP, GaussianDP
        >>> counts = Counts(canaries=100_000, guesses=1510, correct=1439)
        >>> print(judge_claim(ApproxDP(epsilon=2.5, delta=1e-5), counts, alpha=0.05))
        the claim (epsilon = 2.5, delta = 1e-05)-DP is refuted (p = 0.0017)
        >>> print(judge_claim(GaussianDP(mu=1.0), counts, alpha=0.05))
        the claim (mu = 1)-GDP is not refuted (p = 0.87)
    """
    by = bound_for(reading) if bound is None else bound
    return by.judge_claim(reading, claim, alpha=alpha)


def proved_methods(counts: Counts) -> tuple[str, ...]:
    """Return the names of the bounds valid for the game of counts, its own first.

    Example:
        >>> proved_methods(Counts(canaries=9, guesses=2, correct=1))
        ('exact', 'pure', 'adaptive', 'steinke', 'separate', 'gdp')
        >>> proved_methods(Counts(canaries=9, guesses=2, correct=1, adaptive=True))
        ('adaptive',)
    """
    return ("adaptive",) if counts.adaptive else tuple(METHODS)


def bound_counts(
    method: str, counts: Counts, *, delta: float, alpha: float
) -> LowerBound | ParameterBound:
    """Return the lower bound from counts by the named method.

    Example:
        >>> counts = Counts(canaries=100, guesses=100, correct=75)
        >>> bound_counts("pure", counts, delta=0.0, alpha=0.05).method
        'pure'
    """
    bound = METHODS[method]
    if isinstance(bound, GaussianFamily):
        return bound.parameter_lower(counts, delta=delta, alpha=alpha)
    return bound.epsilon_lower(counts, delta=delta, alpha=alpha)
