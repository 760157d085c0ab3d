"""The test of a claim, whatever the claim and whatever was read.

A claim (epsilon, delta) is tested by the bound of the game that the reading is of. A
claim that is a whole curve implies one such claim per point; where all their p-values
bound the chance of one event (counts and weights), the least is a p-value of the curve,
without any charge for the many points. Rankings, rounds and bets are tested differently
at each point, and so are weights and splits that the output decided on; there a curve
must be read at one delta that was named beforehand.
"""

from typing import Any, TypeAlias, assert_never

from dpaudit import _validate
from dpaudit.bounds.adaptive import Adaptive
from dpaudit.bounds.bets import Betting
from dpaudit.bounds.bound import Bound, ClaimTest, probability
from dpaudit.bounds.classic import Classic
from dpaudit.bounds.exact import Exact
from dpaudit.bounds.fdp import curve_log_p_value
from dpaudit.bounds.pure import Pure
from dpaudit.bounds.ranked import RankedLooks
from dpaudit.bounds.reads import (
    Bets,
    Counts,
    Ranked,
    Reading,
    Rounds,
    Unequal,
    Weighted,
)
from dpaudit.bounds.rounds import StoufferRounds
from dpaudit.bounds.slots import AdaptiveSlots
from dpaudit.bounds.steinke import Steinke
from dpaudit.bounds.unequal import UnequalCoins
from dpaudit.bounds.weighted import WeightedGuesses
from dpaudit.errors import InvalidInputError, VoidAuditError
from dpaudit.privacy.adjacency import Adjacency
from dpaudit.privacy.curve import PrivacyCurve
from dpaudit.privacy.guarantee import Guarantee
from dpaudit.privacy.guarantees import ApproxDP, GaussianDP, PureDP

__all__ = ["CountingBound", "test_claim"]

# Their p-values bound the chance of one event at every point of a claim.
CountingBound: TypeAlias = Adaptive | AdaptiveSlots | Classic


def test_claim(
    claim: Guarantee,
    reading: Reading,
    *,
    alpha: float,
    bound: CountingBound | Exact | Pure | Steinke | None = None,  # noqa: PT028 (no test)
) -> ClaimTest:
    """Return whether a reading refutes a claim at level ``alpha``.

    Args:
        claim: What the mechanism is claimed to satisfy.
        reading: What was guessed.
        alpha: Chance of refuting a true claim that is accepted.
        bound: Another bound on counts or weights than that of the reading's game, if
            it holds for it; all points of a claim are tested by it.

    Example:
        >>> counts = Counts(canaries=100_000, guesses=1510, correct=1439)
        >>> print(test_claim(ApproxDP(epsilon=2.5, delta=1e-5), counts, alpha=0.05))
        the claim (epsilon = 2.5, delta = 1e-05)-DP is refuted (p = 0.0017)
        >>> print(test_claim(GaussianDP(mu=1.0), counts, alpha=0.05))
        the claim (mu = 1)-GDP is not refuted (p = 0.87)
    """
    _validate.error_level("alpha", alpha)
    if isinstance(reading, Counts):
        _check_adjacency(claim, reading)
    if bound is None:
        log_p = _log_p_value(claim, reading, alpha=alpha)
    else:
        log_p = _least(bound, reading, claim)
    p_value = probability(log_p)
    return ClaimTest(claim=claim, p_value=p_value, alpha=alpha)


test_claim.__test__ = False  # type: ignore[attr-defined]  # pytest: not a test


def _log_p_value(  # noqa: PLR0911 (one return per kind of reading)
    claim: Guarantee, reading: Reading, *, alpha: float
) -> float:
    match reading:
        case Counts(adaptive=True):
            return _least(Adaptive(), reading, claim)
        case Counts():
            if isinstance(claim, GaussianDP | PrivacyCurve):
                return curve_log_p_value(reading, claim)
            return _least(Exact(), reading, claim)
        case Unequal() if reading.committed:
            return _least(UnequalCoins(), reading, claim)
        case Unequal():
            return _single(UnequalCoins(), reading, claim)
        case Weighted(adaptive=True):
            return _least(AdaptiveSlots(), reading, claim)
        case Weighted() if reading.committed:
            return _least(WeightedGuesses(), reading, claim)
        case Weighted():
            return _single(WeightedGuesses(), reading, claim)
        case Ranked():
            return _single(RankedLooks(level=alpha), reading, claim)
        case Rounds():
            return _single(StoufferRounds(), reading, claim)
        case Bets():
            return _single(Betting(), reading, claim)
        case _:
            assert_never(reading)


def _least(bound: Bound[Any], reading: Reading, claim: Guarantee) -> float:
    """Return the least log p-value over the points of a claim."""
    return min(
        bound.log_p_value(reading, epsilon=float(e), delta=float(d))
        for e, d in zip(*claim.points(), strict=True)
    )


def _single(bound: Bound[Any], reading: Reading, claim: Guarantee) -> float:
    """Return the log p-value of a claim that has one point."""
    match claim:
        case PureDP() | ApproxDP():
            return _least(bound, reading, claim)
        case GaussianDP() | PrivacyCurve():
            raise InvalidInputError(
                f"{bound.method} guesses are tested at one point of a curve; name a "
                "delta before the run and claim ApproxDP(epsilon=curve.epsilon_at("
                "delta), delta=delta)"
            )
        case _:
            assert_never(claim)


def _check_adjacency(claim: Guarantee, counts: Counts) -> None:
    if counts.alternatives > 2 and claim.adjacency is not Adjacency.REPLACE_ONE:
        raise VoidAuditError(
            f"coins that choose one of {counts.alternatives} records test replace-one "
            f"adjacency, but the claim is for {claim.adjacency}"
        )
