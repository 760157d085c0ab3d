"""The combined result of several independent runs.

Each run has its own p-value for every claim, whatever its rules were. Where the runs
are independent, Fisher's product combines these into one p-value of the claim. Bets are
simpler still: those of one run follow those of the run before, and the wealth is
multiplied.

Counts may be pooled instead, as if they came from one run. Neither is always sharper,
and the better of the two is not a valid test, so the designs must state before the
first run that counts are pooled, and over how many runs
(``setting=Setting(pooled_runs=3)``). This cannot be decided afterwards.

The combined lower bound tests every epsilon in this way, and a claim is refuted if and
only if that bound is at least its epsilon. Where all runs made their guesses at once
and counted them, the combined p-value increases with epsilon, and the bound is the
largest epsilon that is rejected. Elsewhere it is the last point of a fixed grid before
the first that is not rejected. Counts of adaptive guesses and weights pay more for
delta at a small epsilon than at a larger one; there a run's p-value at an epsilon is
the smallest of its p-values at that epsilon and at a few fixed larger ones. This is a
valid p-value: all of them bound the probability of one event, and a mechanism that is
private at a small epsilon is private at a larger one.

All runs that were made must be combined, and their number must have been fixed before
the first: continuing until the product is small enough rejects true claims more often
than alpha. Leaving out a run that showed nothing is a choice that depends on the coins,
and no bound holds after it. So one invalid run makes the combination invalid: it is
spent, and may be neither counted nor left out. Each run may appear only once: the
results of one run, under whatever designs, share the same coins. A run is identified by
its key, of which the commitment holds a hash. Two runs with one key are not independent
either, and are refused for the same reason.

Reference: docs/explanation/why-the-bound-is-lower.md#several-runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from math import log
from typing import Any, ClassVar, final

from dpaudit import _validate
from dpaudit._codec import encode
from dpaudit.bounds.bets import BettingBound
from dpaudit.bounds.bound import (
    AnyBound,
    ClaimTest,
    GameBound,
    Grid,
    LowerBound,
    probability,
)
from dpaudit.bounds.exact import ExactBound
from dpaudit.bounds.independent_runs import (
    IndependentRunsBound,
    PooledRunsBound,
    bets_in_a_row,
)
from dpaudit.bounds.ranked import RankedBound
from dpaudit.bounds.readings import Bets, Counts, Reading
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.findings import Finding, Status
from dpaudit.game.key_use import same_output
from dpaudit.game.result import Result, bound_of, check_reading
from dpaudit.game.text.results import (
    bound_sentence,
    confidence_phrase,
    opening,
    reason,
    threat,
)
from dpaudit.game.verdict import Decision, Verdict, decide
from dpaudit.privacy.guarantees import Guarantee
from dpaudit.stats.binomial import log_odds_limit
from dpaudit.stats.combine import fisher

__all__ = ["CombinedResult", "combine_runs"]

_LARGER_EPSILONS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0)  # any fixed ones would be valid
_LEAST_P_VALUE = 5e-324  # a p-value below any float is at most this


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CombinedResult:
    """The combined result of several independent runs; printing it states the verdict.

    Attributes:
        runs: The result of each run.
        bound: Lower bound on epsilon from all runs.
        claim_test: The test of the claim by all runs.
        p_values: The p-value of the claim from each run alone.
        could_refute: Whether the claim would be refuted if all guesses were correct.
    """

    runs: tuple[Result, ...]
    bound: LowerBound
    claim_test: ClaimTest
    p_values: tuple[float, ...]
    could_refute: bool

    @property
    def verdict(self) -> Verdict:
        """How the audit ended."""
        return self.decision.verdict

    @property
    def reason(self) -> str:
        """Why it is invalid or inconclusive, or the fault found; "" otherwise."""
        return reason(self.decision)

    @property
    def sanity_checks(self) -> tuple[Finding, ...]:
        """The sanity checks of each run, with their status for the combination.

        One invalid run makes the combination invalid. A run without an effect does not
        make it inconclusive as long as another run showed one.
        """
        unseen = self._unseen()
        return tuple(
            replace(
                check,
                numbers={**check.numbers, "run": number},
                status=check.status
                if unseen or check.status is not Status.INCONCLUSIVE
                else Status.PASSED,
            )
            for number, run in enumerate(self.runs, 1)
            for check in run.sanity_checks
        )

    def _unseen(self) -> bool:
        """Return whether every run is inconclusive by itself."""
        return all(
            run.uncovered
            or any(e.status is Status.INCONCLUSIVE for e in run.sanity_checks)
            for run in self.runs
        )

    @property
    def decision(self) -> Decision:
        """How the audit ended, and what decided it; makes no further test."""
        unseen = self._unseen()
        uncovered = [
            replace(each, run=number)
            for number, run in enumerate(self.runs, 1)
            for each in run.uncovered
            if unseen
        ]
        faults = [
            replace(fault, numbers={**fault.numbers, "run": number})
            for number, run in enumerate(self.runs, 1)
            for fault in run.faults
        ]
        return decide(
            refuted=self.claim_test.refuted,
            could=self.could_refute,
            checks=(*uncovered, *self.sanity_checks),
            faults=faults,
        )

    @property
    def pooled(self) -> bool:
        """Whether counts were pooled, as the designs state."""
        return self.bound.method == PooledRunsBound.method

    @property
    def nameless(self) -> int:
        """How many runs have no hash of their key, so that repeats go unnoticed."""
        return sum(run.commitment is None for run in self.runs)

    def __str__(self) -> str:
        first = opening(self.verdict, self.reason)
        return (
            first
            if self.verdict is Verdict.INVALID_RUN
            else f"{first} {self.details()}"
        )

    def details(self) -> str:
        """Return the bound beside the claim, and its confidence."""
        observers = sorted({threat(run) for run in self.runs})
        added = ", their counts added up as their designs state" if self.pooled else ""
        test, found = self.claim_test, self.bound
        return (
            f"{bound_sentence(test, found)} By {len(self.runs)} independent runs "
            f"together{added}, at delta = {found.delta:g} against an adversary who "
            f"{' or '.join(observers)} (p {test.p_text}); the bound holds with "
            f"{confidence_phrase(found)}, if the number of runs was fixed before the "
            "first of them."
        )


def combine_runs(
    results: Sequence[Result],
    *,
    alpha: float | None = None,
    claim: Guarantee | None = None,
) -> CombinedResult:
    """Return the combined result of independent runs that audit one claim.

    Args:
        results: The result of every run that was made, whatever it shows. Their number
            must have been fixed before the first.
        alpha: Significance level; by default that of the runs' designs.
        claim: The claim to test; by default that of the runs' designs.

    Raises:
        InvalidRunError: Two results are of one run, or they cannot be combined.

    Example:
        >>> from dpaudit import ApproxDP, Design, Key, OneRun
        >>> from dpaudit.bounds import Counts
        >>> from dpaudit.game import Commitment, judge
        >>> claim = ApproxDP(epsilon=1.5, delta=1e-5)
        >>> design = Design(canaries=100, rules=OneRun(guesses=100), claim=claim)
        >>> runs = [
        ...     judge(
        ...         Counts(canaries=100, guesses=100, correct=88),
        ...         design=design,
        ...         commitment=Commitment.to(Key(bytes([run] * 32)), design),
        ...     )
        ...     for run in range(3)
        ... ]
        >>> runs[0].claim_test.refuted, combine_runs(runs).claim_test.refuted
        (False, True)
    """
    if isinstance(results, Result):
        raise InvalidInputError("there must be two runs or more, got one result")
    runs = tuple(results)
    for number, run in enumerate(runs):
        _validate.kind(f"results[{number}]", run, Result)
    for run in runs:
        check_reading(run.reading, run.design)
    if len(runs) < 2:
        raise InvalidInputError(f"there must be two runs or more, got {len(runs)}")
    _check_distinct(runs)
    _check_pooled(runs)
    claim = _one_claim(runs) if claim is None else claim
    delta = _one(
        {run.design.bound_delta for run in runs},
        "the runs state their bounds at delta",
        "only at one delta can they be combined",
    )
    if alpha is None:
        alpha = _one(
            {run.design.alpha for run in runs},
            "the runs were designed for alpha",
            "specify which holds for all of them together, alpha=...",
        )
    _validate.error_level("alpha", alpha)
    test = _test(runs, claim, alpha)
    perfect = [replace(run, reading=run.reading.perfect()) for run in runs]
    return CombinedResult(
        runs=runs,
        bound=_lower(runs, delta=delta, alpha=alpha),
        claim_test=test,
        p_values=tuple(_p_value(run, claim) for run in runs),
        could_refute=test.refuted or _test(perfect, claim, alpha).refuted,
    )


def _check_distinct(runs: Sequence[Result]) -> None:
    for (i, one), (j, other) in combinations(enumerate(runs, 1), 2):
        same = (
            one.commitment is not None
            and other.commitment is not None
            and one.commitment.is_of_run(other.commitment)
        )
        scored = one.scores is not None and one.scores == other.scores
        # Counts of two runs may be equal by chance; ordered guesses may not.
        ordered = one == other and not one.reading.tally
        named = f" (commitment {one.commitment.sha256})" if one.commitment else ""
        if not (same or scored or ordered):
            continue
        what, why = (
            "of one run",
            "a run counts once, under whatever designs it was judged",
        )
        if same and not same_output(one, other):
            what += ", or of two by one key"
            why += (
                ", and two outputs by one key, whose coins are the same, do not count"
            )
        raise InvalidRunError(f"results {i} and {j} are {what}{named}; {why}")


def _check_pooled(runs: Sequence[Result]) -> None:
    """Refuse runs other than exactly those whose counts were to be pooled."""
    planned = {run.design.setting.pooled_runs for run in runs}
    if planned == {None}:
        return
    if planned != {len(runs)}:
        shown = ", ".join("none" if n is None else str(n) for n in planned)
        raise InvalidRunError(
            f"the designs state of how many runs counts are added up, pooled_runs: "
            f"{shown}; these are {len(runs)} runs. All of them must be there, and no "
            "other, as it was fixed before the first"
        )
    counted = all(run.reading.counted is not None for run in runs)
    if not counted or len({bound_of(run) for run in runs}) > 1:
        raise InvalidRunError(
            "the designs state that counts are added up (pooled_runs), and these runs "
            "were not all counted by one kind of rules"
        )


def _pooled(runs: Sequence[Result]) -> tuple[PooledRunsBound, list[Counts]] | None:
    """Return the bound on pooled counts, and the counts; None if not pooled."""
    if runs[0].design.setting.pooled_runs is None:
        return None
    counts = [c for run in runs if (c := run.reading.counted) is not None]
    return PooledRunsBound(by=bound_of(runs[0])), counts


def _one_claim(runs: Sequence[Result]) -> Guarantee:
    claims = [run.design.claim for run in runs]
    for number, other in enumerate(claims[1:], 2):
        if encode(other) != encode(claims[0]):
            raise InvalidRunError(
                f"result 1 is about the claim {claims[0]} and result {number} about "
                f"{other}; runs of one claim can be combined"
            )
    return claims[0]


def _one(values: set[float], of_what: str, advice: str) -> float:
    """Return the value that all runs share."""
    if len(values) > 1:
        shown = ", ".join(f"{each:g}" for each in sorted(values))
        raise InvalidRunError(f"{of_what} = {shown}; {advice}")
    return values.pop()


def _bound(run: Result) -> AnyBound:
    """Return the bound by which a run was judged, with its level."""
    own = bound_of(run)
    if isinstance(own, RankedBound):
        return RankedBound(level=run.design.alpha)
    return own


def _p_value(run: Result, claim: Guarantee) -> float:
    bound, alpha = run.design.rules.bound(), run.design.alpha
    return bound.judge_claim(run.reading, claim, alpha=alpha).p_value


def _test(runs: Sequence[Result], claim: Guarantee, alpha: float) -> ClaimTest:
    """Return the test of a claim by all runs, consistent with their bound."""
    if len(claim.points()[0]) > 1 and _pooled(runs) is None and _bets(runs) is None:
        p_values = (_p_value(run, claim) for run in runs)
        p_value = probability(fisher([log(max(p, _LEAST_P_VALUE)) for p in p_values]))
    else:
        bound, reading = _judged_by(runs, alpha)
        p_value = bound.claim_p_value(reading, claim, alpha=alpha)
    return ClaimTest(claim=claim, p_value=p_value, alpha=alpha)


def _bets(runs: Sequence[Result]) -> Bets | None:
    """Return the bets of all runs as those of one; None if not all runs have bets."""
    bets = [run.reading for run in runs if isinstance(run.reading, Bets)]
    return bets_in_a_row(bets) if len(bets) == len(runs) else None


def _lower(runs: Sequence[Result], *, delta: float, alpha: float) -> LowerBound:
    bound, reading = _judged_by(runs, alpha)
    lower = bound.epsilon_lower(reading, delta=delta, alpha=alpha)
    if _pooled(runs) is None:
        return lower
    return replace(
        lower, method=PooledRunsBound.method, reference=PooledRunsBound.reference
    )


def _judged_by(runs: Sequence[Result], alpha: float) -> tuple[AnyBound, Any]:
    """Return the bound that judges the runs together, and its reading of them."""
    readings, bounds = [run.reading for run in runs], [_bound(run) for run in runs]
    grid, pooled, bets = _grid(runs, alpha), _pooled(runs), _bets(runs)
    if pooled is not None:
        bound, counts = pooled
        return bound.by, bound.added(counts)
    if all(isinstance(bound, ExactBound) for bound in bounds):
        counts = [each.counted for each in readings if each.counted is not None]
        return IndependentRunsBound(), counts
    if bets is not None:
        return BettingBound(grid=grid), bets
    return _Fisher(grid=grid), list(zip(bounds, readings, strict=True))


def _grid(runs: Sequence[Result], alpha: float) -> Grid:
    """Return the epsilons to test: from all designs' minimum up to all correct."""
    starts = [run.design.rules.min_epsilon for run in runs]
    made = sum(run.reading.correct_and_guesses()[1] for run in runs)
    # Committed randomness may be lucky; no game shows more than all guesses correct.
    stop = log_odds_limit(made, made, log_alpha=log(alpha))
    return Grid(start=max(starts), stop=stop)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Fisher(GameBound[Sequence[tuple[AnyBound, Reading]]]):
    """The combined p-value of runs, each with its own bound."""

    grid: Grid
    method: ClassVar[str] = IndependentRunsBound.method
    reference: ClassVar[str] = IndependentRunsBound.reference

    def log_p_value(
        self,
        runs: Sequence[tuple[AnyBound, Reading]],
        *,
        epsilon: float,
        delta: float,
    ) -> float:
        """Return the log of the combined p-value of a claim."""
        return fisher(
            [_log_p(bound, reading, epsilon, delta) for bound, reading in runs]
        )

    def search(
        self,
        runs: Sequence[tuple[AnyBound, Reading]],  # noqa: ARG002 (whatever they are)
        *,
        delta: float,  # noqa: ARG002
        alpha: float,  # noqa: ARG002
    ) -> Grid:
        """Return the grid for all designs."""
        return self.grid


def _log_p(bound: AnyBound, reading: Reading, epsilon: float, delta: float) -> float:
    """Return the smallest log p-value of a run at an epsilon and at larger ones."""
    if reading.tally and bound.one_event(reading):
        larger = (each for each in _LARGER_EPSILONS if each > epsilon)
        epsilons = (epsilon, *larger)
        return min(_cached_log_p(bound, reading, e, delta) for e in epsilons)
    return bound.log_p_value(reading, epsilon=epsilon, delta=delta)


@lru_cache(maxsize=4096)  # every point of a grid uses the same few larger epsilons
def _cached_log_p(
    bound: AnyBound, reading: Reading, epsilon: float, delta: float
) -> float:
    return bound.log_p_value(reading, epsilon=epsilon, delta=delta)
