"""A long run, as it goes: a bar on a terminal, a plain line now and then elsewhere."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from dpaudit.engines.progress import Progress

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["ROWS", "TRIALS", "Speed", "Words", "line", "watched"]

LINE_SECONDS: Final = 10.0  # between plain lines
_MEANS: Final = 4  # shown at most


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """What is counted, and what it comes in.

    Attributes:
        ones: What is done one by one.
        groups: What these belong to; None if that is not told.
    """

    ones: str
    groups: str | None


TRIALS: Final = Words(ones="trials", groups="settings")
ROWS: Final = Words(ones="rows", groups=None)


@dataclass(slots=True)
class Speed:
    """How fast trials come, since watching began.

    Attributes:
        clock: Tells the time in seconds.
    """

    clock: Callable[[], float] = time.monotonic
    _began: float = 0.0
    _at_first: int | None = field(default=None)

    def per_second(self, progress: Progress) -> float | None:
        """Return trials per second; None until some came."""
        ran = progress.done + progress.failed
        if self._at_first is None:
            self._began, self._at_first = self.clock(), ran
        seconds = self.clock() - self._began
        if ran == self._at_first or seconds <= 0:
            return None
        return (ran - self._at_first) / seconds

    def left(self, progress: Progress) -> float | None:
        """Return the seconds left at this speed; None if it is not known yet."""
        speed = self.per_second(progress)
        if speed is None:
            return None
        return (progress.total - progress.done - progress.failed) / speed


def line(doing: str, progress: Progress, speed: Speed, words: Words = TRIALS) -> str:
    """Return in one line how far a sweep is.

    Example:
        >>> halfway = Progress(done=50, failed=0, total=100, cells_done=1, cells=4)
        >>> line("drawing", halfway, Speed())
        'drawing: 50 of 100 trials, 1 of 4 settings'
    """
    parts = [f"{doing}: {progress.done:,} of {progress.total:,} {words.ones}"]
    if words.groups is not None:
        parts.append(f"{progress.cells_done} of {progress.cells} {words.groups}")
    per_second, left = speed.per_second(progress), speed.left(progress)
    if per_second is not None and left is not None:
        parts += [f"{per_second:.3g} {words.ones}/s", f"{_duration(left)} left"]
    if progress.failed:
        parts.append(f"{progress.failed} failed")
    return "; ".join([", ".join(parts), *_means(progress)])


@contextmanager
def watched(
    doing: str, console: "Console | None" = None, *, words: Words = TRIALS
) -> Iterator[Callable[[Progress], None]]:
    """Show a sweep while it runs, on standard error.

    Args:
        doing: What is being done, in a word or two.
        console: Where to show it instead.
        words: What is counted.

    Yields:
        What ``run`` tells its progress to.
    """
    from rich.console import Console  # noqa: PLC0415 (slow to import)

    console = console or Console(stderr=True)
    shown = _bar if console.is_terminal else _lines
    with shown(doing, console, words) as show:
        yield show


@contextmanager
def _lines(
    doing: str, console: "Console", words: Words
) -> Iterator[Callable[[Progress], None]]:
    speed, last = Speed(), time.monotonic()

    def show(progress: Progress) -> None:
        nonlocal last
        speed.per_second(progress)  # starts its clock
        if time.monotonic() - last >= LINE_SECONDS:
            last = time.monotonic()
            said = line(doing, progress, speed, words)
            console.print(said, soft_wrap=True, markup=False)

    yield show


@contextmanager
def _bar(
    doing: str, console: "Console", words: Words
) -> Iterator[Callable[[Progress], None]]:
    from rich.console import Group  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415
    from rich.progress_bar import ProgressBar  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    speed = Speed()
    with Live(console=console, refresh_per_second=8, transient=True) as live:

        def show(progress: Progress) -> None:
            ran = progress.done + progress.failed
            bar = ProgressBar(total=max(progress.total, 1), completed=ran, width=40)
            text, *means = line(doing, progress, speed, words).split("; ")
            live.update(Group(Text(text), bar, *(Text(m, style="dim") for m in means)))

        yield show


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _means(progress: Progress) -> list[str]:
    """Return the setting that last reported with its means so far, if any did."""
    if progress.setting is None or not progress.means:
        return []
    shown = list(progress.means.items())[:_MEANS]
    means = ", ".join(f"{name} {mean:.4g}" for name, mean in shown)
    return [f"{_named(json.loads(progress.setting))}means so far: {means}"]


def _named(setting: Mapping[str, object]) -> str:
    names = ", ".join(f"{name} = {value}" for name, value in setting.items())
    return f"{names}; " if names else ""
