"""One tally of many files, a file at a time on the workers of an engine.

A task is a file: its worker reads it where it lies and sends back a tally, which is
small; nothing is sorted or sent across. Tallies are merged as they come, in any order,
to the same whole. The key does not travel: a worker reads it from its file, which must
be there under the same name.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpaudit.engines.engine import Engine
from dpaudit.errors import InvalidInputError
from dpaudit.game.coins import Key
from dpaudit.game.design import Design
from dpaudit.tables.tally import ScoreTally, Shard, tally_scores

__all__ = ["tally_files"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    file: Path
    design: Design
    key_file: Path | None
    check_ids: bool


def tally_files(
    files: Sequence[Path],
    *,
    design: Design,
    engine: Engine,
    key_file: Path | None = None,
    check_ids: bool = True,
    progress: Callable[[int], None] = lambda _rows: None,
) -> ScoreTally:
    """Tally the scores of many files.

    Args:
        files: Parquet files, as the workers see them.
        design: What the audit was opened with.
        engine: What runs the tasks.
        key_file: Where ``Key.write`` put the key; None if the files hold the coins.
        check_ids: Whether ids are checked, as they always are with a key.
        progress: Told how many rows were read since it was told last.
    """
    tasks = (
        _Task(
            file=file.absolute(),
            design=design,
            key_file=key_file and key_file.absolute(),
            check_ids=check_ids,
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


def _tally(task: _Task) -> ScoreTally | None:
    """Tally a file; None if it has no row, as some that programs write have not."""
    from dpaudit.tables.parquet_batches import count_rows  # noqa: PLC0415 (an extra)

    if not count_rows([task.file]):
        return None
    return tally_scores(
        Shard(
            files=(task.file,),
            design=task.design,
            key=None if task.key_file is None else Key.read(task.key_file),
            check_ids=task.check_ids,
        )
    )
