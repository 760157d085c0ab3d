"""Our rules of tier A, as the table shows them."""

from typing import TypeAlias

from dpaudit.bounds.adaptive import AdaptiveBound
from dpaudit.bounds.exact import ExactBound, PureBound, SeparateRunsBound
from dpaudit.bounds.independent_runs import PooledRunsBound
from dpaudit.bounds.steinke import SteinkeBound
from dpaudit.bounds.weighted import AdaptiveWeightedBound
from dpaudit_lab.calibration.half import RandomHalfRule
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

EXACT_ON_ALL = CountRule(name="exact, r = n", bound=ExactBound(), share=1)
OURS: tuple[AnyRule, ...] = (
    CountRule(name="exact, r = n/10", bound=ExactBound(), share=10),
    EXACT_ON_ALL,
    CountRule(name="pure, r = n", bound=PureBound(), share=1),
    CountRule(name="steinke as published, r = n/10", bound=SteinkeBound(), share=10),
    CountRule(name="steinke as published, r = n", bound=SteinkeBound(), share=1),
    CLAIM_TEST,
    CERTIFICATE,
    IndependentRule(),
    IndependentRule(name="two pooled runs, r = n", bound=PooledRunsBound()),
    CountRule(name="classic, n runs", bound=SeparateRunsBound(), share=1),
    CountRule(name="classic, n runs, r = n/10", bound=SeparateRunsBound(), share=10),
    UnequalRule(),
    RandomHalfRule(),
    WeightedRule(),
    RankedRule(),
    CountRule(name="adaptive, r = n/10", bound=AdaptiveBound(), share=10),
    CountRule(name="adaptive, r = n", bound=AdaptiveBound(), share=1),
    WeightedRule(name="slots, 4 classes", bound=AdaptiveWeightedBound()),
    RoundsRule(),
    RoundsRule(
        name="limited rounds, 4 of 2 classes", max_jump=0.5, randomness_share=0.05
    ),
    BettingRule(),
)
