"""Tables of scores as commands read them: their columns named, folders watched."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, TypeAlias

import typer

from dpaudit.cli import _library as lib
from dpaudit.engines.progress import Progress
from dpaudit.reporting.live import ROWS, watched

__all__ = [
    "IdOption",
    "IncludedOption",
    "ScoreOption",
    "SkipIdsOption",
    "column_names",
    "watched_rows",
]

IdOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--id", help="Column of the canaries' ids, if not id.", metavar="<column>"
    ),
]
IncludedOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--included",
        help="Column that is 1 for included canaries, if not bit.",
        metavar="<column>",
    ),
]
ScoreOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--score", help="Column of scores, if not score.", metavar="<column>"),
]

SkipIdsOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--skip-id-checks",
        help="Do not see that ids are 0, 1, ..., each once; a key needs them.",
    ),
]


def column_names(
    id_column: str | None, included_column: str | None, score_column: str | None
) -> "lib.ColumnNames":
    """Return what options call the columns."""
    return lib.ColumnNames(id=id_column, included=included_column, score=score_column)


@contextmanager
def watched_rows(total: int) -> Iterator[Callable[[int], None]]:
    """Yield what is told of rows that were read, and shows how far that is."""
    rows = 0
    with watched("reading", words=ROWS) as show:

        def tell(more: int) -> None:
            nonlocal rows
            rows += more
            show(Progress(done=rows, failed=0, total=total, cells_done=0, cells=0))

        tell(0)
        yield tell
