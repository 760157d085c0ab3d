"""What commands do alike: say that they work, check a picture, write numbers."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["check_picture", "json_number", "patience", "table_console"]

_PATIENCE = 2.0  # seconds without a word
_WIDE = 160  # characters


@contextmanager
def patience(doing: str) -> Iterator[None]:
    """Say what is being done if it takes long."""
    from rich.console import Console  # noqa: PLC0415 (slow to import)

    status = Console(stderr=True).status(f"{doing} ...")
    timer = Timer(_PATIENCE, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # so that a status about to start is started, then stopped
        status.stop()


def table_console() -> "Console":
    """Return what prints a table: as wide as the terminal, or wide where none is."""
    from rich.console import Console  # noqa: PLC0415 (slow to import)

    console = Console()
    if not console.is_terminal:
        console.width = _WIDE
    return console


def check_picture(picture: Path | None) -> None:
    """Refuse a picture that cannot be drawn before anything is computed."""
    if picture is None:
        return
    from dpaudit.reporting.plots import check_suffix  # noqa: PLC0415 (needs its extra)

    check_suffix(picture)


def json_number(value: float | None) -> float | str | None:
    """Return a number as JSON can hold it; infinity is the text "inf"."""
    return value if value is None or abs(value) < float("inf") else f"{value}"
