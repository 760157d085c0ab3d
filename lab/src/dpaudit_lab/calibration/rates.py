"""The rates of the rules: exact sums where laws are known, simulations elsewhere."""

from typing import Final

import numpy as np

from dpaudit.errors import InvalidInputError
from dpaudit.theory.adaptive import stopping_distribution
from dpaudit_lab.calibration import peers
from dpaudit_lab.calibration.cases import RULES, Case
from dpaudit_lab.calibration.half import NamedOfHalf, RandomHalfRule
from dpaudit_lab.calibration.mixtures import (
    AllOrNothing,
    RandomisedResponse,
    SharedScore,
    Silent,
    Unbalanced,
)
from dpaudit_lab.calibration.nulls import Stopping, right_tail
from dpaudit_lab.calibration.rules import CountRule, WeightedRule
from dpaudit_lab.calibration.several import CurveRule, IndependentRule
from dpaudit_lab.calibration.unequal import UnequalRule
from dpaudit_lab.sweeps.store import Outcome, Setting

__all__ = ["FEW", "MANY", "audits_per_trial", "exact_rate", "setting", "trial"]

MANY: Final = 1000  # audits in a trial, where a verdict is looked up
FEW: Final = 100  # audits in a trial, where the bound is asked


def exact_rate(case: Case) -> float:  # noqa: PLR0911 (one per kind)
    """Return the exact chance that the rule rejects the null, where it is known.

    Example:
        >>> stops = "silent, stops when ahead"
        >>> paper = "AORA as published (no general guarantee)"
        >>> case = Case(rule=paper, null=stops, canaries=100, alpha=0.05)
        >>> round(exact_rate(case), 3)
        0.202
    """
    n, (rule, null) = case.canaries, case.parts()
    match rule, null:
        case CountRule(), _:
            v = rule.critical(n, null.claim, case.alpha)
            r = rule.guesses(n)
            return right_tail(null, canaries=n, guesses=r, correct=v)
        case CurveRule(), _:
            v = rule.critical(n, null, case.alpha)
            return right_tail(null, canaries=n, guesses=n, correct=v)
        case IndependentRule(), _:
            return rule.chance(null, canaries=n, alpha=case.alpha)
        case WeightedRule(), (
            RandomisedResponse()
            | SharedScore()
            | AllOrNothing()
            | Silent()
            | Unbalanced()
        ):
            score = rule.critical(n, null.claim, case.alpha)
            return rule.chance(null, canaries=n, score=score)
        case RandomHalfRule(), NamedOfHalf():
            return rule.chance(null, canaries=n, alpha=case.alpha)
        case peers.RealisedGuesses(), Stopping():
            return float(stopping_distribution(n, null.level)[0].sum())
        case peers.ScanFloor(), _:
            return float(rule.floor > null.claim.epsilon)
        case _:
            raise InvalidInputError(f"the law of {case} is not known; simulate it")


def trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Simulate some audits of one case, and count those that reject the true claim."""
    case = Case(
        rule=str(setting["rule"]),
        null=str(setting["null"]),
        canaries=int(setting["canaries"] or 0),
        alpha=float(setting["alpha"] or 0),
    )
    rule, null = case.parts()
    draws = null.draw(rng, canaries=case.canaries, audits=int(setting["audits"] or 0))
    match rule:
        case IndependentRule():
            raise InvalidInputError(f"{case} is not simulated; its rate is a sum")
        case CurveRule():
            found = rule.rejects_null(draws, null, case.alpha)
        case _:
            found = rule.rejects(draws, null.claim, case.alpha, rng)
    return {"rejected": int(found.sum())}


def audits_per_trial(case: Case) -> int:
    """Return how many audits are simulated together: more if they are cheap."""
    match RULES[case.rule]:
        case CountRule() | WeightedRule() | CurveRule() | UnequalRule():
            return MANY
        case _:
            return FEW


def setting(case: Case) -> dict[str, str | int | float]:
    """Return what names a case in a store."""
    return {
        "rule": case.rule,
        "null": case.null,
        "canaries": case.canaries,
        "alpha": case.alpha,
        "audits": audits_per_trial(case),
    }
