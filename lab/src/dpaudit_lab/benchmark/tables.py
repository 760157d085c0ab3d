"""Tables of scores beside a bare pass of pyarrow over the same files.

Files hold id, bit and score, N(0, 1) for excluded and N(1, 1) for included canaries,
zstd, row groups of 2^20, ids in order. The bare pass reads bit and score with pyarrow
and keeps the highest and the lowest 500 with numpy, a threshold letting through only
what may still belong to them; it checks nothing. Ours keeps the same, sees that scores
are numbers and coins are coins, counts them, and bounds; with ids checked it reads them
too, and sees that none is missing or there twice. ``lab/measure/tables.py`` compares
larger ones.
"""

import json
import tempfile
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpaudit.game.design import Design
from dpaudit.game.rules import OneRun
from dpaudit.game.setting import Setting as DesignSetting
from dpaudit.privacy.guarantees import ApproxDP
from dpaudit_lab.benchmark.costs import BARE, Costs, not_installed
from dpaudit_lab.benchmark.memory import growth
from dpaudit_lab.benchmark.row import Part
from dpaudit_lab.power.timing import cpu
from dpaudit_lab.sweeps.store import Outcome, Setting

__all__ = ["GUESSES", "ROWS", "SMALL_ROWS", "bare", "counted", "tables", "write_table"]

GUESSES: Final = 1000
ROWS: Final = 5_000_000
SMALL_ROWS: Final = 20_000
_FILES = 4

_Paths: TypeAlias = tuple[Path, ...]
_Part: TypeAlias = tuple[NDArray[np.float64], NDArray[np.int8]]


def write_table(
    folder: Path, rows: int, files: int = _FILES, *, shuffled: bool = False
) -> _Paths:
    """Write a table of so many rows into the files of a folder that are not there.

    Args:
        folder: Where to write it.
        rows: How many canaries.
        files: How many files.
        shuffled: Whether ids are in no order within a file.
    """
    paths = tuple(folder / f"part-{number:04}.parquet" for number in range(files))
    for number, path in enumerate(paths):
        if not path.exists():
            first, last = rows * number // files, rows * (number + 1) // files
            _write(path, first, last, shuffled=shuffled)
    return paths


def _write(path: Path, first: int, last: int, *, shuffled: bool) -> None:
    import pyarrow as pa  # noqa: PLC0415 (an extra)
    from pyarrow import parquet  # noqa: PLC0415 (an extra)

    rng = np.random.default_rng([1, first])
    ids = np.arange(first, last)
    if shuffled:
        rng.shuffle(ids)
    bits = rng.integers(0, 2, last - first).astype(np.int8)
    scores = rng.standard_normal(last - first) + bits
    table = pa.table({"id": ids, "bit": bits, "score": scores})
    unfinished = path.with_suffix(".part")
    parquet.write_table(table, unfinished, row_group_size=1 << 20, compression="zstd")
    unfinished.rename(path)


def bare(paths: _Paths) -> int:
    """Return how many of the surest guesses are right, with pyarrow and numpy alone."""
    from pyarrow import parquet  # noqa: PLC0415 (an extra)

    half = GUESSES // 2
    high: list[_Part] = []
    low: list[_Part] = []
    floor, roof, waiting = -np.inf, np.inf, 0
    for path in paths:
        with parquet.ParquetFile(path) as file:
            for rows in file.iter_batches(1 << 18, columns=["score", "bit"]):
                scores = rows.column("score").to_numpy()
                bits = rows.column("bit").to_numpy()
                above, below = scores > floor, scores < roof
                high.append((scores[above], bits[above]))
                low.append((scores[below], bits[below]))
                waiting += len(high[-1][0]) + len(low[-1][0])
                if waiting > 1 << 18:
                    high, low = [_outer(high, half, 1)], [_outer(low, half, -1)]
                    floor, roof, waiting = high[0][0].min(), low[0][0].max(), 0
    top, bottom = _outer(high, half, 1), _outer(low, half, -1)
    return int(top[1].sum()) + half - int(bottom[1].sum())


def _outer(parts: list[_Part], half: int, sign: int) -> _Part:
    scores = np.concatenate([scores for scores, _ in parts])
    bits = np.concatenate([bits for _, bits in parts])
    if len(scores) <= half:
        return scores, bits
    outer = np.argpartition(-sign * scores, half)[:half]
    return scores[outer], bits[outer]


def counted(paths: _Paths, rows: int, *, check_ids: bool) -> int:
    """Return how many of the surest guesses are right by an audit of the table."""
    from dpaudit.tables.tally import (  # noqa: PLC0415 (an extra)
        Shard,
        conclude_scores,
        tally_scores,
    )

    design = Design(
        canaries=rows,
        rules=OneRun(guesses=GUESSES),
        claim=ApproxDP(epsilon=1.0, delta=1e-10),
        setting=DesignSetting(tie_seed=1),
    )
    tally = tally_scores(Shard(files=paths, design=design, check_ids=check_ids))
    result = conclude_scores([tally], coins_were_independent=True).to_json()
    return int(json.loads(result)["reading"]["correct"])


_WAYS: Final = ("checked", "unchecked", BARE)


def _called(way: str, rows: int, paths: _Paths) -> int:
    if way == BARE:
        return bare(paths)
    return counted(paths, rows, check_ids=way == "checked")


def time_trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Time every way on the same files in turn, in CPU seconds."""
    del rng
    rows = int(setting["rows"] or 0)
    with tempfile.TemporaryDirectory() as folder:
        paths = write_table(Path(folder), rows)
        right = {_called(way, rows, paths) for way in _WAYS}  # and all are imported
        if len(right) > 1:
            raise RuntimeError(f"ways differ in how many guesses are right: {right}")
        return {way: cpu(_called, way, rows, paths) for way in _WAYS}


def memory_trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Measure the memory of every way, each in its process."""
    del rng
    rows = int(setting["rows"] or 0)
    with tempfile.TemporaryDirectory() as folder:
        paths = write_table(Path(folder), rows)
        return {
            way: growth(partial(_ready, paths), partial(_called, way, rows))
            for way in _WAYS
        }


def _ready(paths: _Paths) -> _Paths:
    from pyarrow import parquet  # noqa: F401, PLC0415 (an extra)

    from dpaudit.tables import tally  # noqa: F401, PLC0415 (an extra)

    return paths


def tables(*, pairs: int = 20, rows: int = ROWS) -> Costs:
    """Return the comparison of tables with bare pyarrow.

    Args:
        pairs: How often each is timed.
        rows: Of the table, one for each canary.
    """
    there = find_spec("pyarrow") is not None
    return Costs(
        part=Part.TABLES,
        settings=[{"rows": rows, "version": version("pyarrow")}] if there else [],
        times=time_trial,
        memory=memory_trial,
        size=lambda setting: f"{setting['rows']:,} rows in {_FILES} Parquet files",
        names=lambda setting: {
            "checked": "an audit of the table, ids checked",
            "unchecked": "an audit of the table, ids not checked",
            BARE: f"pyarrow {setting['version']}, bare",
        },
        missing=() if there else (not_installed("pyarrow", "tables"),),
        pairs=pairs,
    )
