"""Which rule meets which null, and with which numbers.

A delta bites if it is of the order of alpha where all guesses go wrong together, and
less than one coin in the whole run otherwise. Rules that count guesses get the former.
Rules that pay for delta in all canaries, whatever they guess, get the latter. Training
is tuned to its rule: of a few epsilons and a ladder of chances the loudest is taken
that the rule still refutes whenever it is heard.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import Final, final

import numpy as np

from dpaudit.bounds.adaptive import Adaptive
from dpaudit.bounds.classic import Classic
from dpaudit.bounds.exact import group_growth
from dpaudit.bounds.pure import Pure
from dpaudit.bounds.slots import AdaptiveSlots
from dpaudit.errors import InvalidInputError
from dpaudit.experiments.calibration import peers
from dpaudit.experiments.calibration.counting import (
    CountedGroups,
    CountsAtTheEdge,
    Parity,
)
from dpaudit.experiments.calibration.draws import Draws
from dpaudit.experiments.calibration.mixtures import (
    AllOrNothing,
    RandomisedResponse,
    SharedScore,
    Silent,
    Sometimes,
    Unbalanced,
)
from dpaudit.experiments.calibration.nulls import Attaining, Exposed, Null, Stopping
from dpaudit.experiments.calibration.ours import EXACT_ON_ALL, OURS, AnyRule
from dpaudit.experiments.calibration.rules import CountRule, WeightedRule
from dpaudit.experiments.calibration.sequences import BettingRule, RoundsRule
from dpaudit.experiments.calibration.several import CurveRule, IndependentRule
from dpaudit.experiments.calibration.training import SeldomTraining
from dpaudit.experiments.calibration.unequal import BiasedCoins, UnequalRule
from dpaudit.privacy.guarantees import ApproxDP

__all__ = ["RULES", "Case", "cases", "is_exact"]

RULES: Final[dict[str, AnyRule]] = {rule.name: rule for rule in (*OURS, *peers.PEERS)}

_RESPONSE: Final = "randomised response"
_SHARED: Final = "shared score, 1-GDP"
_ALL: Final = "all or nothing"
_EXPOSED: Final = "exposed coins"
_ATTAINING: Final = "attaining"
_EDGE: Final = "counts at the edge"
_PARITY: Final = "xor randomised response"
_TRAINING: Final = "DP-SGD, all or nothing"
_SILENT: Final = "silent"
_CLIPPED: Final = "silent, clipped scores"
_STOPS: Final = "silent, stops when ahead"
_GROUPS: Final = "counted pairs of records"
_BIASED: Final = "silent, 9 in 10 included"
_BIASED_RESPONSE: Final = "randomised response, 9 in 10 included"
_BIASED_ALL: Final = "all or randomised response, 9 in 10 included"
_SOMETIMES: Final = "1.5-DP response, 386 in 1000"

_PURE: Final = (_RESPONSE, _EDGE, _PARITY, _SILENT, _CLIPPED)
_GENERAL: Final = (
    _RESPONSE,
    _SHARED,
    _ALL,
    _EXPOSED,
    _ATTAINING,
    _EDGE,
    _PARITY,
    _TRAINING,
    _SILENT,
    _CLIPPED,
)
# Which nulls each peer's rule is shown: those that its description is about.
_SHOWN: Final = {
    peers.FAIR_COINS.name: (_SILENT, _BIASED),
    peers.NO_DELTA.name: (_SILENT, _ATTAINING),
    peers.INDEPENDENT.name: (_SHARED, _SOMETIMES),
    peers.GAUSSIAN.name: (_SILENT, _SOMETIMES),
    peers.RealisedGuesses().name: (_STOPS,),
    peers.ScanFloor().name: (_SILENT,),
}
_SELECTIONS: Final = (_SILENT, _CLIPPED)
# Laws of counts that are simulated, and laws of weights that are.
_NO_LAW: Final = (_EDGE, _TRAINING)
_NO_SCORE_LAW: Final = (_EXPOSED, _ATTAINING, _EDGE, _PARITY, _TRAINING, _STOPS)
_SLOW_BEYOND: Final = 1000  # canaries, for rules about curves and pairs of runs

_EPSILONS: Final = (0.25, 1.0, 2.0, 4.0)
_LADDER: Final = tuple(0.97 * 2 ** (-k / 4) for k in range(48))
_HEARD: Final = 12  # runs that must all be refuted


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A rule, a null, a number of canaries and a level.

    Attributes:
        rule: Name of the rule.
        null: Name of the null.
        canaries: Canaries in each audit.
        alpha: The level that the rule promises.
    """

    rule: str
    null: str
    canaries: int
    alpha: float

    def parts(self) -> tuple[AnyRule, Null]:
        """Return the rule and the null."""
        rule = RULES[self.rule]
        return rule, _null(self.null, rule, self.canaries, self.alpha)


def cases(
    *,
    canaries: Sequence[int] = (100, 1000, 10_000),
    alphas: Sequence[float] = (0.05, 0.001),
    simulate_up_to: int = 1000,
) -> list[Case]:
    """Return the cases of a table.

    Args:
        canaries: Numbers of canaries.
        alphas: Levels.
        simulate_up_to: Cases with more canaries are left out unless they are exact.
    """
    every = [
        Case(rule=rule.name, null=null, canaries=n, alpha=alpha)
        for rule in RULES.values()
        for null in _nulls_for(rule)
        for n in canaries
        for alpha in alphas
        if n <= _SLOW_BEYOND or not _is_slow(rule)
    ]
    return [c for c in every if c.canaries <= simulate_up_to or is_exact(c)]


def is_exact(case: Case) -> bool:
    """Return whether the rate of a case is a sum, not a simulation."""
    match RULES[case.rule]:
        case CountRule() | CurveRule() | IndependentRule():
            return case.null not in _NO_LAW
        case peers.RealisedGuesses() | peers.ScanFloor():
            return True
        case WeightedRule():
            return case.null not in _NO_SCORE_LAW
        case _:
            return False


def _is_slow(rule: AnyRule) -> bool:
    return rule == peers.GAUSSIAN or isinstance(rule, CurveRule | IndependentRule)


def _nulls_for(rule: AnyRule) -> tuple[str, ...]:  # noqa: PLR0911 (one per kind)
    if rule not in OURS:
        return _SHOWN.get(rule.name, _SELECTIONS)
    match rule:
        case CountRule(bound=Pure()):
            return _PURE
        case CountRule(bound=Classic()):
            return (_RESPONSE, _EXPOSED, _SILENT)
        case CountRule(alternatives=k) if k > 2:
            return (_RESPONSE, _ALL, _ATTAINING, _SILENT)
        case CountRule(records=g) if g > 1:
            return (_GROUPS, _ALL, _SILENT)
        case CurveRule():
            return (_RESPONSE, _SHARED, _ALL, _ATTAINING, _TRAINING, _SILENT)
        case IndependentRule():
            return (_RESPONSE, _SHARED, _ALL, _EXPOSED, _ATTAINING, _PARITY, _SILENT)
        case UnequalRule():
            return (_BIASED, _BIASED_RESPONSE, _BIASED_ALL)
        case _ if _is_adaptive(rule) and not (
            isinstance(rule, CountRule) and rule.share > 1
        ):
            return (*_GENERAL, _STOPS)
        case _:
            return _GENERAL


def _is_adaptive(rule: AnyRule) -> bool:
    match rule:
        case CountRule(bound=Adaptive()) | WeightedRule(bound=AdaptiveSlots()):
            return True
        case RoundsRule() | BettingRule():
            return True
        case _:
            return False


@lru_cache(maxsize=4096)
def _null(  # noqa: PLR0911, PLR0912 (one return per name)
    name: str, rule: AnyRule, n: int, alpha: float
) -> Null:
    counts = isinstance(rule, CountRule | CurveRule | IndependentRule)
    share = rule.share if isinstance(rule, CountRule) else 1
    k = rule.alternatives if isinstance(rule, CountRule) else 2
    faint = ApproxDP(epsilon=1.0, delta=alpha / n)
    match name:
        case "randomised response":
            return RandomisedResponse(epsilon=1.0, alternatives=k)
        case "shared score, 1-GDP" if counts:
            return SharedScore(mu=1.0, delta=alpha / 2 / share, share=share)
        case "shared score, 1-GDP":
            return SharedScore(mu=1.0, delta=alpha / n)
        case "all or nothing" if isinstance(rule, CountRule) and rule.records > 1:
            growth = group_growth(1.0, records=rule.records)
            claim = ApproxDP(epsilon=1.0, delta=0.8 * alpha / share / growth)
            return AllOrNothing(claim=claim, loud=inf, share=share)
        case "all or nothing" if counts:
            claim = ApproxDP(epsilon=1.0, delta=0.8 * alpha / share)
            return AllOrNothing(claim=claim, loud=3.0, share=share, alternatives=k)
        case "all or nothing":
            return AllOrNothing(claim=faint, loud=3.0, quiet=1.0)
        case "exposed coins":
            # Runs of their own pay for delta one by one, so it may be large.
            classic = isinstance(rule, CountRule) and isinstance(rule.bound, Classic)
            return Exposed(claim=ApproxDP(epsilon=1.0, delta=0.1) if classic else faint)
        case "attaining":
            return _attaining(rule, n, alpha)
        case "counts at the edge":
            return CountsAtTheEdge(epsilon=1.0)
        case "xor randomised response":
            return Parity(epsilon=1.0, told=_is_adaptive(rule))
        case "DP-SGD, all or nothing":
            return _training(rule, n, alpha)
        case "counted pairs of records":
            return CountedGroups(epsilon=1.0)
        case "silent":
            return Silent(alternatives=k)
        case "silent, clipped scores":
            return Silent(clip=0.0)
        case "silent, stops when ahead":
            return Stopping(level=alpha)
        case "silent, 9 in 10 included":
            return Unbalanced(inclusion=0.9)
        case "randomised response, 9 in 10 included":
            return BiasedCoins(inclusion=0.9, claim=ApproxDP(epsilon=1.0, delta=0.0))
        case "all or randomised response, 9 in 10 included":
            return BiasedCoins(inclusion=0.9, claim=faint)
        case "1.5-DP response, 386 in 1000":
            return Sometimes(epsilon=1.5, chance=0.386, delta=1e-5)
        case _:
            raise InvalidInputError(f"there is no null {name!r}")


def _attaining(rule: AnyRule, canaries: int, alpha: float) -> Attaining:
    """Return the null that attains where the rule rejects, if it counts guesses.

    Rules that do not count get the one made for the exact bound on all guesses; where
    no count rejects, all guesses right is the likeliest they can be.
    """
    delta = alpha / canaries
    counting = EXACT_ON_ALL
    if isinstance(rule, CountRule):
        counting = rule
        delta = min(0.49 / canaries, alpha / 4 / rule.share)
    claim = ApproxDP(epsilon=1.0, delta=delta)
    r = counting.guesses(canaries)
    v = min(r, counting.critical(canaries, claim, alpha))
    return Attaining(
        claim=claim,
        canaries=canaries,
        guesses=r,
        correct=v,
        alternatives=counting.alternatives,
    )


def _training(rule: AnyRule, canaries: int, alpha: float) -> SeldomTraining:
    """Return the likeliest training that the rule refutes whenever it is heard."""
    rng = np.random.default_rng(0)
    heard = SeldomTraining(epsilon=0.0, chance=1.0).draw(
        rng, canaries=canaries, audits=_HEARD
    )
    # A claim that is a curve has no epsilon to choose.
    epsilons = (1.0,) if isinstance(rule, CurveRule) else _EPSILONS
    for step in _LADDER:
        for epsilon in epsilons:
            null = SeldomTraining(epsilon=epsilon, chance=step * alpha)
            if _all_rejected(rule, heard, null, alpha):
                return null
    return SeldomTraining(epsilon=1.0, chance=alpha / canaries)


def _all_rejected(
    rule: AnyRule, heard: Draws, null: SeldomTraining, alpha: float
) -> bool:
    match rule:
        case IndependentRule():
            raise InvalidInputError("pairs of runs are judged by exact sums only")
        case CurveRule():
            found = rule.rejects_null(heard, null, alpha)
        case _:
            rng = np.random.default_rng(0)
            found = rule.rejects(heard, null.claim, alpha, rng)
    return bool(found.all())
