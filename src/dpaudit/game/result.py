"""The result of an audit: verdict, lower bound, and what they are based on."""

from dataclasses import dataclass, field
from functools import lru_cache
from math import log
from typing import final

import numpy as np

from dpaudit import _validate
from dpaudit._codec import Document
from dpaudit.bounds.bound import (
    AnyBound,
    ClaimTest,
    LowerBound,
    ParameterBound,
    probability,
)
from dpaudit.bounds.methods import KNOWN
from dpaudit.bounds.power import detectable_accuracy
from dpaudit.bounds.readings import Reading
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.configuration import DetectableFault, RunConfiguration
from dpaudit.game.coverage import Coverage
from dpaudit.game.design import Commitment, Design
from dpaudit.game.findings import Finding, inconclusive, passed
from dpaudit.game.metrics import Metric, metrics_of
from dpaudit.game.rules import AdaptiveCount, JudgingBound, Rules
from dpaudit.game.score_summary import ScoreSummary
from dpaudit.game.text import notebook
from dpaudit.game.text import results as text
from dpaudit.game.text.screen import screen_of
from dpaudit.game.transcript import Transcript
from dpaudit.game.verdict import (
    ALPHA_OF_EFFECT,
    POWER,
    Decision,
    SignalRecovery,
    Uncovered,
    Verdict,
    better_than_chance,
    decide,
)
from dpaudit.privacy.guarantees import ApproxDP, Guarantee, PureDP
from dpaudit.stats.binomial import log_odds_limit

__all__ = [
    "MIN_EVIDENCE_SHARE",
    "Result",
    "TrainingRecord",
    "bound_of",
    "check_method",
    "check_reading",
    "conclude",
    "could_refute",
    "effect_seen",
    "guesses_made",
    "judge",
]


_NOT_RECORDED = Coverage.of((), otherwise="stage.not_recorded")
MIN_EVIDENCE_SHARE = 0.9  # of the evidence; with less no forecast holds


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRecord:
    """What the audit of a training run records in addition to guesses and bound.

    The claim tested is the accountant's, and an accountant gives a whole curve of
    (epsilon, delta). All its points bound the same count of correct guesses, so the
    whole curve is tested at once, at no cost and without assumptions about the
    mechanism. The Gaussian-DP parameter is reported beside it (model-based): it bounds
    the mechanism's only if the mechanism is of that family.

    Attributes:
        accountant: The test of the accountant's whole curve; None if no curve was
            given, or if the rules test a claim at one point only.
        family: The Gaussian-DP parameter (model-based); None unless guesses were
            counted.
        transcript: Every guess, for the record.
        steps: Number of steps observed.
        evidence_share: The share of the evidence that real gradients left, on average.
        signal: How much of the canaries' signal the noisy sums show; None if it was
            not measured, for example as no canary participated in any step.
        coverage: Every pipeline stage, and how it was checked.
        remarks: Observations that need no statistics.
        reported: The epsilon that the framework's own accountant reports at the
            design's delta; None if it was not queried.
        configuration: How the run was configured, step by step; None if the record
            does not contain it.
        detectable: The smallest fault of the noise that would have been detected, for
            the configuration as run and the claim that is tested; None if the claim
            was refuted.
    """

    accountant: ClaimTest | None
    family: ParameterBound | None
    transcript: Transcript
    steps: int
    evidence_share: float
    signal: SignalRecovery | None = None
    remarks: tuple[Finding, ...] = ()
    coverage: Coverage = _NOT_RECORDED
    reported: float | None = None
    configuration: RunConfiguration | None = None
    detectable: DetectableFault | None = None

    def __post_init__(self) -> None:
        _validate.whole_number("steps", self.steps)
        if self.reported is not None:
            _validate.nonnegative("reported", self.reported)

    @property
    def weights_sha256(self) -> str:
        """SHA-256 of the run's final weights; "" if it is not known.

        ``dpaudit.weights_digest`` computes it from weights.
        """
        checks = self.coverage.checks
        digests = (each.numbers.get("sha256") for c in checks for each in c.findings)
        return next((each for each in digests if isinstance(each, str)), "")

    @property
    def hidden(self) -> bool:
        """Whether real gradients masked so much signal that no forecast holds."""
        return self.evidence_share < MIN_EVIDENCE_SHARE


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Result(Document):
    """The result of one audit; printing it gives the first screen.

    Attributes:
        design: Everything that was fixed before the run.
        commitment: The hash that was published before the run; None if the coins were
            not derived from a key, so that nothing shows that they came first.
        reading: The guesses, as the bound reads them.
        bound: Lower bound on epsilon at the design's delta.
        ceiling: The bound if every guess made had been correct; for rounds and bets,
            which would then have gone differently, a value that no audit with as many
            guesses exceeds.
        design_test: Test of the claim that the design names.
        detectable_accuracy: The accuracy of independent guesses that would have refuted
            the claim with probability 0.9; None if not even all correct guesses would
            have, or if the rules do not count guesses.
        not_exercised: Parts of the mechanism that this audit did not exercise; for a
            training run the coverage lists them.
        sanity_checks: Whether the audit could have seen an effect.
        scores: Summary of the guesser's scores, if they were kept; for figures.
        training: The additional record of a training run; None for other audits.
    """

    design: Design
    commitment: Commitment | None
    reading: Reading
    bound: LowerBound
    ceiling: float
    design_test: ClaimTest
    detectable_accuracy: float | None
    not_exercised: tuple[str, ...]
    sanity_checks: tuple[Finding, ...] = ()
    scores: ScoreSummary | None = None
    training: TrainingRecord | None = None
    _decided: list[Decision] = field(
        init=False, repr=False, compare=False, default_factory=list
    )

    form = "dpaudit.result.1"
    derived = ("verdict",)

    def __post_init__(self) -> None:
        for name, value in (
            ("epsilon_lower", self.bound.epsilon_lower),
            ("ceiling", self.ceiling),
        ):
            if not value >= 0:
                raise InvalidInputError(f"{name} must be >= 0, got {name}={value!r}")
        if self.detectable_accuracy is not None:
            _validate.probability("detectable_accuracy", self.detectable_accuracy)

    @property
    def claim_test(self) -> ClaimTest:
        """The test that decides: of the accountant's curve, or else of the design's."""
        accountant = self.training and self.training.accountant
        return accountant or self.design_test

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted; wrongly so with probability at most alpha."""
        return self.verdict is Verdict.CLAIM_REFUTED

    @property
    def p_value(self) -> float:
        """Largest probability of evidence this strong if the claim is true."""
        return self.claim_test.p_value

    @property
    def transcript(self) -> Transcript | None:
        """Every guess, if the result keeps them."""
        return self.training and self.training.transcript

    @property
    def verdict(self) -> Verdict:
        """How the audit ended."""
        return self.decision.verdict

    @property
    def decision(self) -> Decision:
        """How the audit ended, and what decided it; computed once, on first access."""
        if not self._decided:
            self._decided.append(self._decide())
        return self._decided[0]

    @property
    def reason(self) -> str:
        """Why the run is invalid or inconclusive, or which fault; "" otherwise."""
        return text.reason(self.decision, self.design.setting.unit)

    @property
    def could_refute(self) -> bool:
        """Whether the claim would be refuted if every guess made had been correct.

        The run as played is judged by the same test as the claim: if even correct
        guesses do not refute the claim, a run that does not refute it has no power.
        """
        test = self.claim_test
        return test.refuted or could_refute(
            test.claim, self.reading, alpha=test.alpha, bound=self.design.rules.bound()
        )

    @property
    def refuted_at(self) -> tuple[ApproxDP, LowerBound] | None:
        """A point at which the claim is refuted, and the bound at its delta.

        None if the claim is not refuted, or if no single point of a curve is.
        """
        test = self.claim_test
        if not test.refuted:
            return None
        by = self.design.rules.bound()
        return by.refuted_at(self.reading, test.claim, alpha=test.alpha)

    @property
    def is_foreign_bound(self) -> bool:
        """Whether the bound's method is not one of this package."""
        return self.bound.method not in {*KNOWN, self.design.rules.bound().method}

    @property
    def faults(self) -> tuple[Finding, ...]:
        """Faults found, independent of the claim."""
        return self.training.coverage.faults if self.training else ()

    @property
    def uncovered(self) -> tuple[Uncovered, ...]:
        """Required stages that were not checked; () if all were."""
        missing = self.training.coverage.missing() if self.training else ()
        return (Uncovered(checks=missing),) if missing else ()

    def _decide(self) -> Decision:
        return decide(
            refuted=self.claim_test.refuted,
            could=self.could_refute,
            checks=(*self.uncovered, *self.sanity_checks),
            faults=self.faults,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Result) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __str__(self) -> str:
        return str(screen_of(self))

    def details(self) -> str:
        """Return the first screen, followed by everything that was measured."""
        return "\n".join([str(self), "", *text.fact_lines(self)])

    def _repr_html_(self) -> str:
        return notebook.html(self)

    def metrics(self) -> dict[str, Metric]:
        """Return numbers and the text needed to read them as a flat dict, for loggers.

        Names are stable: the meaning of a name never changes.

        Example:
            >>> from dpaudit import OneRun
            >>> from dpaudit.bounds import Counts
            >>> rules = OneRun(guesses=100)
            >>> design = Design(canaries=100, rules=rules, claim=PureDP(epsilon=0.5))
            >>> counts = Counts(canaries=100, guesses=100, correct=75)
            >>> found = judge(counts, design=design, commitment=None).metrics()
            >>> round(found["dpaudit/epsilon_lower"], 6), found["dpaudit/delta"]
            (0.702214, 0.0)
            >>> found["dpaudit/verdict"], found["dpaudit/tier"]
            ('claim refuted', 'A')
        """
        return metrics_of(self)


def conclude(
    transcript: Transcript,
    *,
    commitment: Commitment,
    not_exercised: tuple[str, ...] = (),
    scores: ScoreSummary | None = None,
) -> Result:
    """Return the result of a transcript, judged by the bound of its rules.

    If fewer guesses were made than were committed to, a sanity check reports it.

    Args:
        transcript: The record that the referee made.
        commitment: The commitment with which the game was opened.
        not_exercised: Parts of the mechanism that the audit did not exercise.
        scores: Summary of the guesser's scores.
    """
    return judge(
        transcript.reading(),
        design=transcript.design,
        commitment=commitment,
        not_exercised=not_exercised,
        sanity_checks=guesses_made(transcript),
        scores=scores,
    )


def judge(
    reading: Reading,
    *,
    design: Design,
    commitment: Commitment | None,
    bound: JudgingBound | None = None,
    not_exercised: tuple[str, ...] = (),
    sanity_checks: tuple[Finding, ...] = (),
    scores: ScoreSummary | None = None,
) -> Result:
    """Return the result of the guesses of a game played by the design's rules.

    The bound is wrong with probability at most alpha, and so is a refutation. Under
    rules that count (``OneRun``, ``WeightClasses`` and their adaptive forms) both read
    one tail of one transcript, so that the probability that either is wrong is at most
    alpha too.

    Args:
        reading: The guesses, as the bound reads them.
        design: Everything that was fixed before the run.
        commitment: The commitment with which the game was opened.
        bound: A bound other than that of the rules, if it is valid for the game.
        not_exercised: Parts of the mechanism that the audit did not exercise.
        sanity_checks: Whether the audit could have seen an effect: ``effect_seen``
            where nothing else shows that canaries were inserted.
        scores: Summary of the guesser's scores.

    Raises:
        InvalidRunError: The reading is not of a game by these rules, or the bound is
            known not to hold for it.
    """
    check_reading(reading, design)
    bound = design.rules.bound() if bound is None else bound
    own = design.rules.bound()
    judged = _judged if reading.tally else _judged.__wrapped__
    lower, ceiling, test, detectable = judged(bound, own, reading, design)
    check_method(lower.method, design.rules)
    return Result(
        design=design,
        commitment=commitment,
        reading=reading,
        bound=lower,
        ceiling=ceiling,
        design_test=test,
        detectable_accuracy=detectable,
        not_exercised=not_exercised,
        sanity_checks=sanity_checks,
        scores=scores,
    )


def effect_seen(reading: Reading, *, design: Design) -> Finding:
    """Return whether the guesses by themselves show that canaries were inserted.

    If no canary reached the program, or if the guesser cannot distinguish them, guesses
    are correct by chance alone; neither case tests the claim.

    Example:
        >>> from dpaudit import OneRun
        >>> from dpaudit.bounds import Counts
        >>> rules, claim = OneRun(guesses=100), PureDP(epsilon=1.0)
        >>> design = Design(canaries=100, rules=rules, claim=claim)
        >>> lucky = Counts(canaries=100, guesses=100, correct=58)
        >>> print(effect_seen(lucky, design=design).status)
        inconclusive
    """
    no_effect = PureDP(epsilon=0.0, adjacency=design.claim.adjacency)
    # At epsilon = 0 exactly, even if the rules' min_epsilon is larger.
    log_p = design.rules.bound().log_p_value(reading, epsilon=0.0, delta=0.0)
    p_value = probability(log_p)
    return better_than_chance(
        ClaimTest(claim=no_effect, p_value=p_value, alpha=ALPHA_OF_EFFECT)
    )


def guesses_made(transcript: Transcript) -> tuple[Finding, ...]:
    """Return how many guesses were committed to and not made; () if all were made.

    They count as incorrect. If the claim can no longer be refuted (``could_refute``),
    they are the reason. A ranking is judged by its best guesses, whatever is missing,
    so there they are reported only in that case.
    """
    design = transcript.design
    made, committed = int(np.count_nonzero(transcript.guess)), design.guesses
    if made >= committed or not design.rules.fixed:
        return ()
    bound, reading = design.rules.bound(), transcript.reading()
    could = could_refute(design.claim, reading, alpha=design.alpha, bound=bound)
    if could and design.rules.ordered:
        return ()
    make = passed if could else inconclusive
    adaptive = isinstance(design.rules, AdaptiveCount)
    missing = committed - made
    return (
        make(
            "guesses_not_made", missing=missing, committed=committed, adaptive=adaptive
        ),
    )


def could_refute(
    claim: Guarantee, reading: Reading, *, alpha: float, bound: AnyBound
) -> bool:
    """Return whether a run as played, with all guesses correct, refutes the claim.

    Args:
        claim: The claim to test.
        reading: The guesses.
        alpha: Significance level of the test.
        bound: The bound that tests the claim.
    """
    return bound.judge_claim(reading.perfect(), claim, alpha=alpha).refuted


# There are few different counts, so many games of one design hit the cache.
@lru_cache(maxsize=4096)
def _judged(
    bound: JudgingBound,
    tester: AnyBound,
    reading: Reading,
    design: Design,
) -> tuple[LowerBound, float, ClaimTest, float | None]:
    """Return lower bound, ceiling, test of the claim, and detectable accuracy."""
    claim, delta, alpha = design.claim, design.bound_delta, design.alpha
    return (
        bound.epsilon_lower(reading, delta=delta, alpha=alpha),
        _ceiling(bound, reading, delta=delta, alpha=alpha),
        tester.judge_claim(reading, claim, alpha=alpha),
        _detectable_accuracy(tester, reading, claim, alpha),
    )


def check_reading(reading: Reading, design: Design) -> None:
    """Refuse a reading that cannot come from a game by this design.

    Raises:
        InvalidRunError: Game, kind, size or weights are not those of the rules.

    Example:
        >>> from dpaudit import AdaptiveCount, PureDP
        >>> from dpaudit.bounds import Counts
        >>> rules = AdaptiveCount(guesses=2)
        >>> design = Design(canaries=9, rules=rules, claim=PureDP(epsilon=1.0))
        >>> check_reading(Counts(canaries=9, guesses=2, correct=1), design)
        Traceback (most recent call last):
        dpaudit.errors.InvalidRunError: by AdaptiveCount coins are revealed between \
guesses, and the reading is of guesses made all at once
    """
    _check_game(reading, design.rules)
    rules, (_, made) = design.rules, reading.correct_and_guesses()
    number = made == design.guesses or not rules.fixed
    if reading.canaries != design.canaries or not number:
        raise InvalidRunError(
            f"{made} guesses about {reading.canaries} canaries were not made by a "
            f"design of {design.guesses} guesses about {design.canaries}"
        )
    rules.check_reading(reading)


def _check_game(reading: Reading, rules: Rules) -> None:
    name, kind = type(rules).__name__, rules.reads
    if not isinstance(reading, kind):
        raise InvalidRunError(
            f"by its rules, {name}, the audit is read as {kind.__name__}, and the "
            f"result holds {type(reading).__name__}; a bound reads that without any "
            "rules: its epsilon_lower(reading, delta=..., alpha=...)"
        )
    if reading.adaptive != rules.adaptive:
        when = ("made all at once", "made while coins were revealed")[reading.adaptive]
        how = ("are not", "are")[rules.adaptive]
        raise InvalidRunError(
            f"by {name} coins {how} revealed between guesses, and the reading is of "
            f"guesses {when}"
        )


def _detectable_accuracy(
    bound: AnyBound, reading: Reading, claim: Guarantee, alpha: float
) -> float | None:
    counts = reading.counted
    if counts is None:
        return None
    return detectable_accuracy(
        claim,
        canaries=counts.canaries,
        guesses=counts.guesses,
        alpha=alpha,
        power=POWER,
        bound=bound,
        abstained=counts.abstained,
    )


def check_method(method: str, rules: Rules) -> None:
    """Refuse a bound of this package that does not hold under these rules."""
    holding = {b.method for b in (rules.bound(), *rules.other_bounds())}
    if method in KNOWN - holding:
        raise InvalidRunError(
            f"the {method} bound does not hold for a game by {type(rules).__name__}; "
            "rules that it holds for must be fixed before the run"
        )


def bound_of(audit: Result) -> AnyBound:
    """Return the bound by which an audit was judged; that of its rules if unknown."""
    rules = audit.design.rules
    also = (b for b in rules.other_bounds() if b.method == audit.bound.method)
    return next(also, rules.bound())


def _ceiling(
    bound: JudgingBound, reading: Reading, *, delta: float, alpha: float
) -> float:
    """Return the bound if every guess had been correct, or an upper bound on it."""
    if reading.adaptive and not reading.tally:
        # With other guesses the game would have gone differently, but no game shows
        # more than if all guesses were correct, counted at delta = 0.
        _, made = reading.correct_and_guesses()
        return log_odds_limit(made, made, log_alpha=log(alpha))
    perfect = reading.perfect()
    return bound.epsilon_lower(perfect, delta=delta, alpha=alpha).epsilon_lower
