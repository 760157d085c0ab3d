"""Directories of scores as commands read them: counted, tallied, watched."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias, final

import typer

from dpaudit.errors import InvalidInputError

if TYPE_CHECKING:
    from dpaudit.engines.engine import Engine
    from dpaudit.game.coins import Key
    from dpaudit.game.design import Design
    from dpaudit.tables.tally import ScoreTally

__all__ = ["Directory", "SkipIdsOption", "find_files", "tallied", "tallied_by"]

SkipIdsOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--skip-id-checks",
        help="Do not see that ids are 0, 1, ..., each once; a key needs them.",
    ),
]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """Files of scores that are read together, some rows at a time.

    Attributes:
        files: Parquet files.
        canaries: How many rows they hold.
    """

    files: tuple[Path, ...]
    canaries: int


def find_files(paths: Sequence[Path]) -> Directory:
    """Return the Parquet files that are named or that directories hold."""
    from dpaudit.tables.parquet import (  # noqa: PLC0415 (an extra)
        count_rows,
        parquet_files,
    )

    files = parquet_files(paths)
    rows = count_rows(files)
    if not rows:
        raise InvalidInputError(f"there is no row in any file of {paths[0]}")
    return Directory(files=tuple(files), canaries=rows)


def tallied(
    source: Directory, design: "Design", key: "Key | None", *, check_ids: bool
) -> "ScoreTally":
    """Tally files in this process, showing how far it is."""
    from dpaudit.tables.tally import Shard, tally_scores  # noqa: PLC0415

    shard = Shard(files=source.files, design=design, key=key, check_ids=check_ids)
    with _watched(source) as progress:
        return tally_scores(shard, progress=progress)


def tallied_by(
    engine: "Engine",
    source: Directory,
    design: "Design",
    key_file: Path | None,
    *,
    check_ids: bool,
) -> "ScoreTally":
    """Tally files on the workers of an engine, showing how far it is."""
    from dpaudit.tables.tally import tally_files  # noqa: PLC0415

    with _watched(source) as progress:
        return tally_files(
            source.files,
            design=design,
            engine=engine,
            key_file=key_file,
            check_ids=check_ids,
            progress=progress,
        )


@contextmanager
def _watched(source: Directory) -> Iterator[Callable[[int], None]]:
    from dpaudit.engines.progress import Progress  # noqa: PLC0415
    from dpaudit.reporting.live import ROWS, watched  # noqa: PLC0415

    rows = 0
    with watched("reading", words=ROWS) as show:

        def tell(more: int) -> None:
            nonlocal rows
            rows += more
            show(
                Progress(
                    done=rows, failed=0, total=source.canaries, cells_done=0, cells=0
                )
            )

        tell(0)
        yield tell
