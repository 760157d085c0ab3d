"""Our rules of tier A, as the table shows them."""

from typing import TypeAlias

from dpaudit.bounds.adaptive import Adaptive
from dpaudit.bounds.exact import Exact, Pure, SeparateRunsBound
from dpaudit.bounds.independent_runs import PooledRuns
from dpaudit.bounds.steinke import Steinke
from dpaudit.bounds.weighted import AdaptiveSlots
from dpaudit_lab.calibration.rules import CountRule, Rule, WeightedRule
from dpaudit_lab.calibration.sequences import (
    BettingRule,
    RankedRule,
    RoundsRule,
)
from dpaudit_lab.calibration.several import (
    CERTIFICATE,
    CLAIM_TEST,
    CurveRule,
    IndependentRule,
)
from dpaudit_lab.calibration.unequal import UnequalRule

__all__ = ["EXACT_ON_ALL", "OURS", "AnyRule"]

AnyRule: TypeAlias = Rule | CurveRule | IndependentRule

EXACT_ON_ALL = CountRule(name="exact, r = n", bound=Exact(), share=1)
OURS: tuple[AnyRule, ...] = (
    CountRule(name="exact, r = n/10", bound=Exact(), share=10),
    EXACT_ON_ALL,
    CountRule(name="pure, r = n", bound=Pure(), share=1),
    CountRule(name="steinke as published, r = n/10", bound=Steinke(), share=10),
    CountRule(name="steinke as published, r = n", bound=Steinke(), share=1),
    CLAIM_TEST,
    CERTIFICATE,
    IndependentRule(),
    IndependentRule(name="two pooled runs, r = n", bound=PooledRuns()),
    CountRule(name="classic, n runs", bound=SeparateRunsBound(), share=1),
    CountRule(name="classic, n runs, r = n/10", bound=SeparateRunsBound(), share=10),
    UnequalRule(),
    WeightedRule(),
    RankedRule(),
    CountRule(name="adaptive, r = n/10", bound=Adaptive(), share=10),
    CountRule(name="adaptive, r = n", bound=Adaptive(), share=1),
    WeightedRule(name="slots, 4 classes", bound=AdaptiveSlots()),
    RoundsRule(),
    RoundsRule(name="limited rounds, 4 of 2 classes", max_jump=0.5, chance_share=0.05),
    BettingRule(),
)
