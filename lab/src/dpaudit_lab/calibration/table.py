"""The table: how often each rule and each whole audit is wrong, row by row.

A row is something that judges (a rule, or an auditor with its guesser), a null, a
number of canaries and a level. Where the law of a rule's statistic is known its error
is an exact sum; otherwise it is simulated, and the rate stands between exact limits. A
row fails if the exact error exceeds the level, or if the lower limit does. The limits
are wide enough (Bonferroni over all simulated rates of the table, two in a row of whole
audits) that a table of valid audits has a failing row with a chance of at most
``FALSE_ALARM``. The pipeline is a table of its own, corrected for by itself.

The rules that other tools use stand in the same table, and in that of the pipeline what
dpaudit did once. They are expected to fail: that they do shows that the tables can.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil
from types import MappingProxyType
from typing import Any, Final, final

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.stats.binomial import rate_limits
from dpaudit_lab.calibration import pipeline, rates, whole
from dpaudit_lab.calibration.cases import Case, cases, is_exact
from dpaudit_lab.calibration.ours import OURS
from dpaudit_lab.calibration.pipeline import (
    PipelineCase,
    Way,
    pipeline_cases,
)
from dpaudit_lab.calibration.subjects import ALPHA, subject
from dpaudit_lab.calibration.whole import WholeCase, whole_cases
from dpaudit_lab.sweeps.store import Setting, Store
from dpaudit_lab.sweeps.sweep import Sweep

__all__ = [
    "ASKED",
    "FALSE_ALARM",
    "LOOKED_UP",
    "Part",
    "Plan",
    "Row",
    "plan",
    "sweeps",
    "table",
]

FALSE_ALARM: Final = 0.001
LOOKED_UP: Final = 100_000  # audits of a row whose verdicts are a table of counts
ASKED: Final = 10_000  # audits of a row whose verdicts are computed one by one

# Trials of a small table's pipeline; sums over numbers of ones are short.
_FEW_TRIALS: Final = MappingProxyType({Way.COINS: 1, Way.ONES: 20, Way.DRAWN: 2})

# An exact sum is rounded; a row that promises alpha and attains it must not fail.
_ROUNDING: Final = 1e-9


class Part(StrEnum):
    """A part of the table."""

    RULES = "rules"
    WHOLE = "whole"
    PIPELINE = "pipeline"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What was found for one case.

    Attributes:
        part: Of the table.
        rule: What judges: a rule, or an auditor and its guesser.
        ours: Whether it is dpaudit's.
        null: Name of the null.
        epsilon: The null's epsilon, truly.
        delta: The null's delta, truly.
        canaries: Canaries in each audit.
        alpha: The level that is promised.
        runs: Audits simulated; none if the rate is an exact sum.
        rate: How often the true claim was rejected; of a whole audit, or how often its
            bound was above the truth, whichever is more.
        low: Lower limit of the rate; the rate itself if exact.
        high: Upper limit of the rate; the rate itself if exact.
        designs: How many designs were tried; the rate is that of the worst.
        refused: How often the audit was refused, on average over designs.
    """

    part: Part
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
    designs: int = 1
    refused: float = 0.0

    @property
    def fails(self) -> bool:
        """Whether it is shown to be wrong more often than it promises."""
        return self.low > self.alpha * (1 + _ROUNDING)

    @property
    def how(self) -> str:
        """How the rate was found."""
        if self.runs is not None:
            return f"{self.runs} runs"
        return "exact" if self.designs == 1 else f"exact, {self.designs} designs"

    @property
    def verdict(self) -> str:
        """What was found: who refuses every audit was not tested."""
        if self.fails:
            return "FAILS"
        if self.refused >= 1 - _ROUNDING:
            return "refused"
        often = f", {100 * self.refused:.2g} % refused" if self.refused else ""
        return f"holds{often}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a table shows, and from how many audits.

    Attributes:
        rules: Cases of rules.
        whole: Cases of whole audits.
        pipeline: Cases of the pipeline.
        audits: Audits of each simulated row, rounded up to whole trials; if None, 10^5
            where verdicts are looked up, 10^4 elsewhere, and in the pipeline what each
            case says.
    """

    rules: tuple[Case, ...]
    whole: tuple[WholeCase, ...]
    pipeline: tuple[PipelineCase, ...] = ()
    audits: int | None = None

    def __post_init__(self) -> None:
        if self.audits is not None:
            _validate.whole_number("audits", self.audits, least=1)

    @property
    def simulated(self) -> list[Case]:
        """The cases of rules that are simulated."""
        return [case for case in self.rules if not is_exact(case)]

    @property
    def rates(self) -> int:
        """How many rates are simulated: the number that is corrected for."""
        return len(self.simulated) + 2 * len(self.whole)

    @property
    def drawn(self) -> int:
        """How many rates of the pipeline are simulated, corrected for by themselves."""
        return sum(case.way is Way.DRAWN for case in self.pipeline)

    def pipeline_trials(self, case: PipelineCase) -> int:
        """Return how many trials a case of the pipeline needs."""
        if case.way is not Way.DRAWN or self.audits is None:
            return case.trials
        return ceil(self.audits / pipeline.AUDITS_PER_TRIAL)

    def trials(self, per_trial: int, *, default: int) -> int:
        """Return how many trials of so many audits a row needs."""
        return ceil((default if self.audits is None else self.audits) / per_trial)


def plan(
    *, small: bool = False, only: Part | None = None, audits: int | None = None
) -> Plan:
    """Return the plan of a table.

    Args:
        small: Rules with 100 canaries and alpha 0.05 only, of the whole audits only
            those of DP-SGD, and of the pipeline equal scores under few designs.
        only: One part of the table; all if None.
        audits: Audits of each simulated row.

    Example:
        >>> plan(small=True, only=Part.WHOLE).whole[0].mechanism
        'DP-SGD, heard 12 in 1000'
    """
    rules = cases(canaries=(100,), alphas=(ALPHA,)) if small else cases()
    wholes = [
        case
        for case in whole_cases()
        if not small or case.mechanism.startswith("DP-SGD")
    ]
    return Plan(
        rules=tuple(rules) if only in (None, Part.RULES) else (),
        whole=tuple(wholes) if only in (None, Part.WHOLE) else (),
        pipeline=_pipeline(small=small) if only in (None, Part.PIPELINE) else (),
        audits=audits,
    )


def _pipeline(*, small: bool) -> tuple[PipelineCase, ...]:
    if not small:
        return tuple(pipeline_cases())
    return tuple(
        replace(case, trials=min(case.trials, _FEW_TRIALS[case.way]))
        for case in pipeline_cases()
        if case.small
    )


def sweeps(planned: Plan) -> list[Sweep]:
    """Return the simulations that a table needs."""
    every = (
        _rules_sweep(planned, rates.MANY),
        _rules_sweep(planned, rates.FEW),
        _whole_sweep(planned),
        *_pipeline_sweeps(planned),
    )
    return [sweep for sweep in every if sweep.settings]


def table(planned: Plan, store: Store) -> list[Row]:
    """Return the rows of a table, from exact sums and from what a store holds."""
    level = 2 * FALSE_ALARM / max(1, planned.rates)  # one of two sides fails a row
    by_size = {size: _rules_sweep(planned, size) for size in (rates.MANY, rates.FEW)}
    wholes = _whole_sweep(planned)
    return [
        *(
            _rule_row(case, store, by_size[rates.audits_per_trial(case)], level)
            for case in planned.rules
        ),
        *(_whole_row(case, store, wholes, level) for case in planned.whole),
        *(_pipeline_row(case, store, planned) for case in planned.pipeline),
    ]


def _rules_sweep(planned: Plan, per_trial: int) -> Sweep:
    many = per_trial == rates.MANY
    return Sweep(
        name="calibration, looked up" if many else "calibration, asked",
        revision=3,  # unequal coins pay for guesses that decide
        function=rates.trial,
        settings=[
            rates.setting(case)
            for case in planned.simulated
            if rates.audits_per_trial(case) == per_trial
        ],
        trials=planned.trials(per_trial, default=LOOKED_UP if many else ASKED),
    )


def _whole_sweep(planned: Plan) -> Sweep:
    return Sweep(
        name="whole audits",
        revision=4,  # claims are tested as the bound is searched
        function=whole.trial,
        settings=[case.setting() for case in planned.whole],
        trials=planned.trials(whole.AUDITS_PER_TRIAL, default=ASKED),
    )


def _pipeline_sweeps(planned: Plan) -> list[Sweep]:
    """Return a sweep for each number of trials that cases need."""
    by_trials: dict[int, list[PipelineCase]] = {}
    for case in planned.pipeline:
        by_trials.setdefault(planned.pipeline_trials(case), []).append(case)
    return [_pipeline_sweep(cases, trials) for trials, cases in by_trials.items()]


def _pipeline_sweep(cases: list[PipelineCase], trials: int) -> Sweep:
    return Sweep(
        name="pipeline",
        revision=2,  # ties without lots go against the auditor
        function=pipeline.trial,
        settings=[case.setting() for case in cases],
        trials=trials,
    )


def _rule_row(case: Case, store: Store, sweep: Sweep, level: float) -> Row:
    rule, null = case.parts()
    if is_exact(case):
        rate = rates.exact_rate(case)
        measured = _Measured(runs=None, rate=rate, low=rate, high=rate)
    else:
        measured = _measured(store, sweep, rates.setting(case), ("rejected",), level)
    return Row(
        part=Part.RULES,
        rule=rule.name,
        ours=rule in OURS,
        null=case.null,
        epsilon=null.claim.epsilon,
        delta=null.claim.delta,
        canaries=case.canaries,
        alpha=case.alpha,
        runs=measured.runs,
        rate=measured.rate,
        low=measured.low,
        high=measured.high,
    )


def _whole_row(case: WholeCase, store: Store, sweep: Sweep, level: float) -> Row:
    audited = subject(case.mechanism)
    found = _measured(store, sweep, case.setting(), ("refuted", "above"), level)
    return Row(
        part=Part.WHOLE,
        rule=f"{case.auditor}: {case.guesser}",
        ours=True,
        null=case.mechanism,
        epsilon=audited.claim.epsilon,
        delta=audited.claim.delta,
        canaries=audited.canaries,
        alpha=ALPHA,
        runs=found.runs,
        rate=found.rate,
        low=found.low,
        high=found.high,
    )


def _pipeline_row(case: PipelineCase, store: Store, planned: Plan) -> Row:
    sweep = _pipeline_sweep([case], planned.pipeline_trials(case))
    found = _outcomes(store, sweep, case.setting())
    refused = sum(float(outcome["refused"]) for outcome in found) / len(found)
    if case.way is Way.DRAWN:
        level = 2 * FALSE_ALARM / planned.drawn
        measured = _measured(store, sweep, case.setting(), ("refuted",), level)
        refused /= pipeline.AUDITS_PER_TRIAL
    else:
        # A sum is no estimate, so that the largest of many is no larger than it is.
        rate = max(float(outcome["refuted"]) for outcome in found)
        measured = _Measured(runs=None, rate=rate, low=rate, high=rate)
    return Row(
        part=Part.PIPELINE,
        rule=f"{case.road}: {case.rules}",
        ours=case.ours,
        null=case.null + (f", seed {case.seed}" if case.seed else ""),
        epsilon=case.claim.epsilon,
        delta=case.claim.delta,
        canaries=case.canaries,
        alpha=case.alpha,
        runs=measured.runs,
        rate=measured.rate,
        low=measured.low,
        high=measured.high,
        designs=len(found) if measured.runs is None else 1,
        refused=refused,
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """A rate with its limits."""

    runs: int | None
    rate: float
    low: float
    high: float


def _measured(
    store: Store, sweep: Sweep, setting: Setting, ways: tuple[str, ...], level: float
) -> _Measured:
    """Return the larger of the rates of being wrong in some ways.

    All that the store holds counts, also beyond what was asked for: audits accumulate.
    """
    found = _outcomes(store, sweep, setting)
    runs = int(setting["audits"] or 0) * len(found)
    hits = max(sum(int(outcome[way]) for outcome in found) for way in ways)
    low, high = rate_limits(hits, runs, alpha=level)
    return _Measured(runs=runs, rate=hits / runs, low=low, high=high)


def _outcomes(store: Store, sweep: Sweep, setting: Setting) -> list[dict[str, Any]]:
    """Return all that the store holds of a setting, if that is enough."""
    cell = sweep.cell(setting)
    found = list(store.outcomes(cell))
    if len(found) < sweep.trials:
        failed = next(store.failures(cell), None)
        why = (
            "" if failed is None else f"; trial {failed[0]} failed: {_last(failed[1])}"
        )
        raise InvalidInputError(
            f"the store holds {len(found)} of {sweep.trials} trials of {setting}{why}"
        )
    return found


def _last(traceback: str) -> str:
    """Return the last line of a traceback, which names the error."""
    return traceback.rstrip().rpartition("\n")[2]
