"""Folders of scores as commands read them: watched."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, TypeAlias

import typer

__all__ = ["SkipIdsOption", "watched_rows"]

SkipIdsOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--skip-id-checks",
        help="Do not see that ids are 0, 1, ..., each once; a key needs them.",
    ),
]


@contextmanager
def watched_rows(total: int) -> Iterator[Callable[[int], None]]:
    """Yield what is told of rows that were read, and shows how far that is."""
    from dpaudit.engines.progress import Progress  # noqa: PLC0415
    from dpaudit.reporting.live import ROWS, watched  # noqa: PLC0415

    rows = 0
    with watched("reading", words=ROWS) as show:

        def tell(more: int) -> None:
            nonlocal rows
            rows += more
            show(Progress(done=rows, failed=0, total=total, cells_done=0, cells=0))

        tell(0)
        yield tell
