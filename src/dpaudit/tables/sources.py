"""Scores from wherever they are: a table, two lists, or a folder of many files.

Each is a value that audits itself, and knows what nobody can see from it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, final

from dpaudit.errors import InvalidInputError
from dpaudit.game.coins import Key
from dpaudit.game.design import Design
from dpaudit.game.result import Result
from dpaudit.tables.concluding import conclude_scores, unseen_in_tallies
from dpaudit.tables.lists import (
    ScoreLists,
    holds_lists,
    read_both_lists,
    read_score_list,
)
from dpaudit.tables.reading import ScoreTable, read_score_table
from dpaudit.tables.tally import ScoreTally, Shard, tally_scores

__all__ = ["ScoreFolder", "Scores", "read_folder", "read_scores"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreFolder:
    """Parquet files of scores that are read together, some rows at a time.

    Attributes:
        files: The files.
        canaries: How many rows they hold.
        check_ids: Whether to see that ids are 0, 1, ..., each once.
        progress: Told how many rows were read since it was told last.
    """

    files: tuple[Path, ...]
    canaries: int
    check_ids: bool = True
    progress: Callable[[int], None] = lambda _rows: None

    def tally(self, design: Design, key: Key | None = None) -> ScoreTally:
        """Tally all files in this process."""
        shard = Shard(
            files=self.files, design=design, key=key, check_ids=self.check_ids
        )
        return tally_scores(shard, progress=self.progress)

    def audit(
        self,
        design: Design,
        key: Key | None = None,
        *,
        coins_were_independent: bool = False,
        not_exercised: tuple[str, ...] = (),
    ) -> Result:
        """Audit from these scores; as ``conclude_scores``."""
        return conclude_scores(
            [self.tally(design, key)],
            coins_were_independent=coins_were_independent,
            not_exercised=not_exercised,
        )

    def unseen(self, result: Result) -> list[str]:
        """Return what a result of these scores rests on that they do not show."""
        checked = self.check_ids or result.commitment is not None
        return unseen_in_tallies(result, ids_checked=checked)


Scores: TypeAlias = ScoreTable | ScoreLists | ScoreFolder


def read_scores(
    path: Path | None, included: Path | None = None, excluded: Path | None = None
) -> Scores:
    """Return the scores of a file, of a folder, or of two lists in a file each."""
    if path is not None and included is None and excluded is None:
        if path.is_dir():
            return read_folder([path])
        return read_both_lists(path) if holds_lists(path) else read_score_table(path)
    if path is None and included is not None and excluded is not None:
        return ScoreLists(
            included=read_score_list(included), excluded=read_score_list(excluded)
        )
    raise InvalidInputError("give either a file of scores, or --in and --out")


def read_folder(paths: Sequence[Path], *, check_ids: bool = True) -> ScoreFolder:
    """Return the Parquet files that are named or that directories hold, counted."""
    from dpaudit.tables.parquet import (  # noqa: PLC0415 (an extra)
        count_rows,
        parquet_files,
    )

    files = parquet_files(paths)
    rows = count_rows(files)
    if not rows:
        raise InvalidInputError(f"there is no row in any file of {paths[0]}")
    return ScoreFolder(files=tuple(files), canaries=rows, check_ids=check_ids)
