"""Which rule meets which null.

Every rule of ours whose claims have a delta meets a null that is heard with twice its
level: the one that finds out whether it charges for delta at all. Classic runs are
independent of each other, so nothing can be shared by all; they meet coins that are
given away one by one, with a large delta. Which numbers a name stands for is said in
``named``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from dpaudit.bounds.exact import PureBound, SeparateRunsBound
from dpaudit_lab.calibration import peers
from dpaudit_lab.calibration.half import RandomHalfRule
from dpaudit_lab.calibration.named import is_adaptive, null_named
from dpaudit_lab.calibration.nulls import Null
from dpaudit_lab.calibration.ours import OURS, AnyRule
from dpaudit_lab.calibration.rules import CountRule, WeightedRule
from dpaudit_lab.calibration.several import CurveRule, IndependentRule
from dpaudit_lab.calibration.unequal import UnequalRule

__all__ = ["RULES", "Case", "cases", "is_exact"]

RULES: Final[dict[str, AnyRule]] = {rule.name: rule for rule in (*OURS, *peers.PEERS)}

_RESPONSE: Final = "randomised response"
_SHARED: Final = "shared score, 1-GDP"
_ALL: Final = "all or nothing"
_TWICE: Final = "all or nothing, 2 alpha"
_FAINT: Final = "randomised response, loud at times"
_EXPOSED: Final = "exposed coins"
_ATTAINING: Final = "attaining"
_EDGE: Final = "counts at the edge"
_PARITY: Final = "xor randomised response"
_TRAINING: Final = "DP-SGD, all or nothing"
_SILENT: Final = "silent"
_CLIPPED: Final = "silent, clipped scores"
_STOPS: Final = "silent, stops when ahead"
_BIASED: Final = "silent, 9 in 10 included"
_BIASED_RESPONSE: Final = "randomised response, 9 in 10 included"
_BIASED_ALL: Final = "all or randomised response, 9 in 10 included"
_BIASED_TWICE: Final = "all at 2 alpha, 9 in 10 included"
_HALF: Final = "silent, a random half"
_HALF_NAMED: Final = "some named, a random half"
_HALF_FAINT: Final = "all or some named, a random half"
_HALF_TWICE: Final = "all at 2 alpha, a random half"
_SOMETIMES: Final = "1.5-DP response, 386 in 1000"

_PURE: Final = (_RESPONSE, _EDGE, _PARITY, _SILENT, _CLIPPED)
_GENERAL: Final = (
    _RESPONSE,
    _SHARED,
    _ALL,
    _TWICE,
    _EXPOSED,
    _ATTAINING,
    _EDGE,
    _PARITY,
    _TRAINING,
    _SILENT,
    _CLIPPED,
)
_SEEN_AT_ONCE: Final = (_RESPONSE, _SHARED, _ALL, _TWICE, _ATTAINING, _SILENT)
# Rules that do not count pay for delta in all canaries, whatever they guess.
_UNCOUNTED: Final = tuple(_FAINT if null == _ALL else null for null in _GENERAL)
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
        return rule, null_named(self.null, rule, self.canaries, self.alpha)


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
        case peers.RealisedGuesses() | peers.ScanFloor() | RandomHalfRule():
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
    general: tuple[str, ...] = _UNCOUNTED
    match rule:
        case CountRule(bound=PureBound()):
            return _PURE
        case CountRule(bound=SeparateRunsBound()):
            return (_RESPONSE, _EXPOSED, _SILENT)
        case CurveRule():
            return (*_SEEN_AT_ONCE, _TRAINING)
        case IndependentRule():
            return (*_SEEN_AT_ONCE, _EXPOSED, _PARITY)
        case RandomHalfRule():
            return (_HALF, _HALF_NAMED, _HALF_FAINT, _HALF_TWICE)
        case UnequalRule():
            return (_BIASED, _BIASED_RESPONSE, _BIASED_ALL, _BIASED_TWICE)
        case CountRule():
            general = _GENERAL
    begins_on_all = not isinstance(rule, CountRule) or rule.share == 1
    return (*general, _STOPS) if is_adaptive(rule) and begins_on_all else general
