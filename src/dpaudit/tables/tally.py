"""Tallies of scores: one per shard of files, merged into one audit result.

A table of a billion canaries is spread over many files, perhaps over many machines. One
pass over some of them produces a tally of a few kilobytes to a few megabytes, and the
tallies of all shards give, bit for bit, the result of one pass over all files. A tally
holds

- the highest and the lowest scores with their coins, exactly, if the design makes at
  most ``MOST_EXACT`` guesses; ties are ordered by their ids' tie-breaking values
  (``extreme_scores``);
- otherwise all scores in bins, with random tie-breaking where guesses end within a bin
  (``histogram``);
- the number of rows and of ones, and which ids occurred (``seen_ids``).

Coins are read from the files, or derived from the key by id; if both are available they
must agree. Guesses are made by rank from both ends, as in ``audit_scores``.

Many files are tallied one at a time on the workers of an engine. A worker reads its
file in place and returns a tally, which is small; no sorting or data exchange between
workers is needed. Tallies can be merged in any order, with the same result. The key is
not sent to workers: each reads it from a file, which must have the same name there.

Judging the tallies includes the checks that need all shards: that every canary occurs
exactly once, and that the coins of the files are consistent with fair ones. Equal
scores that were kept individually are ordered by their ids' tie-breaking values
(``dpaudit.game.tie_breaking``), so no tie remains. Ties within a bin are broken at
random if ids were checked and the key or the design fixed a tie-breaking seed;
``histogram`` explains the draw and why it is valid for every salt. Otherwise ties are
broken against the auditor: within a bin the excluded rank above the included
(``score_bins``).
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Final, Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.bounds.readings import Reading
from dpaudit.engines.engine import Engine
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.coins import BLOCK, Coins, Key
from dpaudit.game.design import Commitment, Design, check_independent_coins
from dpaudit.game.findings import Finding
from dpaudit.game.result import Result, effect_seen, judge
from dpaudit.game.rules import Rules
from dpaudit.game.scores import (
    check_assigned,
    check_rows,
    check_score_rules,
    counted_after,
    guessed_included,
    moved,
)
from dpaudit.game.tie_breaking import TieBreaking
from dpaudit.game.verdict import decided_by_ties
from dpaudit.tables.columns import USUAL, ColumnNames
from dpaudit.tables.extreme_scores import ExtremeScores, ExtremeScoresSoFar
from dpaudit.tables.histogram import Histogram, HistogramSoFar
from dpaudit.tables.score_bins import ScoreBins
from dpaudit.tables.seen_ids import IdSet, SeenIds, fingerprint_of_run, joined

__all__ = [
    "MOST_CANARIES",
    "MOST_EXACT",
    "MOST_RANKED",
    "CoinTable",
    "ScoreTally",
    "Shard",
    "conclude_scores",
    "tally_files",
    "tally_scores",
]

MOST_CANARIES: Final = 1 << 36  # one bit for each takes 8 GiB
MOST_EXACT: Final = 1 << 16  # guesses whose scores are kept individually
MOST_RANKED: Final = 1 << 20  # guesses in order of confidence: a result lists them all

Found: TypeAlias = ExtremeScores | Histogram


@final
class CoinTable:
    """Finds coins for ids in any order.

    ``Coins`` derives a block of 65,536 coins at a time. Canaries in random order access
    every block repeatedly, so derived blocks are cached, one bit per coin: a billion
    coins take 125 MB, fewer if only some blocks are used.
    """

    def __init__(self, coins: Coins) -> None:
        self._coins = coins
        self._bits = np.zeros((coins.count + 7) // 8, np.uint8)
        self._derived = np.zeros((coins.count - 1) // BLOCK + 1, bool)

    def at(self, ids: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return the coins of these canaries; the ids must be in range."""
        first, last = int(ids.min()) // BLOCK, int(ids.max()) // BLOCK
        for block in first + np.flatnonzero(~self._derived[first : last + 1]):
            self._derive(int(block))
        return np.asarray(self._bits[ids >> 3] >> (ids & 7).astype(np.uint8) & 1)

    def _derive(self, block: int) -> None:
        here = self._bits[block * BLOCK // 8 : (block + 1) * BLOCK // 8]
        here[:] = self._coins.packed(block)[: len(here)]  # the last may be shorter
        self._derived[block] = True


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScoreTally:
    """The tally of one pass over some of the scores of an audit.

    Attributes:
        design: The design of the audit.
        commitment: The commitment to key and design; None if the files hold the coins.
        salt: Mixes ids and breaks ties within bins, the same for all shards; derived
            from the key, or without a key from the design.
        rows: The number of canaries.
        ones: The number of included canaries.
        ids: Their ids, one set for each shard; empty if ids were not checked.
        found: Their scores.
    """

    design: Design
    commitment: Commitment | None
    salt: str
    rows: int
    ones: int
    ids: tuple[IdSet, ...]
    found: Found

    def __post_init__(self) -> None:
        _check_canaries(self.design)
        if self.rows > self.design.canaries:
            raise InvalidRunError(
                f"{self.rows} rows are more than canaries={self.design.canaries}: "
                "some are there twice, or are not of this audit"
            )
        if not 0 <= self.ones <= self.rows:
            raise InvalidInputError(f"{self.ones} ones among {self.rows} rows")
        if self.ids and sum(each.count for each in self.ids) != self.rows:
            raise InvalidInputError("a tally has as many ids as rows")
        if self.found.by_id and not self.ids:
            raise InvalidInputError(
                "a tally without ids has no tie-breaks, nor a fingerprint"
            )
        if not _is_for(self.found, self.design, self.rows):
            raise InvalidInputError("the tally was not made for its design's rules")
        self.found.cells(self.rows, self.ones)  # refuses inconsistent counts

    def merged(self, other: Self) -> Self:
        """Return the tally of the canaries of both tallies."""
        if (other.design, other.commitment, other.salt) != (
            self.design,
            self.commitment,
            self.salt,
        ):
            raise InvalidRunError("the tallies belong to different audits")
        if bool(self.ids) != bool(other.ids):
            raise InvalidRunError(
                "ids were checked in one tally and not in another; make them alike"
            )
        return type(self)(
            design=self.design,
            commitment=self.commitment,
            salt=self.salt,
            rows=self.rows + other.rows,
            ones=self.ones + other.ones,
            ids=joined(self.ids + other.ids),
            found=_merged(self.found, other.found),
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """Files to be tallied in one pass, with the settings for it.

    Attributes:
        files: Parquet files.
        design: The design of the audit.
        key: The key of the coins; None if the files hold the coins.
        check_ids: Whether to check that ids are whole numbers from 0, each once. With a
            key they are always checked.
        columns: The names of the columns.
    """

    files: tuple[Path, ...]
    design: Design
    key: Key | None = None
    check_ids: bool = True
    columns: ColumnNames = USUAL

    def __post_init__(self) -> None:
        _guesses(self.design)
        _check_canaries(self.design)
        if self.key is not None:
            check_independent_coins(self.design)


def tally_scores(
    shard: Shard, *, progress: Callable[[int], None] = lambda _rows: None
) -> ScoreTally:
    """Tally the scores of some files in one pass.

    Args:
        shard: The files and the design.
        progress: Called with the number of rows read since the last call.

    Raises:
        InvalidInputError: A file does not hold such a table; the message names the
            place.
        InvalidRunError: The table makes the audit invalid: an id is unknown or appears
            twice, or a bit is not the key's coin.
    """
    from dpaudit.tables.parquet import read_batches  # noqa: PLC0415 (an extra)

    design, key = shard.design, shard.key
    salt, with_ids = _salt(design, key), shard.check_ids or key is not None
    mix = int(salt[:16], 16)
    so_far = _so_far(design, TieBreaking.of(design, key) if with_ids else None, mix)
    seen = SeenIds(design.canaries) if with_ids else None
    coins = key and CoinTable(Coins(key=key, count=design.canaries))
    rows = ones = 0
    for path in shard.files:
        for batch in read_batches(path, with_ids=with_ids, columns=shard.columns):
            if seen is not None and batch.ids is not None:
                _see(path, seen, batch.ids)
            bits = _bits(path, batch.ids, batch.bits, coins)
            so_far.add(batch.scores, bits, batch.ids)
            rows, ones = rows + len(bits), ones + int(np.count_nonzero(bits))
            if rows > design.canaries:
                raise InvalidRunError(
                    f"there are more rows than canaries={design.canaries}: in {path}, "
                    "or before it, canaries appear that the design has not"
                )
            progress(len(bits))
    if not rows:
        raise InvalidInputError("there is no row in any file")
    return ScoreTally(
        design=design,
        commitment=key and Commitment.to(key, design),
        salt=salt,
        rows=rows,
        ones=ones,
        ids=() if seen is None else (seen.found(mix),),
        found=so_far.found(),
    )


def _check_canaries(design: Design) -> None:
    if design.canaries > MOST_CANARIES:
        raise InvalidInputError(
            f"canaries={design.canaries} are more than a table may hold "
            f"({MOST_CANARIES})"
        )


def _see(path: Path, seen: SeenIds, ids: NDArray[np.int64]) -> None:
    try:
        seen.add(ids)
    except InvalidRunError as error:
        raise InvalidRunError(f"{path}: {error}") from error


def _guesses(design: Design) -> int:
    check_score_rules(design)
    if design.rules.ordered and design.guesses > MOST_RANKED:
        raise InvalidRunError(
            f"guesses={design.guesses} are too many to be kept in order; rank the "
            f"surest, Ranking(guesses={MOST_RANKED}), or count all, OneRun(guesses=...)"
        )
    return design.guesses


def _so_far(
    design: Design, tie_breaks: TieBreaking | None, salt: int
) -> ExtremeScoresSoFar | HistogramSoFar:
    if _guesses(design) > MOST_EXACT:
        return HistogramSoFar(salt)
    high, low = _halves(design)
    return ExtremeScoresSoFar(most_high=high, most_low=low, tie_breaks=tie_breaks)


def _halves(design: Design) -> tuple[int, int]:
    """Return the number of guesses from the top, and from the bottom."""
    top = int(design.rules.from_top(np.array(design.guesses)))
    return top, design.guesses - top


def _is_for(found: Found, design: Design, rows: int) -> bool:
    """Return whether scores are kept in the form and number that the design needs."""
    exact = _guesses(design) <= MOST_EXACT
    if not isinstance(found, ExtremeScores):
        return not exact
    return (
        exact
        and (found.most_high, found.most_low) == _halves(design)
        and found.covers(rows)
    )


def _bits(
    path: Path,
    ids: NDArray[np.int64] | None,
    bits: NDArray[np.uint8] | None,
    coins: CoinTable | None,
) -> NDArray[np.uint8]:
    """Return the coins of some rows, from the file or from the key."""
    if coins is None:
        if bits is None:
            raise InvalidInputError(
                f"{path}: there is no column 'bit', so the coins must come from the "
                "key of a registered design (--design and --key)"
            )
        return bits
    assert ids is not None  # ids are always read if there is a key
    derived = coins.at(ids)
    if bits is not None and np.any(bits != derived):
        odd = int(np.flatnonzero(bits != derived)[0])
        raise InvalidRunError(
            f"{path}: the bit of id {ids[odd]} is not the key's coin: the run did not "
            "follow them, or the table is of another run"
        )
    return derived


def _salt(design: Design, key: Key | None) -> str:
    if key is None:
        return hashlib.sha256(
            b"dpaudit tally 2" + design.to_json().encode()
        ).hexdigest()
    return key.stream("tally", 0, 32).hex()


def _merged(one: Found, other: Found) -> Found:
    match one, other:
        case (ExtremeScores(), ExtremeScores()):
            return one.merged(other)
        case (Histogram(), Histogram()):
            return one.merged(other)
        case _:
            raise InvalidRunError("the tallies belong to different audits")


def tally_files(
    files: Sequence[Path],
    *,
    design: Design,
    engine: Engine,
    key_file: Path | None = None,
    check_ids: bool = True,
    columns: ColumnNames = USUAL,
    progress: Callable[[int], None] = lambda _rows: None,
) -> ScoreTally:
    """Tally the scores of many files.

    Args:
        files: Parquet files, by paths that are valid on the workers.
        design: The design of the audit.
        engine: Runs the tasks.
        key_file: The file written by ``Key.write``; None if the files hold the coins.
        check_ids: Whether to check ids; with a key they are always checked.
        columns: The names of the columns.
        progress: Called with the number of rows read since the last call.
    """
    tasks = (
        (
            Shard(
                files=(file.absolute(),),
                design=design,
                check_ids=check_ids or key_file is not None,
                columns=columns,
            ),
            key_file and key_file.absolute(),
        )
        for file in files
    )
    whole: ScoreTally | None = None
    for tally in engine.map(_tally, tasks):
        if tally is not None:
            whole = tally if whole is None else whole.merged(tally)
            progress(tally.rows)
    if whole is None:
        raise InvalidInputError("there is no row in any file")
    return whole


def _tally(task: tuple[Shard, Path | None]) -> ScoreTally | None:
    """Tally a file; return None if it has no rows, which some programs write."""
    from dpaudit.tables.parquet import count_rows  # noqa: PLC0415 (an extra)

    shard, key_file = task
    if not count_rows(shard.files):
        return None
    key = None if key_file is None else Key.read(key_file)
    return tally_scores(replace(shard, key=key))


def conclude_scores(
    tallies: Sequence[ScoreTally],
    *,
    coins_were_independent: bool = False,
    not_exercised: tuple[str, ...] = (),
) -> Result:
    """Judge the tallies of all shards, in any order.

    Args:
        tallies: One for every shard.
        coins_were_independent: States that the coin flips were independent, in case
            there are exactly as many ones as zeros.
        not_exercised: Parts of the mechanism that the audit did not exercise.

    Raises:
        InvalidRunError: The tallies do not cover all canaries of one audit.
    """
    if not tallies:
        raise InvalidInputError("there is no tally to judge")
    whole = reduce(ScoreTally.merged, tallies)
    check_rows(whole.rows, whole.design)
    if whole.ids:
        _check_ids(whole.ids, whole.rows, int(whole.salt[:16], 16))
    if whole.commitment is None:
        check_assigned(
            whole.ones, whole.design, stated_independent=coins_were_independent
        )
    reading, ties = _reading(whole)
    return judge(
        reading,
        design=whole.design,
        commitment=whole.commitment,
        not_exercised=not_exercised,
        sanity_checks=(effect_seen(reading, design=whole.design), *ties),
    )


def _check_ids(sets: tuple[IdSet, ...], canaries: int, salt: int) -> None:
    """Refuse shards that do not hold every id exactly once."""
    if [(each.first, each.last) for each in sets] == [(0, canaries - 1)]:
        return  # one run, or as many different ids as there are canaries
    total = sum(
        fingerprint_of_run(each.first, each.last, salt)
        if each.fingerprint is None
        else each.fingerprint
        for each in sets
    )
    if total % 2**64 != fingerprint_of_run(0, canaries - 1, salt):
        raise InvalidRunError(
            f"the ids of the tallies are not those from 0 to {canaries - 1}, each "
            "once: a canary is in two shards, and another in none"
        )


def _reading(tally: ScoreTally) -> tuple[Reading, tuple[Finding, ...]]:
    """Guess from both ends inwards; return the reading, and the effect of ties."""
    rules, n = tally.design.rules, tally.design.canaries
    cells = tally.found.cells(tally.rows, tally.ones)
    tie_breaks = _tie_breaks(tally, cells)
    correct = _correct(cells, tally.design, tie_breaks)
    ties: tuple[Finding, ...] = ()
    if tie_breaks is None:
        # With every coin flipped, the worst order becomes the best.
        flipped = ScoreBins(counts=cells.counts, ones=cells.counts - cells.ones)
        gains = counted_after(tally.design) - _correct(flipped, tally.design, None)
        gains -= correct
        ties = decided_by_ties(moved(gains), tally.design.guesses)
    if rules.ordered:
        is_correct = np.diff(correct, prepend=0) == 1
        return rules.read_surest(is_correct, canaries=n), ties
    return rules.reading_from_counts(correct.tolist(), canaries=n), ties


def _correct(
    cells: ScoreBins, design: Design, tie_breaks: TieBreaking | None
) -> NDArray[np.int64]:
    """Return how many guesses are correct up to each point where they are counted."""
    if not design.rules.ordered:
        return np.array(_by_class(cells, design.rules, design.canaries, tie_breaks))
    included = guessed_included(design.rules, design.guesses)
    from_top = int(included.sum())
    high, low = cells.ends(from_top, design.guesses - from_top, tie_breaks)
    is_correct = np.empty(design.guesses, bool)
    is_correct[included], is_correct[~included] = high, ~low
    return np.cumsum(is_correct)


def _tie_breaks(tally: ScoreTally, cells: ScoreBins) -> TieBreaking | None:
    """Return what breaks ties within bins; None if they go against the auditor."""
    fixed = tally.commitment is not None or tally.design.setting.tie_seed is not None
    if isinstance(tally.found, ExtremeScores) or not (tally.ids and fixed):
        return None
    counts = np.stack([cells.counts, cells.ones]).astype("<i8").tobytes()
    word = tally.found.coins.to_bytes(8, "big")
    mix = hashlib.sha256(b"dpaudit lots 2" + bytes.fromhex(tally.salt) + word + counts)
    return TieBreaking(salt=int.from_bytes(mix.digest()[:8], "big"))


def _by_class(
    cells: ScoreBins, rules: Rules, canaries: int, tie_breaks: TieBreaking | None
) -> list[int]:
    """Return how many of the most confident guesses are correct, up to each class."""
    size, ones = int(cells.counts.sum()), int(cells.ones.sum())
    ends = np.array(rules.class_ends(canaries))
    high = rules.from_top(ends).tolist()
    low = (ends - rules.from_top(ends)).tolist()
    edges = sorted({*high, *(size - each for each in low)})
    above = dict(zip(edges, cells.highest(edges, tie_breaks), strict=True))
    return [
        above[top] + bottom - (ones - above[size - bottom])
        for top, bottom in zip(high, low, strict=True)
    ]
