"""How far a sweep is, and the means so far of the setting that it is at."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self, final

from dpaudit.reporting.live import Speed, shown
from dpaudit_lab.sweeps.store import Cell, Found, Outcome, Store

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Progress", "Tally", "line", "watched"]

_LARGEST = sys.float_info.max  # integers may be larger; they have no mean
_MEANS = 4  # shown at most


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a sweep is.

    Attributes:
        done: Trials in the store, of those wanted.
        failed: Trials that raised, this time.
        total: Trials wanted.
        cells_done: Settings of which no trial is left to run.
        cells: Settings.
        setting: The one that last reported, as JSON; None before the first one does.
        means: Means of its numbers, over all its trials in the store.
    """

    done: int
    failed: int
    total: int
    cells_done: int
    cells: int
    setting: str | None = None
    means: Mapping[str, float] = field(default_factory=dict)

    @property
    def ran(self) -> int:
        """How many trials are over, failed ones among them."""
        return self.done + self.failed


@dataclass(slots=True)
class _Sums:
    """Sums of a cell's numbers, and how many trials had each."""

    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        for name, value in outcome.items():
            if isinstance(value, int | float) and abs(value) <= _LARGEST:
                self.sums[name] = self.sums.get(name, 0.0) + value
                self.counts[name] = self.counts.get(name, 0) + 1

    def means(self) -> dict[str, float]:
        return {name: total / self.counts[name] for name, total in self.sums.items()}


@dataclass(slots=True)
class Tally:
    """Keeps count while a sweep runs.

    Attributes:
        progress: How far it is.
        left: Trials of each cell that were not run yet.
        failed: Which ones of each cell failed, this time.
        sums: What means are made of.
    """

    progress: Progress
    left: dict[Cell, int]
    failed: dict[Cell, set[int]]
    sums: dict[Cell, _Sums]

    @classmethod
    def start(cls, store: Store, cells: Iterable[Cell], *, trials: int) -> Self:
        """Count what a store holds before a sweep begins."""
        left = {cell: trials - store.count(cell, trials) for cell in cells}
        sums = {cell: _Sums() for cell in left}
        for cell, todo in left.items():
            if 0 < todo < trials:  # what is complete is not shown any more
                for outcome in store.outcomes(cell):
                    sums[cell].add(outcome)
        total = trials * len(left)
        progress = Progress(
            done=total - sum(left.values()),
            failed=0,
            total=total,
            cells_done=sum(todo == 0 for todo in left.values()),
            cells=len(left),
        )
        failed: dict[Cell, set[int]] = {cell: set() for cell in left}
        return cls(progress=progress, left=left, failed=failed, sums=sums)

    def add(self, batch: Iterable[Found]) -> None:
        """Count what a batch brought."""
        before = self.progress
        means, setting = before.means, before.setting
        done, failed, cells_done = before.done, before.failed, before.cells_done
        for found in batch:
            ran = len(found.outcomes) + len(found.failures)
            if not ran:
                continue
            cell = found.cell
            setting = cell.setting
            for _, outcome in found.outcomes:
                self.sums[cell].add(outcome)
            means = self.sums[cell].means()
            done += len(found.outcomes)
            failed += len(found.failures)
            self.failed[cell].update(trial for trial, _ in found.failures)
            self.left[cell] -= ran
            cells_done += self.left[cell] == 0
        self.progress = Progress(
            done=done,
            failed=failed,
            total=before.total,
            cells_done=cells_done,
            cells=before.cells,
            setting=setting,
            means=means,
        )


@contextmanager
def watched(
    doing: str, console: "Console | None" = None
) -> Iterator[Callable[[Progress], None]]:
    """Show a sweep while it runs, on standard error or a console.

    Yields:
        What ``run`` tells its progress to.
    """
    speed = Speed()
    with shown(console) as show:
        yield lambda now: show(now.ran, now.total, line(doing, now, speed))


def line(doing: str, progress: Progress, speed: Speed) -> str:
    """Return in one line how far a sweep is.

    Example:
        >>> halfway = Progress(done=50, failed=0, total=100, cells_done=1, cells=4)
        >>> line("drawing", halfway, Speed())
        'drawing: 50 of 100 trials, 1 of 4 settings'
    """
    parts = [
        f"{doing}: {progress.done:,} of {progress.total:,} trials",
        f"{progress.cells_done} of {progress.cells} settings",
        *speed.parts(progress.ran, progress.total, "trials"),
    ]
    if progress.failed:
        parts.append(f"{progress.failed} failed")
    return "; ".join([", ".join(parts), *_means(progress)])


def _means(progress: Progress) -> list[str]:
    """Return the setting that last reported with its means so far, if any did."""
    if progress.setting is None or not progress.means:
        return []
    names = (f"{n} = {value}" for n, value in json.loads(progress.setting).items())
    means = (f"{n} {mean:.4g}" for n, mean in list(progress.means.items())[:_MEANS])
    setting = ", ".join(names)
    return [*([setting] if setting else []), f"means so far: {', '.join(means)}"]
