"""A result made anew from what it rests on: guesses, coins, score files, tallies."""

from dataclasses import replace

import numpy as np

from dpaudit.bounds.reads import Reading
from dpaudit.errors import VoidAuditError
from dpaudit.evidence.files import ScoreFiles
from dpaudit.evidence.registration import Registration
from dpaudit.game.coins import Coins, Key
from dpaudit.game.design import Design
from dpaudit.game.lots import tie_rng
from dpaudit.game.result import Result, bound_of, check_method, judge
from dpaudit.game.result import check_reading as check_game
from dpaudit.game.score_summary import ScoreSummary
from dpaudit.game.scores import read_scores
from dpaudit.tables.reading import ScoreTable
from dpaudit.training.result import judge_accountant

__all__ = [
    "check_reading",
    "check_runs",
    "judged_again",
    "scored_again",
]


def check_runs(stated: Result, design: Design) -> None:
    """Refuse a bound that does not hold for the game registered.

    Raises:
        VoidAuditError: It is for another game, or one training is said to be many runs.
    """
    check_method(stated.bound.method, design.rules)
    if stated.training is not None and design.runs > 1:
        raise VoidAuditError("a training is one run, and not a run for every coin")


def check_reading(reading: Reading, design: Design) -> None:
    """Refuse a reading that no game by a design can have, nor any file of one.

    Raises:
        VoidAuditError: It is of another kind, size or weight than the rules give.
    """
    check_game(reading, design)
    if (reading.alternatives, reading.records_per_coin) != (2, 1):
        raise VoidAuditError(
            "coins of a design choose between two, and each decides over one "
            f"record; the reading says alternatives={reading.alternatives} and "
            f"records_per_coin={reading.records_per_coin}"
        )


def judged_again(stated: Result, registration: Registration) -> Result:
    """Return what the stated reading shows, judged by the registered design."""
    check_runs(stated, registration.design)
    audit, training = _audit(stated, registration), stated.training
    if training is None:
        return audit
    claim = None if training.accountant is None else training.accountant.claim
    accountant, family = judge_accountant(audit, claim)
    found = replace(training, accountant=accountant, family=family)
    return replace(audit, training=found)


def _audit(stated: Result, registration: Registration) -> Result:
    check_reading(stated.reading, registration.design)
    return judge(
        stated.reading,
        design=registration.design,
        commitment=registration.commitment,
        bound=bound_of(stated),
        not_exercised=stated.not_exercised,
        controls=stated.controls,
        scores=stated.scores,
    )


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
