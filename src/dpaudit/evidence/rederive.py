"""A result made anew from what it rests on: guesses, coins, score files, tallies."""

from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import assert_never

import numpy as np

from dpaudit.bounds.bound import ParameterBound
from dpaudit.bounds.claims import test_claim
from dpaudit.bounds.classic import Classic
from dpaudit.bounds.fdp import GaussianFamily
from dpaudit.bounds.reads import Bets, Counts, Ranked, Reading, Rounds, Weighted
from dpaudit.errors import VoidAuditError
from dpaudit.evidence.documents import Result
from dpaudit.evidence.files import ScoreFiles, tie_rng
from dpaudit.evidence.registration import Registration
from dpaudit.game.coins import Coins, Key
from dpaudit.game.design import Design
from dpaudit.game.referee import Referee
from dpaudit.game.result import AuditResult, judge
from dpaudit.game.rules import (
    AdaptiveBets,
    AdaptiveClasses,
    AdaptiveCount,
    AdaptiveRounds,
    Classes,
    OneRun,
    Ranking,
    Rules,
    is_adaptive,
)
from dpaudit.game.score_summary import ScoreSummary
from dpaudit.game.scores import read_scores
from dpaudit.game.transcript import Transcript
from dpaudit.tables.reading import ScoreTable
from dpaudit.training.result import TrainingResult

__all__ = ["is_classic", "judged_again", "played_again", "scored_again"]


def is_classic(audit: AuditResult) -> bool:
    """Return whether a result says that every coin had a run of its own."""
    return audit.bound.method == Classic.method and isinstance(
        audit.design.rules, OneRun
    )


def judged_again(stated: Result, registration: Registration) -> Result:
    """Return what the stated reading shows, judged by the registered design."""
    if isinstance(stated, AuditResult):
        return _audit(stated, registration)
    audit, design = _audit(stated.audit, registration), registration.design
    counted = audit.reading if isinstance(audit.reading, Counts) else None
    claim, alpha, delta = stated.accountant, design.alpha, design.bound_delta
    return TrainingResult(
        audit=audit,
        accountant=claim and counted and test_claim(claim.claim, counted, alpha=alpha),
        family=counted and _family(counted, delta, alpha),
        transcript=stated.transcript,
        steps=stated.steps,
        trusted=stated.trusted,
        remarks=stated.remarks,
    )


@lru_cache(maxsize=1024)  # whoever verifies many meets the same counts
def _family(counts: Counts, delta: float, alpha: float) -> ParameterBound:
    return GaussianFamily().parameter_lower(counts, delta=delta, alpha=alpha)


def _audit(stated: AuditResult, registration: Registration) -> AuditResult:
    kind = _read(registration.design.rules)
    if not isinstance(stated.reading, kind):
        raise VoidAuditError(
            f"by its rules the audit is read as {kind.__name__}, and the result holds "
            f"{type(stated.reading).__name__}"
        )
    return judge(
        stated.reading,
        design=registration.design,
        commitment=registration.commitment,
        bound=Classic() if is_classic(stated) else None,
        not_exercised=stated.not_exercised,
        scores=stated.scores,
    )


def _read(rules: Rules) -> type[Reading]:
    """Return what a game by these rules is read as."""
    match rules:
        case OneRun() | AdaptiveCount():
            return Counts
        case Ranking():
            return Ranked
        case Classes() | AdaptiveClasses():
            return Weighted
        case AdaptiveRounds():
            return Rounds
        case AdaptiveBets():
            return Bets
        case _:
            assert_never(rules)


def played_again(transcript: Transcript, design: Design, key: Key) -> Transcript:
    """Return what a referee records who is handed the same guesses.

    Turns in which nothing was submitted leave no trace; they are skipped where only
    the order of turns counts.

    Raises:
        VoidAuditError: The guesses break the rules of the design.
    """
    referee, rules = Referee(design, key), design.rules
    ordered = is_adaptive(rules) and not isinstance(rules, AdaptiveRounds)
    turn = np.unique(transcript.turn, return_inverse=True)[1] if ordered else None
    turn = transcript.turn if turn is None else turn.astype(np.int64)
    last = int(turn.max(initial=-1))
    if not ordered and last >= _most_turns(rules):
        raise VoidAuditError(f"turn {last} is one that the rules do not have")
    starts = np.searchsorted(turn, np.arange(last + 2))
    staked = isinstance(
        rules, Classes | AdaptiveClasses | AdaptiveRounds | AdaptiveBets
    )
    for first, end in pairwise(starts.tolist()):
        here = slice(first, end)
        stake = transcript.stake[here] if staked else None
        referee.submit(transcript.index[here], transcript.guess[here], stake)
    return replace(referee.close(), turn=transcript.turn)


def _most_turns(rules: Rules) -> int:
    return len(rules.weights) if isinstance(rules, AdaptiveRounds) else 1


def scored_again(
    table: ScoreTable, files: ScoreFiles, *, design: Design, key: Key | None
) -> tuple[Reading, ScoreSummary]:
    """Return what scores say, with the coins of the key, or else those in the files.

    Raises:
        VoidAuditError: The table voids the audit, or its coins are not the key's.
    """
    lots = tie_rng(design, key)
    if key is not None:
        coins = Coins(key=key, count=design.canaries)
        reading = read_scores(
            table.ids, coins, table.scores, design=design, tie_rng=lots
        )
        truth = coins.at(table.ids.astype(np.int64))
        if table.bits is not None and not np.array_equal(table.bits, truth):
            raise VoidAuditError("the coins in the files are not those of the key")
    elif table.bits is not None:
        truth, said = table.bits, files.coins_were_independent
        reading = read_scores(
            table.ids,
            truth,
            table.scores,
            design=design,
            tie_rng=lots,
            coins_were_independent=said,
        )
    else:
        raise VoidAuditError("the files hold no coins, and there is no key")
    return reading, ScoreSummary.of(table.scores, truth)
