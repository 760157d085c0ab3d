"""A word on standard error about what takes long, for commands and from Python."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

__all__ = ["progress_note"]

_SECONDS_BEFORE_NOTE = 2.0  # seconds without a word
_CLEAR = "\r\x1b[K"  # the line of a terminal
_busy: list[str] = []  # what is being done: the outermost announces it


@contextmanager
def progress_note(doing: str, *, quiet: bool = False) -> Iterator[None]:
    """Announce what is being done if it takes long, unless something else does.

    It also decorates a function. Where nobody watches, be it a terminal or a notebook,
    nothing is printed.

    Example:
        >>> with progress_note("counting"):
        ...     sum(range(10))
        45
    """
    terminal = sys.stderr.isatty()
    if quiet or _busy or not (terminal or "ipykernel" in sys.modules):
        yield
        return
    notes: list[str] = []

    def announce() -> None:
        notes.append(f"dpaudit: {doing} ...")
        print(notes[0], end="" if terminal else "\n", file=sys.stderr, flush=True)

    timer = Timer(_SECONDS_BEFORE_NOTE, announce)
    timer.daemon = True
    _busy.append(doing)
    timer.start()
    try:
        yield
    finally:
        _busy.clear()
        timer.cancel()
        timer.join()  # so that a note about to be printed is printed, then cleared
        if notes and terminal:
            print(_CLEAR, end="", file=sys.stderr, flush=True)
