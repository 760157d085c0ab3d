"""From the tallies of all shards to the result of the audit.

Checked are what only all shards together can show: that every canary is there, once,
and that the coins of the files are no worse than fair ones.

Equal scores that were kept one by one are in the order of their ids' lots
(``dpaudit.game.lots``), and nothing is left to decide. Within a cell a lot is drawn, if
ids were checked and key or design fixed lots; ``histogram`` says by what, and why that
holds for every salt. Where no lots were fixed, or ids were not checked, ties are broken
against the auditor: within a cell the excluded rank above the included
(``score_bins``).
"""

import hashlib
from collections.abc import Sequence
from functools import reduce
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dpaudit.bounds.readings import Reading
from dpaudit.errors import InvalidInputError, VoidAuditError
from dpaudit.game.design import Design
from dpaudit.game.lots import Lots
from dpaudit.game.result import Result, effect_seen, judge
from dpaudit.game.rules import Rules
from dpaudit.game.scores import (
    check_assigned,
    check_rows,
    moved,
)
from dpaudit.game.verdict import Control, decided_by_ties
from dpaudit.tables.extreme_scores import ExtremeScores
from dpaudit.tables.reading import unseen_coins
from dpaudit.tables.score_bins import ScoreBins
from dpaudit.tables.seen_ids import IdSet, fingerprint_of_run
from dpaudit.tables.tally import ScoreTally

__all__ = ["conclude_scores", "unseen_in_tallies"]

_UNCHECKED_IDS: Final = (
    "ids were not checked; that every canary is there, and none twice, is the "
    "auditor's word"
)


def conclude_scores(
    tallies: Sequence[ScoreTally],
    *,
    coins_were_independent: bool = False,
    not_exercised: tuple[str, ...] = (),
) -> Result:
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
        check_assigned(
            whole.ones, whole.design, said_independent=coins_were_independent
        )
    reading, ties = _reading(whole)
    return judge(
        reading,
        design=whole.design,
        commitment=whole.commitment,
        not_exercised=not_exercised,
        controls=(effect_seen(reading, design=whole.design), *ties),
    )


def unseen_in_tallies(result: Result, *, ids_checked: bool) -> list[str]:
    """Return what a result of tallies rests on that they do not show."""
    found = [] if ids_checked else [_UNCHECKED_IDS]
    return [*found, *unseen_coins(result)]


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


def _reading(tally: ScoreTally) -> tuple[Reading, tuple[Control, ...]]:
    """Guess from both ends inwards; return what is read, and what ties decided."""
    rules, n = tally.design.rules, tally.design.canaries
    cells = tally.found.cells(tally.rows, tally.ones)
    lots = _lots(tally, cells)
    found = _correct(cells, tally.design, lots)
    ties: tuple[Control, ...] = ()
    if lots is None:
        # Where every coin is turned over, the worst order becomes the best.
        turned = ScoreBins(counts=cells.counts, ones=cells.counts - cells.ones)
        made = (
            np.arange(1, len(found) + 1) if rules.ordered else np.array(rules.cuts(n))
        )
        gains = made - _correct(turned, tally.design, None) - found
        ties = decided_by_ties(moved(gains), tally.design.guesses)
    if rules.ordered:
        right = np.diff(found, prepend=0) == 1
        return rules.read_surest(right, canaries=n), ties
    return rules.count(found.tolist(), canaries=n), ties


def _correct(cells: ScoreBins, design: Design, lots: Lots | None) -> NDArray[np.int64]:
    """Return how many guesses are correct up to each cut; of a ranking, up to each."""
    if not design.rules.ordered:
        return np.array(_right(cells, design.rules, design.canaries, lots))
    guesses = design.guesses
    high, low = cells.ends((guesses + 1) // 2, guesses // 2, lots)
    right = np.empty(guesses, bool)
    right[0::2], right[1::2] = high, ~low
    return np.cumsum(right)


def _lots(tally: ScoreTally, cells: ScoreBins) -> Lots | None:
    """Return what decides within cells; None if nothing may."""
    fixed = tally.commitment is not None or tally.design.about.tie_seed is not None
    if isinstance(tally.found, ExtremeScores) or not (tally.ids and fixed):
        return None
    seen = np.stack([cells.counts, cells.ones]).astype("<i8").tobytes()
    word = tally.found.coins.to_bytes(8, "big")
    found = hashlib.sha256(b"dpaudit lots 2" + bytes.fromhex(tally.salt) + word + seen)
    return Lots(salt=int.from_bytes(found.digest()[:8], "big"))


def _right(
    cells: ScoreBins, rules: Rules, canaries: int, lots: Lots | None
) -> list[int]:
    """Return how many of the surest guesses are right, up to each cut."""
    size, ones = int(cells.counts.sum()), int(cells.ones.sum())
    cuts = np.array(rules.cuts(canaries))
    high = rules.from_top(cuts).tolist()
    low = (cuts - rules.from_top(cuts)).tolist()
    edges = sorted({*high, *(size - each for each in low)})
    above = dict(zip(edges, cells.highest(edges, lots), strict=True))
    return [
        above[top] + bottom - (ones - above[size - bottom])
        for top, bottom in zip(high, low, strict=True)
    ]
