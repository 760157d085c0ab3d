"""The end of an audit of training: guesses by the rules, and the result.

The guesses from the noisy sums are submitted to the referee, which under adaptive rules
reveals the coins of each round. The committed claim is tested, then the accountant's
curve; the sanity checks show whether either test is meaningful.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import log
from typing import Final, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.bounds.bound import ClaimTest, ParameterBound
from dpaudit.bounds.curve import GaussianFamily
from dpaudit.bounds.readings import Counts
from dpaudit.dpsgd.planning.as_run import detectable
from dpaudit.dpsgd.sums import canary_log_odds
from dpaudit.errors import InvalidInputError
from dpaudit.game.auditors import drive
from dpaudit.game.configuration import DetectableFault, RunConfiguration
from dpaudit.game.coverage import Coverage
from dpaudit.game.design import Commitment, Design
from dpaudit.game.findings import (
    Finding,
    Stage,
    canary_tested,
    inconclusive,
    not_checked,
    noted,
    passed,
)
from dpaudit.game.guessers import AdaptiveMostLikely, most_likely
from dpaudit.game.referee import Referee
from dpaudit.game.result import (
    MIN_EVIDENCE_SHARE,
    Result,
    TrainingRecord,
    conclude,
)
from dpaudit.game.rules import AdaptiveRounds, OneRun, Ranking
from dpaudit.game.score_summary import ScoreSummary
from dpaudit.game.transcript import Transcript
from dpaudit.game.verdict import SignalRecovery
from dpaudit.mechanisms.exchangeable import ExchangeablePosterior
from dpaudit.privacy.guarantees import Guarantee
from dpaudit.training.likelihoods import SumsLikelihood

__all__ = [
    "GuessedGame",
    "check_training_rules",
    "conclude_training",
    "detected_as_run",
    "guess",
    "guess_among",
    "judge_accountant",
]

_FAR_FEWER: Final = 1e-6  # p-value below which correct guesses are far too few


def check_training_rules(design: Design) -> None:
    """Refuse a design whose rules an audit of training cannot follow."""
    rules = design.rules
    counted = isinstance(rules, OneRun | Ranking) and rules.fixed
    if not (counted or isinstance(rules, AdaptiveRounds)):
        raise _unplayable(design)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class GuessedGame:
    """A game that was played.

    Attributes:
        transcript: Its record.
        scores: Summary of the log-odds of all canaries before any coin was revealed;
            None if no single process knows them all.
        confidence: For each guess the log-odds, as the guesser stated them, that it is
            correct.
    """

    transcript: Transcript
    scores: ScoreSummary | None
    confidence: NDArray[np.float64]

    def calibration_check(self) -> Finding:
        """Return whether guesses were correct as often as their stated probabilities.

        The probability of so few correct guesses, if each is correct with the
        probability stated when it was made, is bounded by Chernoff's inequality.
        """
        stated = special.expit(self.confidence)
        made = self.transcript.guess != 0
        correct = int(
            np.sum(self.transcript.guess[made] == self.transcript.truth[made])
        )
        rates = np.geomspace(1e-3, 30.0, 60)
        tail = min(
            float(rate * correct + np.log1p(stated * np.expm1(-rate)).sum())
            for rate in rates
        )
        far_fewer = tail <= log(_FAR_FEWER)
        make = inconclusive if far_fewer else passed
        return make(
            "guesses_as_good",
            right=correct,
            guesses=len(stated),
            expected=stated.sum(),
            far_fewer=far_fewer,
        )


def guess(referee: Referee, log_likelihood: NDArray[np.float64]) -> GuessedGame:
    """Guess by the referee's rules, and return the game."""
    rules, odds = referee.design.rules, canary_log_odds(log_likelihood)
    match rules:
        case OneRun() | Ranking():
            played = guess_among(referee, np.arange(len(odds)), odds)
        case AdaptiveRounds(min_epsilon=start):
            guesser = AdaptiveMostLikely(
                mechanism=_Seen(), threshold=start, rules=rules
            )
            drive(referee, guesser.play(log_likelihood))
            transcript = referee.close()
            confidence = transcript.stake[transcript.guess != 0]
            played = GuessedGame(
                transcript=transcript, scores=None, confidence=confidence
            )
        case _:
            raise _unplayable(referee.design)
    return replace(played, scores=referee.summary(odds))


def guess_among(
    referee: Referee, index: NDArray[np.int64], odds: NDArray[np.float64]
) -> GuessedGame:
    """Make the most confident guesses about some canaries, and return the game.

    Args:
        referee: Of a game in which all guesses are made at once.
        index: Canaries in increasing order, among them the most confident of all.
        odds: Their log-odds.
    """
    best, what = most_likely(odds, guesses=referee.design.guesses)
    referee.submit(index[best], what)
    return GuessedGame(
        transcript=referee.close(), scores=None, confidence=np.abs(odds[best])
    )


def _unplayable(design: Design) -> InvalidInputError:
    return InvalidInputError(
        "training is audited by OneRun(guesses=...), Ranking(guesses=...) or a plan's "
        f"AdaptiveRounds, got rules={design.rules!r}"
    )


@final
@dataclass(frozen=True, slots=True)
class _Seen:
    """Likelihoods with the interface that adaptive guessers use."""

    def posterior(self, output: NDArray[np.float64]) -> ExchangeablePosterior:
        return ExchangeablePosterior(output)


def conclude_training(  # noqa: PLR0913 (all that an audit of training gathers)
    played: GuessedGame,
    *,
    likelihood: SumsLikelihood,
    signal: SignalRecovery | None,
    commitment: Commitment,
    claim: Guarantee | None,
    configuration: RunConfiguration,
    checks: Iterable[Finding],
    faults: Iterable[Finding] = (),
    accepted: Collection[Stage] = (),
    sanity_checks: tuple[Finding, ...] = (),
    remarks: tuple[Finding, ...] = (),
    reported: float | None = None,
) -> Result:
    """Test the claims with a game of guesses about the canaries of a training run.

    Args:
        played: The game.
        likelihood: The guesser's likelihood of the noisy sums.
        signal: The canary signal in the sums; None if it was not recorded.
        commitment: The commitment that the game was opened with.
        claim: The accountant's privacy curve, as far as it is known.
        configuration: How the run was configured.
        checks: How pipeline stages were checked, besides by the canaries themselves.
        faults: The faults found at these stages.
        accepted: Stages that the user declared unchecked beforehand.
        sanity_checks: Further evidence that there was a signal to detect.
        remarks: Observations made without a statistical test.
        reported: The epsilon that the framework's own accountant reports.
    """
    audit = conclude(played.transcript, commitment=commitment, scores=played.scores)
    if likelihood.odd:
        remarks = (noted("sums.not_finite", sums=likelihood.odd), *remarks)
    if claim is not None and audit.reading.counted is None:
        remarks = (*remarks, noted("accounting.curve_not_tested"))
    accountant, family = judge_accountant(audit, claim)
    judged = accountant or audit.design_test
    refuted = judged.refuted
    caught = detected_as_run(
        audit.design, judged, configuration, evidence_share=likelihood.evidence_share
    )
    recovered = inconclusive("signal.not_seen")
    if signal is not None:
        recovered = signal.check(refuted=refuted)
    seen = _by_canaries(claim, caught, steps=likelihood.steps)
    coverage = Coverage.of([*seen, *checks], faults, accepted=accepted)
    training = TrainingRecord(
        coverage=coverage,
        accountant=accountant,
        family=family,
        transcript=played.transcript,
        steps=likelihood.steps,
        evidence_share=likelihood.evidence_share,
        signal=signal,
        remarks=remarks,
        reported=reported,
        configuration=configuration,
        detectable=caught,
    )
    return replace(
        audit,
        sanity_checks=(recovered, played.calibration_check(), *sanity_checks),
        training=training,
    )


def detected_as_run(
    design: Design,
    judged: ClaimTest,
    configuration: RunConfiguration | None,
    *,
    evidence_share: float,
) -> DetectableFault | None:
    """Return the smallest noise fault that the audit would have detected.

    Args:
        design: The committed design; only rules and alpha matter.
        judged: The claim that was tested, and whether it was refuted.
        configuration: How the run was configured, if that is recorded.
        evidence_share: The share of the evidence that real gradients left.

    Returns:
        None if the claim was refuted.
    """
    if judged.refuted:
        return None
    if evidence_share < MIN_EVIDENCE_SHARE:
        return DetectableFault(
            factor=None, why_not=noted("forecast.hidden", hidden=1 - evidence_share)
        )
    if configuration is None:
        return DetectableFault(factor=None, why_not=noted("forecast.not_recorded"))
    return detectable(
        configuration, rules=design.rules, claim=judged.claim, alpha=design.alpha
    )


def _by_canaries(
    claim: Guarantee | None, caught: DetectableFault | None, *, steps: int
) -> Iterator[Finding]:
    """Yield the checks that guesses about canaries make in every audit of training."""
    yield _noise_tested(caught)
    if claim is not None:
        yield canary_tested(Stage.ACCOUNTING, "accounting.curve_tested", steps=steps)
    else:
        yield not_checked(Stage.ACCOUNTING, "accounting.no_accountant")


def _noise_tested(caught: DetectableFault | None) -> Finding:
    """Return the check of the noise by canaries, with the fault they would detect."""
    tell = partial(canary_tested, Stage.NOISE_SCALE)
    if caught is None:
        return tell("canaries")
    if caught.why_not is not None:
        why = caught.why_not
        return tell("canaries.not_known", why=why.code, **why.numbers)
    if caught.factor is None:
        return tell("canaries.hardly")
    return tell("canaries.detect", factor=caught.factor)


def judge_accountant(
    audit: Result, claim: Guarantee | None
) -> tuple[ClaimTest | None, ParameterBound | None]:
    """Return the test of the accountant's curve, and the Gaussian parameter.

    Args:
        audit: Of the training; both are None unless its guesses were counted.
        claim: The accountant's curve; without it there is no test.
    """
    counts, design = audit.reading.counted, audit.design
    if counts is None:
        return None, None
    family = _family(counts, design.bound_delta, design.alpha)
    if claim is None:
        return None, family
    test = audit.design.rules.bound().judge_claim(counts, claim, alpha=design.alpha)
    return test, family


@lru_cache(maxsize=1024)  # repeated audits and verifications share counts
def _family(counts: Counts, delta: float, alpha: float) -> ParameterBound:
    return GaussianFamily().parameter_lower(counts, delta=delta, alpha=alpha)
