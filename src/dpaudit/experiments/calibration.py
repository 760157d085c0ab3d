"""How often each rule is wrong, row by row, against nulls made to mislead it.

A row is a rule, a null, a number of canaries and a level. Where the law of the rule's
statistic is known its error is an exact sum; otherwise it is simulated, and the rate
stands between exact limits. A row fails if the exact error exceeds the level, or if the
lower limit does. The limits are wide enough (Bonferroni over all simulated rows) that a
table of valid rules has a failing row with a chance of at most ``FALSE_ALARM``.

The rules that other tools use stand in the same table. They are expected to fail: that
they do shows that the table can.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from dpaudit.bounds.adaptive import Adaptive
from dpaudit.bounds.pure import Pure
from dpaudit.engines.store import Outcome, Setting, Store
from dpaudit.engines.sweep import Sweep
from dpaudit.errors import InvalidInputError
from dpaudit.experiments import peers
from dpaudit.experiments.nulls import (
    AllOrNothing,
    Attaining,
    Exposed,
    Null,
    RandomisedResponse,
    SharedScore,
    Silent,
    Stopping,
    Unbalanced,
    right_tail,
)
from dpaudit.experiments.rules import (
    EXACT_ON_ALL,
    OURS,
    BettingRule,
    CountRule,
    RoundsRule,
    Rule,
    WeightedRule,
)
from dpaudit.privacy.guarantees import ApproxDP
from dpaudit.stats.binomial import rate_limits
from dpaudit.theory.stopping import stopping_law

__all__ = [
    "AUDITS_PER_TRIAL",
    "FALSE_ALARM",
    "Case",
    "Row",
    "cases",
    "exact_rate",
    "sweep",
    "table",
    "trial",
]

AUDITS_PER_TRIAL: Final = 100
FALSE_ALARM: Final = 0.001

# An exact sum is rounded; a row that promises alpha and attains it must not fail.
_ROUNDING = 1e-9

_RULES: dict[str, Rule] = {rule.name: rule for rule in (*OURS, *peers.PEERS)}

# What a null is made from: canaries, level, and one in how many canaries is guessed.
# Deltas bite: if all guesses go wrong together it is of the order of alpha, else there
# is less than one coin to give away in the whole run.
_NULLS: dict[str, Callable[[int, float, int], Null]] = {
    "randomised response": lambda _n, _alpha, _share: RandomisedResponse(epsilon=1.0),
    "shared score, 1-GDP": lambda _n, alpha, share: SharedScore(
        mu=1.0, delta=alpha / 2 / share, share=share
    ),
    "all or nothing": lambda _n, alpha, share: AllOrNothing(
        claim=ApproxDP(epsilon=1.0, delta=0.8 * alpha / share), loud=3.0, share=share
    ),
    "exposed coins": lambda n, alpha, _share: Exposed(
        claim=ApproxDP(epsilon=1.0, delta=alpha / n)
    ),
    "silent": lambda _n, _alpha, _share: Silent(),
    "silent, clipped scores": lambda _n, _alpha, _share: Silent(clip=0.0),
    "silent, 9 in 10 included": lambda _n, _alpha, _share: Unbalanced(inclusion=0.9),
    "silent, stops when ahead": lambda _n, alpha, _share: Stopping(level=alpha),
}
# The rules that do not count pay for delta in all canaries, whatever they guess.
_FAINT: dict[str, Callable[[int, float], Null]] = {
    "shared score, 1-GDP": lambda n, alpha: SharedScore(mu=1.0, delta=alpha / n),
    "all or nothing": lambda n, alpha: AllOrNothing(
        claim=ApproxDP(epsilon=1.0, delta=alpha / n), loud=3.0, quiet=1.0
    ),
}
_ATTAINING = "attaining"
_PURE = ("randomised response", "silent", "silent, clipped scores")
_STOPS = "silent, stops when ahead"
_GENERAL = (
    "randomised response",
    "shared score, 1-GDP",
    "all or nothing",
    "exposed coins",
    _ATTAINING,
    "silent",
    "silent, clipped scores",
)
# Which nulls each peer's rule is shown: those that its description is about.
_SHOWN: dict[str, tuple[str, ...]] = {
    peers.FAIR_COINS.name: ("silent", "silent, 9 in 10 included"),
    peers.NO_DELTA.name: ("silent", _ATTAINING),
    peers.INDEPENDENT.name: ("shared score, 1-GDP",),
    peers.RealisedGuesses().name: (_STOPS,),
    peers.ScanFloor().name: ("silent",),
}
_SELECTIONS = ("silent", "silent, clipped scores")


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

    def parts(self) -> tuple[Rule, Null]:
        """Return the rule and the null."""
        rule, n, alpha = _RULES[self.rule], self.canaries, self.alpha
        if self.null == _ATTAINING:
            return rule, _attaining(rule, n, alpha)
        if isinstance(rule, CountRule):
            return rule, _NULLS[self.null](n, alpha, rule.share)
        if self.null in _FAINT:
            return rule, _FAINT[self.null](n, alpha)
        return rule, _NULLS[self.null](n, alpha, 1)

    def setting(self) -> dict[str, str | int | float]:
        """Return what names the case in a store."""
        return {
            "rule": self.rule,
            "null": self.null,
            "canaries": self.canaries,
            "alpha": self.alpha,
            "audits": AUDITS_PER_TRIAL,
        }


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What was found for one case.

    Attributes:
        rule: Name of the rule.
        ours: Whether the rule is one of dpaudit's.
        null: Name of the null.
        epsilon: The null's epsilon, truly.
        delta: The null's delta, truly.
        canaries: Canaries in each audit.
        alpha: The level that the rule promises.
        runs: Audits simulated; none if the rate is an exact sum.
        rate: How often the true claim was rejected.
        low: Lower limit of the rate; the rate itself if exact.
        high: Upper limit of the rate; the rate itself if exact.
    """

    rule: str
    ours: bool
    null: str
    epsilon: float
    delta: float
    canaries: int
    alpha: float
    runs: int | None
    rate: float
    low: float
    high: float

    @property
    def fails(self) -> bool:
        """Whether the rule is shown to be wrong more often than it promises."""
        return self.low > self.alpha * (1 + _ROUNDING)

    @property
    def how(self) -> str:
        """How the rate was found."""
        return "exact" if self.runs is None else f"{self.runs} runs"


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
        for rule in (*OURS, *peers.PEERS)
        for null in _nulls_for(rule)
        for n in canaries
        for alpha in alphas
    ]
    return [c for c in every if c.canaries <= simulate_up_to or _is_exact(c)]


def exact_rate(case: Case) -> float:
    """Return the exact chance that the rule rejects the null, where it is known.

    Example:
        >>> stops = "silent, stops when ahead"
        >>> paper = "the paper's AORA: guesses made in the binomial"
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
        case WeightedRule(), (
            RandomisedResponse()
            | SharedScore()
            | AllOrNothing()
            | Silent()
            | Unbalanced()
        ):
            score = rule.critical(n, null.claim, case.alpha)
            return rule.chance(null, canaries=n, score=score)
        case peers.RealisedGuesses(), Stopping():
            return float(stopping_law(n, null.level)[0].sum())
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
    found = rule.rejects(draws, null.claim, case.alpha, rng)
    return {"rejected": int(found.sum())}


def sweep(chosen: Sequence[Case], *, runs: int) -> Sweep:
    """Return the simulations that a table of these cases needs.

    Args:
        chosen: The cases; those with an exact rate need none.
        runs: Audits of each simulated case, a multiple of ``AUDITS_PER_TRIAL``.
    """
    if runs < AUDITS_PER_TRIAL or runs % AUDITS_PER_TRIAL:
        raise InvalidInputError(
            f"runs must be a positive multiple of {AUDITS_PER_TRIAL}, got runs={runs}"
        )
    return Sweep(
        name="calibration",
        revision=1,
        function=trial,
        settings=[case.setting() for case in chosen if not _is_exact(case)],
        trials=runs // AUDITS_PER_TRIAL,
    )


def table(chosen: Sequence[Case], store: Store, *, runs: int) -> list[Row]:
    """Return the rows of a table, from exact sums and from what a store holds."""
    planned = sweep(chosen, runs=runs)
    level = 2 * FALSE_ALARM / max(1, len(planned.settings))
    return [_row(case, store, planned, level) for case in chosen]


def _row(case: Case, store: Store, planned: Sweep, level: float) -> Row:
    rule, null = case.parts()
    runs: int | None
    if _is_exact(case):
        runs, rate = None, exact_rate(case)
        low, high = rate, rate
    else:
        found = list(store.outcomes(planned.cell(case.setting())))[: planned.trials]
        if len(found) < planned.trials:
            raise InvalidInputError(
                f"the store holds {len(found)} of {planned.trials} trials of {case}"
            )
        runs, hits = AUDITS_PER_TRIAL * len(found), sum(o["rejected"] for o in found)
        rate = hits / runs
        low, high = rate_limits(hits, runs, alpha=level)
    return Row(
        rule=rule.name,
        ours=rule in OURS,
        null=case.null,
        epsilon=null.claim.epsilon,
        delta=null.claim.delta,
        canaries=case.canaries,
        alpha=case.alpha,
        runs=runs,
        rate=rate,
        low=low,
        high=high,
    )


def _is_exact(case: Case) -> bool:
    match _RULES[case.rule]:
        case CountRule() | peers.RealisedGuesses() | peers.ScanFloor():
            return True
        case WeightedRule():
            return case.null not in ("exposed coins", _ATTAINING)
        case _:
            return False


def _nulls_for(rule: Rule) -> tuple[str, ...]:
    if rule not in OURS:
        return _SHOWN.get(rule.name, _SELECTIONS)
    match rule:
        case CountRule(bound=Pure()):
            return _PURE
        case CountRule(bound=Adaptive(), share=1) | RoundsRule() | BettingRule():
            return (*_GENERAL, _STOPS)
        case _:
            return _GENERAL


def _attaining(rule: Rule, canaries: int, alpha: float) -> Attaining:
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
    return Attaining(claim=claim, canaries=canaries, guesses=r, correct=v)
