"""The nulls by their names: with which numbers each rule meets them.

A delta tells rules apart if something is heard with a chance near alpha. *All or
nothing* speaks with a little less than alpha: a rule comes near its level there. *All
or nothing, 2 alpha* speaks with twice alpha, so loudly that a rule which ignores delta
refutes it whenever it speaks, and so twice as often as it may; a valid rule cannot.
What gives single coins away has a delta of alpha over the canaries: less than one coin
in the whole run.

Training is tuned to its rule: of a few epsilons and a ladder of chances the loudest is
taken that the rule still refutes whenever it is heard. The ladder begins far above
alpha. A valid rule lets it fall to alpha or less by itself; one that does not charge
for delta is caught on the way.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np

from dpaudit.bounds.adaptive import AdaptiveBound
from dpaudit.bounds.exact import SeparateRunsBound
from dpaudit.bounds.independent_runs import PooledRunsBound
from dpaudit.bounds.weighted import AdaptiveWeightedBound
from dpaudit.errors import InvalidInputError
from dpaudit.privacy.guarantees import ApproxDP
from dpaudit_lab.calibration.counting import (
    CountsAtTheEdge,
    Parity,
)
from dpaudit_lab.calibration.draws import Draws
from dpaudit_lab.calibration.half import NamedOfHalf, RandomHalfRule
from dpaudit_lab.calibration.mixtures import (
    AllOrNothing,
    RandomisedResponse,
    SharedScore,
    Silent,
    Sometimes,
    Unbalanced,
)
from dpaudit_lab.calibration.nulls import Attaining, Exposed, Null, Stopping
from dpaudit_lab.calibration.ours import EXACT_ON_ALL, AnyRule
from dpaudit_lab.calibration.rules import CountRule, WeightedRule
from dpaudit_lab.calibration.sequences import BettingRule, RoundsRule
from dpaudit_lab.calibration.several import CurveRule, IndependentRule
from dpaudit_lab.calibration.training import SeldomTraining
from dpaudit_lab.calibration.unequal import BiasedCoins

__all__ = ["is_adaptive", "null_named"]

_LOUD: Final = 3.0  # log-odds of what is heard, under claims of epsilon 1
_TWICE: Final = 2.0  # times alpha: what a rule that ignores delta cannot miss
_EPSILONS: Final = (0.25, 1.0, 2.0, 4.0)
_LADDER: Final = (
    *(4.0, 2.0, 1.5, 1.2, 1.05),
    *(0.97 * 2 ** (-k / 4) for k in range(48)),
)
_HEARD: Final = 12  # runs that must all be refuted


def is_adaptive(rule: AnyRule) -> bool:
    """Return whether a rule is for guessers who learn coins as they go."""
    match rule:
        case (
            CountRule(bound=AdaptiveBound())
            | WeightedRule(bound=AdaptiveWeightedBound())
        ):
            return True
        case RoundsRule() | BettingRule():
            return True
        case _:
            return False


@lru_cache(maxsize=4096)
def null_named(  # noqa: PLR0911, PLR0912 (one return per name)
    name: str, rule: AnyRule, n: int, alpha: float
) -> Null:
    """Return the null of a name, for a rule, a number of canaries and a level."""
    counts = isinstance(rule, CountRule | CurveRule | IndependentRule)
    share = rule.share if isinstance(rule, CountRule) else 1
    faint = ApproxDP(epsilon=1.0, delta=alpha / n)
    match name:
        case "randomised response":
            return RandomisedResponse(epsilon=1.0)
        case "shared score, 1-GDP" if counts:
            return SharedScore(mu=1.0, delta=alpha / 2 / share, share=share)
        case "shared score, 1-GDP":
            return SharedScore(mu=1.0, delta=alpha / n)
        case "all or nothing" if counts:
            claim = ApproxDP(epsilon=1.0, delta=0.8 * alpha / share)
            return AllOrNothing(claim=claim, loud=_LOUD, share=share)
        case "all or nothing, 2 alpha":
            spoken = AllOrNothing.speaking(
                chance=_TWICE * alpha,
                epsilon=1.0,
                loud=_LOUD,
                share=share,
            )
            # A silent run beside a loud one would hide it where counts are added up.
            pooled = (
                isinstance(rule, IndependentRule) and rule.bound == PooledRunsBound()
            )
            return replace(spoken, quiet=1.0) if pooled else spoken
        case "randomised response, loud at times":
            return AllOrNothing(claim=faint, loud=_LOUD, quiet=1.0)
        case "exposed coins":
            # Runs of their own pay for delta one by one, so it may be large; but not
            # so large that there are as many coins given away as guesses.
            classic = isinstance(rule, CountRule) and isinstance(
                rule.bound, SeparateRunsBound
            )
            runs = ApproxDP(epsilon=1.0, delta=0.1 / share)
            return Exposed(claim=runs if classic else faint)
        case "attaining":
            return _attaining(rule, n, alpha)
        case "counts at the edge":
            return CountsAtTheEdge(epsilon=1.0)
        case "xor randomised response":
            return Parity(epsilon=1.0, told=is_adaptive(rule))
        case "DP-SGD, all or nothing":
            return _training(rule, n, alpha)
        case "silent":
            return Silent()
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
        case "all at 2 alpha, 9 in 10 included":
            claim = ApproxDP(epsilon=1.0, delta=_TWICE * alpha)
            return BiasedCoins(inclusion=0.9, claim=claim)
        case "silent, a random half":
            return _half(rule, n, ApproxDP(epsilon=0.0, delta=0.0))
        case "some named, a random half":
            return _half(rule, n, ApproxDP(epsilon=1.0, delta=0.0))
        case "all or some named, a random half":
            return _half(rule, n, faint)
        case "all at 2 alpha, a random half":
            return _half(rule, n, ApproxDP(epsilon=1.0, delta=_TWICE * alpha))
        case "1.5-DP response, 386 in 1000":
            return Sometimes(epsilon=1.5, chance=0.386, delta=1e-5)
        case _:
            raise InvalidInputError(f"there is no null {name!r}")


def _half(rule: AnyRule, canaries: int, claim: ApproxDP) -> NamedOfHalf:
    assert isinstance(rule, RandomHalfRule)  # no other is shown halves
    return NamedOfHalf(guesses=rule.guesses(canaries), claim=claim)


def _attaining(rule: AnyRule, canaries: int, alpha: float) -> Attaining:
    """Return the null that attains where the rule rejects, if it counts guesses.

    Rules that do not count get the one made for the exact bound on all guesses, with
    a delta of alpha over the canaries; where no count rejects, all guesses right is
    made as likely as it can be.
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
    )


def _training(rule: AnyRule, canaries: int, alpha: float) -> SeldomTraining:
    """Return the likeliest training that the rule refutes whenever it is heard.

    If it refutes none of the ladder, training that is heard with a chance of alpha over
    the canaries.
    """
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
