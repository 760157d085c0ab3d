"""What commands do alike: say that they work, check a picture, write numbers."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

__all__ = ["check_picture", "json_number", "patience"]

_PATIENCE = 2.0  # seconds without a word


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


def check_picture(picture: Path | None) -> None:
    """Refuse a picture that cannot be drawn before anything is computed."""
    if picture is None:
        return
    from dpaudit.reporting.plots import check_suffix  # noqa: PLC0415 (needs its extra)

    check_suffix(picture)


def json_number(value: float | None) -> float | str | None:
    """Return a number as JSON can hold it; infinity is the text "inf"."""
    return value if value is None or abs(value) < float("inf") else f"{value}"
