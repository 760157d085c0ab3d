"""How far a sweep is, and the means so far of the setting that it is at."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from dpaudit.engines.progress import Progress
from dpaudit_lab.sweeps.store import Cell, Found, Outcome, Store

__all__ = ["Tally"]

_LARGEST = sys.float_info.max  # integers may be larger; they have no mean


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
