"""Scores from wherever they are: a table, two lists, or a folder of many files.

Each is a value that audits itself, and knows what nobody can see from it. The .csv
files of a folder are one table, read at once; .parquet files are tallied, however many
rows they hold.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, final

from dpaudit.errors import InvalidInputError
from dpaudit.game.coins import Key
from dpaudit.game.design import Design
from dpaudit.game.result import Result
from dpaudit.tables.columns import USUAL, ColumnNames
from dpaudit.tables.lists import (
    ScoreLists,
    holds_lists,
    read_both_lists,
    read_score_list,
)
from dpaudit.tables.reading import (
    ScoreTable,
    files_of,
    joined_tables,
    read_score_table,
    shown_files,
)
from dpaudit.tables.tally import (
    ScoreTally,
    Shard,
    conclude_scores,
    tally_scores,
    unseen_in_tallies,
)

__all__ = ["ScoreFolder", "Scores", "read_folder", "read_scores"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreFolder:
    """Parquet files of scores that are read together, some rows at a time.

    Attributes:
        files: The files.
        canaries: How many rows they hold.
        check_ids: Whether to see that ids are 0, 1, ..., each once.
        columns: What the columns are called.
        progress: Told how many rows were read since it was told last.
    """

    files: tuple[Path, ...]
    canaries: int
    check_ids: bool = True
    columns: ColumnNames = USUAL
    progress: Callable[[int], None] = lambda _rows: None

    def tally(self, design: Design, key: Key | None = None) -> ScoreTally:
        """Tally all files in this process."""
        shard = Shard(
            files=self.files,
            design=design,
            key=key,
            check_ids=self.check_ids,
            columns=self.columns,
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
    path: Path | None,
    included: Path | None = None,
    excluded: Path | None = None,
    *,
    columns: ColumnNames = USUAL,
) -> Scores:
    """Return the scores of a file, of a folder, or of two lists in a file each."""
    if path is not None and included is None and excluded is None:
        if path.is_dir():
            return _read_directory(path, columns)
        if holds_lists(path):
            return read_both_lists(path)
        return read_score_table(path, columns=columns)
    if path is None and included is not None and excluded is not None:
        return ScoreLists(
            included=read_score_list(included, columns=columns),
            excluded=read_score_list(excluded, columns=columns),
        )
    raise InvalidInputError("give either a file of scores, or --in and --out")


def _read_directory(path: Path, columns: ColumnNames) -> ScoreTable | ScoreFolder:
    """Return one table of all .csv files of a directory, or its .parquet files."""
    kinds = {each.suffix.lower() for each in shown_files(path)} & {".csv", ".parquet"}
    if kinds != {".csv"}:
        if ".csv" in kinds:
            raise InvalidInputError(
                f"{path} holds .csv and .parquet files; name a directory of one kind"
            )
        return read_folder([path], columns=columns)
    files = files_of([path], ".csv")
    return joined_tables([read_score_table(file, columns=columns) for file in files])


def read_folder(
    paths: Sequence[Path], *, check_ids: bool = True, columns: ColumnNames = USUAL
) -> ScoreFolder:
    """Return the Parquet files that are named or that directories hold, counted."""
    from dpaudit.tables.parquet import count_rows  # noqa: PLC0415 (an extra)

    files = files_of(paths, ".parquet")
    rows = count_rows(files)
    if not rows:
        raise InvalidInputError(f"there is no row in any file of {paths[0]}")
    return ScoreFolder(
        files=tuple(files), canaries=rows, check_ids=check_ids, columns=columns
    )
