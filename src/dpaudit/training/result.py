"""The end of an audit of training: guesses by the rules, and the result.

What the guesser made of the noisy sums is handed to the referee, which under adaptive
rules answers with the coins of each turn. The claim that was registered is judged, the
accountant's curve beside it, and the controls say whether either means something.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import log
from typing import Final, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.bounds.bound import ClaimTest, ParameterBound
from dpaudit.bounds.curve import GaussianFamily
from dpaudit.bounds.methods import test_claim
from dpaudit.bounds.readings import Counts
from dpaudit.dpsgd.planning.as_run import detectable
from dpaudit.dpsgd.sums import canary_log_odds
from dpaudit.errors import InvalidInputError
from dpaudit.game.auditors import drive
from dpaudit.game.configuration import Detectable, RunConfiguration
from dpaudit.game.design import Commitment, Design
from dpaudit.game.guessers import AdaptiveMostLikely, most_likely
from dpaudit.game.ledger import Fault, How, Ledger, Look, Road
from dpaudit.game.referee import Referee
from dpaudit.game.result import (
    HIDDEN,
    Result,
    TrainingRecord,
    claim_bound,
    conclude,
)
from dpaudit.game.rules import AdaptiveRounds, OneRun, Ranking
from dpaudit.game.score_summary import ScoreSummary
from dpaudit.game.transcript import Transcript
from dpaudit.game.verdict import Arrival, Control, Verdict
from dpaudit.game.words import noise_detected
from dpaudit.mechanisms.exchangeable import ExchangeablePosterior
from dpaudit.privacy.guarantees import Guarantee
from dpaudit.training.likelihoods import SumsReading

__all__ = [
    "Played",
    "check_rules",
    "conclude_training",
    "detected_as_run",
    "guess",
    "guess_among",
    "judge_accountant",
]

_FAR_FEWER: Final = 1e-6  # chance of so few right guesses by what was stated


def check_rules(design: Design) -> None:
    """Refuse a design whose rules a training's guesser cannot play by."""
    if not isinstance(design.rules, OneRun | Ranking | AdaptiveRounds):
        raise _unplayable(design)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A game that was played.

    Attributes:
        transcript: Its record.
        scores: What the log-odds of all canaries looked like before any coin was
            revealed; None where no one place knows them all.
        surety: For each guess the log-odds of being right that its guesser stated.
    """

    transcript: Transcript
    scores: ScoreSummary | None
    surety: NDArray[np.float64]

    def promise(self) -> Control:
        """Return whether guesses were right as often as they said they would be.

        The chance of so few right guesses, if each is right with the chance that was
        stated when it was made, is bounded by Chernoff's inequality.
        """
        chances = special.expit(self.surety)
        made = self.transcript.guess != 0
        right = int(np.sum(self.transcript.guess[made] == self.transcript.truth[made]))
        rates = np.geomspace(1e-3, 30.0, 60)
        tail = min(
            float(rate * right + np.log1p(chances * np.expm1(-rate)).sum())
            for rate in rates
        )
        said = f"{right} of {len(chances)} guesses right, {chances.sum():.0f} expected"
        if tail > log(_FAR_FEWER):
            return Control(said=f"guesses were as good as the guesser said: {said}")
        return Control(
            said="guesses were far worse than the guesser said, so that its model of "
            f"this run is wrong and faults may go unseen: {said}",
            spoils=Verdict.INCONCLUSIVE,
        )


def guess(referee: Referee, log_likelihood: NDArray[np.float64]) -> Played:
    """Guess by the referee's rules, and return the game."""
    rules, odds = referee.design.rules, canary_log_odds(log_likelihood)
    match rules:
        case OneRun() | Ranking():
            played = guess_among(referee, np.arange(len(odds)), odds)
        case AdaptiveRounds(start=start):
            guesser = AdaptiveMostLikely(
                mechanism=_Seen(), threshold=start, rules=rules
            )
            drive(referee, guesser.play(log_likelihood))
            transcript = referee.close()
            surety = transcript.stake[transcript.guess != 0]
            played = Played(transcript=transcript, scores=None, surety=surety)
        case _:
            raise _unplayable(referee.design)
    return replace(played, scores=referee.summary(odds))


def guess_among(
    referee: Referee, index: NDArray[np.int64], odds: NDArray[np.float64]
) -> Played:
    """Guess the surest of some canaries at once, and return the game.

    Args:
        referee: Of a game in which all guesses come at once.
        index: Canaries, among them the surest of all, in rising order.
        odds: Their log-odds.
    """
    best, what = most_likely(odds, guesses=referee.design.guesses)
    referee.submit(index[best], what)
    return Played(transcript=referee.close(), scores=None, surety=np.abs(odds[best]))


def _unplayable(design: Design) -> InvalidInputError:
    return InvalidInputError(
        "training is audited by OneRun(guesses=...), Ranking(guesses=...) or a plan's "
        f"AdaptiveRounds, got rules={design.rules!r}"
    )


@final
@dataclass(frozen=True, slots=True)
class _Seen:
    """What likelihoods say, as adaptive guessers ask for it."""

    def posterior(self, output: NDArray[np.float64]) -> ExchangeablePosterior:
        return ExchangeablePosterior(output)


_NOT_SEEN = Control(
    said="nothing shows that any canary arrived",
    spoils=Verdict.INCONCLUSIVE,
)


def conclude_training(  # noqa: PLR0913 (all that an audit of training gathers)
    played: Played,
    *,
    reading: SumsReading,
    arrival: Arrival | None,
    commitment: Commitment,
    claim: Guarantee | None,
    configuration: RunConfiguration,
    looks: Iterable[Look],
    faults: Iterable[Fault] = (),
    accepted: Collection[Road] = (),
    controls: tuple[Control, ...] = (),
    remarks: tuple[str, ...] = (),
    reported: float | None = None,
) -> Result:
    """Judge a game of guesses about a training's canaries.

    Args:
        played: The game.
        reading: What the guesser made of the noisy sums.
        arrival: How the sums answered to canaries; None if that was not seen.
        commitment: The commitment that the game was opened with.
        claim: What the accountant stands for, as far as it is known.
        configuration: How the run was configured.
        looks: How roads from a record to the model were looked at, besides by the
            canaries themselves.
        faults: What was found to be wrong on them.
        accepted: Roads that need not be looked at, as the user said beforehand.
        controls: What else was looked at to see whether there was anything to see.
        remarks: What was noticed without any statistics.
        reported: The epsilon that the framework's own accountant reports.
    """
    audit = conclude(played.transcript, commitment=commitment, scores=played.scores)
    if reading.odd:
        remarks = (f"{reading.odd} noisy sums were no finite numbers", *remarks)
    if claim is not None and audit.reading.counted is None:
        said = "the accountant's whole curve was not tested, as that needs guesses that"
        remarks = (*remarks, f"{said} are counted: OneRun(guesses=...)")
    accountant, family = judge_accountant(audit, claim)
    judged = accountant or audit.design_test
    refuted = judged.refuted
    caught = detected_as_run(
        audit.design, judged, configuration, trusted=reading.trusted
    )
    arrived = _NOT_SEEN
    if arrival is not None:
        arrived = arrival.control(refuted=refuted)
    seen = _by_canaries(claim, caught, steps=reading.steps)
    ledger = Ledger.of([*seen, *looks], faults, accepted=accepted)
    training = TrainingRecord(
        ledger=ledger,
        accountant=accountant,
        family=family,
        transcript=played.transcript,
        steps=reading.steps,
        trusted=reading.trusted,
        arrival=arrival,
        remarks=remarks,
        reported=reported,
        configuration=configuration,
        detectable=caught,
    )
    return replace(
        audit,
        controls=(arrived, played.promise(), *controls),
        training=training,
        not_exercised=(
            *ledger.roads(How.NOT_LOOKED_AT),
            *ledger.roads(How.ACCEPTED),
        ),
    )


def detected_as_run(
    design: Design,
    judged: ClaimTest,
    configuration: RunConfiguration | None,
    *,
    trusted: float,
) -> Detectable | None:
    """Return the least fault of the noise that an audit would have detected.

    Args:
        design: What was fixed beforehand; only rules and alpha matter.
        judged: The claim that is judged, and whether it was refuted.
        configuration: How the run was configured, if that is recorded.
        trusted: What share of the evidence real gradients left.

    Returns:
        None if the claim was refuted.
    """
    if judged.refuted:
        return None
    if trusted < HIDDEN:
        why = f"real gradients hid {1 - trusted:.0%} of the evidence"
        return Detectable(factor=None, why_not=why)
    if configuration is None:
        why = "the record does not say how the run was configured"
        return Detectable(factor=None, why_not=why)
    return detectable(
        configuration, rules=design.rules, claim=judged.claim, alpha=design.alpha
    )


def _by_canaries(
    claim: Guarantee | None, caught: Detectable | None, *, steps: int
) -> Iterator[Look]:
    """Return what the guesses about canaries look at in every audit of training."""
    said = "tested with canaries" if caught is None else noise_detected(caught)
    yield Look(road=Road.NOISE, how=How.AUDITED, said=said[0].lower() + said[1:])
    if claim is not None:
        yield Look(
            road=Road.ACCOUNTING,
            how=How.AUDITED,
            said=f"the accountant's curve was tested on {steps} steps; a count or rate "
            "that is wrong shows as noise too small would",
        )
    else:
        yield Look(
            road=Road.ACCOUNTING,
            how=How.NOT_LOOKED_AT,
            said="no accountant was given, so only the design's claim was tested",
        )


def judge_accountant(
    audit: Result, claim: Guarantee | None
) -> tuple[ClaimTest | None, ParameterBound | None]:
    """Return the verdict on an accountant's curve, and the Gaussian parameter.

    Args:
        audit: Of the training; there is neither unless its guesses were counted.
        claim: What the accountant stands for; without it there is no verdict.
    """
    counts, design = audit.reading.counted, audit.design
    if counts is None:
        return None, None
    family = _family(counts, design.bound_delta, design.alpha)
    if claim is None:
        return None, family
    bound = claim_bound(audit)
    return test_claim(claim, counts, alpha=design.alpha, bound=bound), family


@lru_cache(maxsize=1024)  # whoever audits or verifies often meets the same counts
def _family(counts: Counts, delta: float, alpha: float) -> ParameterBound:
    return GaussianFamily().parameter_lower(counts, delta=delta, alpha=alpha)
