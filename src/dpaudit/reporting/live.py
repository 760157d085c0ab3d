"""Progress of a long run: a bar on a terminal, otherwise a line every few seconds."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Show", "Speed", "shown", "watched"]

LINE_SECONDS: Final = 10.0  # between plain lines
Show: TypeAlias = Callable[[int, int, str], None]  # number done, total, line of text


@dataclass(slots=True)
class Speed:
    """The speed of a run, since the first call.

    Attributes:
        clock: Returns the time in seconds.
    """

    clock: Callable[[], float] = time.monotonic
    _began: float = 0.0
    _at_first: int | None = field(default=None)

    def parts(self, done: int, total: int, ones: str) -> list[str]:
        """Return the speed and the time left as text; nothing until some are done.

        Args:
            done: How many items are done.
            total: The number of all items.
            ones: The name of the items, in the plural.
        """
        if self._at_first is None:
            self._began, self._at_first = self.clock(), done
        seconds = self.clock() - self._began
        if done == self._at_first or seconds <= 0:
            return []
        speed = (done - self._at_first) / seconds
        return [f"{speed:.3g} {ones}/s", f"{_duration((total - done) / speed)} left"]


@contextmanager
def watched(
    doing: str, total: int, *, console: "Console | None" = None
) -> Iterator[Callable[[int], None]]:
    """Show on standard error how many rows are done.

    Args:
        doing: The activity, in a word or two.
        total: How many rows there are.
        console: The console to use instead of standard error.

    Yields:
        A function to call with the number of rows done since its last call.
    """
    speed, done = Speed(), 0
    with shown(console) as show:

        def tell(more: int) -> None:
            nonlocal done
            done += more
            parts = [f"{doing}: {done:,} of {total:,} rows"]
            show(done, total, ", ".join(parts + speed.parts(done, total, "rows")))

        tell(0)
        yield tell


@contextmanager
def shown(console: "Console | None" = None) -> Iterator[Show]:
    """Yield a function that shows progress; text after "; " goes below the bar."""
    from rich.console import Console  # noqa: PLC0415 (slow to import)

    console = console or Console(stderr=True)
    with (_bar if console.is_terminal else _lines)(console) as show:
        yield show


@contextmanager
def _lines(console: "Console") -> Iterator[Show]:
    last = time.monotonic()

    def show(_done: int, _total: int, line: str) -> None:
        nonlocal last
        if time.monotonic() - last >= LINE_SECONDS:
            last = time.monotonic()
            console.print(line, soft_wrap=True, markup=False)

    yield show


@contextmanager
def _bar(console: "Console") -> Iterator[Show]:
    from rich.console import Group  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415
    from rich.progress_bar import ProgressBar  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    with Live(console=console, refresh_per_second=8, transient=True) as live:

        def show(done: int, total: int, line: str) -> None:
            bar = ProgressBar(total=max(total, 1), completed=done, width=40)
            text, *below = line.split("; ")
            live.update(Group(Text(text), bar, *(Text(b, style="dim") for b in below)))

        yield show


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
