"""From the tallies of all shards to the result of the audit.

Checked are what only all shards together can show: that every canary is there, once,
and that the coins of the files are no worse than fair ones.

Lots are drawn with the salt and with all that was tallied. With the salt alone, which
may be public and the same in many audits, a lot would be a number that everyone knows
before the coins are thrown: scores that are all equal would then be judged alike
whatever the coins were, and for some salts refute every claim.
"""

import hashlib
from collections.abc import Sequence
from functools import reduce

import numpy as np

from dpaudit.bounds.reads import Counts, Ranked, Weighted
from dpaudit.errors import InvalidInputError, VoidAuditError
from dpaudit.game.result import AuditResult, effect_seen, judge
from dpaudit.game.rules import Ranking
from dpaudit.game.scores import (
    check_fair,
    check_rows,
    cuts,
    read_counts,
    read_right,
    tie_seed,
)
from dpaudit.tables.cells import Cells, Lots
from dpaudit.tables.seen_ids import IdSet, fingerprint_of_run
from dpaudit.tables.tally import ScoreTally

__all__ = ["UNCHECKED_IDS", "conclude_scores"]

UNCHECKED_IDS = (
    "ids were not checked; that every canary is there, and none twice, is the "
    "auditor's word"
)


def conclude_scores(
    tallies: Sequence[ScoreTally],
    *,
    coins_were_independent: bool = False,
    not_exercised: tuple[str, ...] = (),
) -> AuditResult:
    """Judge the tallies of all shards, in any order.

    Args:
        tallies: One of every shard.
        coins_were_independent: States that every coin was thrown by itself, should
            there happen to be exactly as many ones as zeros.
        not_exercised: Parts of the mechanism that the audit did not run through.

    Raises:
        VoidAuditError: The tallies are not those of all canaries of one audit.
    """
    if not tallies:
        raise InvalidInputError("there is no tally to judge")
    whole = reduce(ScoreTally.merged, tallies)
    check_rows(whole.rows, whole.design)
    if whole.ids:
        _check_ids(whole.ids, whole.rows, int(whole.salt[:16], 16))
    if whole.commitment is None:
        check_fair(whole.ones, whole.rows, said_independent=coins_were_independent)
    reading = _reading(whole)
    return judge(
        reading,
        design=whole.design,
        commitment=whole.commitment,
        not_exercised=not_exercised,
        controls=(effect_seen(reading, design=whole.design),),
    )


def _check_ids(sets: tuple[IdSet, ...], canaries: int, salt: int) -> None:
    """Refuse shards whose ids are not all ids, each once."""
    if [(each.first, each.last) for each in sets] == [(0, canaries - 1)]:
        return  # one run, or as many different ids as there are
    total = sum(
        fingerprint_of_run(each.first, each.last, salt)
        if each.fingerprint is None
        else each.fingerprint
        for each in sets
    )
    if total % 2**64 != fingerprint_of_run(0, canaries - 1, salt):
        raise VoidAuditError(
            f"the ids of the tallies are not those from 0 to {canaries - 1}, each "
            "once: a canary is in two shards, and another in none"
        )


def _reading(tally: ScoreTally) -> Counts | Ranked | Weighted:
    """Guess from both ends inwards."""
    design = tally.design
    cells = tally.found.cells(tally.rows, tally.ones)
    lots = _lots(tally, cells)
    if not isinstance(design.rules, Ranking):
        return read_counts(_right(cells, cuts(design), lots), design)
    guesses = design.guesses
    high, low = cells.ends((guesses + 1) // 2, guesses // 2, lots)
    right = np.empty(guesses, bool)
    right[0::2], right[1::2] = high, ~low
    return read_right(right, design)


def _lots(tally: ScoreTally, cells: Cells) -> Lots | None:
    """Return what decides within cells; None if nothing was fixed for it."""
    if tally.commitment is None and tie_seed(tally.design) is None:
        return None
    seen = np.stack([cells.counts, cells.ones]).astype("<i8").tobytes()
    word = tally.coin_sum.to_bytes(8, "big")
    found = hashlib.sha256(b"dpaudit lots 1" + bytes.fromhex(tally.salt) + word + seen)
    return Lots(int.from_bytes(found.digest(), "big"))


def _right(cells: Cells, guesses: list[int], lots: Lots | None) -> list[int]:
    """Return how many of the surest guesses are right, for several numbers of them."""
    size, ones = int(cells.counts.sum()), int(cells.ones.sum())
    high = [(each + 1) // 2 for each in guesses]
    low = [each // 2 for each in guesses]
    edges = sorted({*high, *(size - each for each in low)})
    above = dict(zip(edges, cells.highest(edges, lots), strict=True))
    return [
        above[top] + bottom - (ones - above[size - bottom])
        for top, bottom in zip(high, low, strict=True)
    ]
