"""Ours beside something bare that does the same work: time and memory, nothing else.

What adapters and tables have in common: trials that time all ways in turn,
trials that measure the memory of each, and one way, called ``bare``, that the others
are compared with.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

from dpaudit import _validate
from dpaudit_lab.benchmark.row import Part, Row, cost_of
from dpaudit_lab.sweeps.store import Setting, Store
from dpaudit_lab.sweeps.sweep import Sweep, TrialFunction

__all__ = ["BARE", "Costs", "not_installed"]

BARE: Final = "bare"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The comparison of costs with those of something bare.

    Attributes:
        part: Of the benchmark.
        settings: What is done, in every way.
        times: From a setting to the CPU seconds of every way.
        memory: From a setting to the MiB of every way.
        size: Says in words how much is done.
        names: From a setting to what the ways are called; bare is the last.
        missing: What is left out, and how to get it.
        pairs: How often every way is timed; 0 for no costs, and so no rows.
    """

    part: Part
    settings: Sequence[Setting]
    times: TrialFunction
    memory: TrialFunction
    size: Callable[[Setting], str]
    names: Callable[[Setting], Mapping[str, str]]
    missing: tuple[str, ...] = ()
    pairs: int = 20

    def __post_init__(self) -> None:
        _validate.whole_number("pairs", self.pairs)

    def sweeps(self) -> list[Sweep]:
        """Return the sweeps that fill its rows."""
        return [
            self._sweep("times", self.times, self.pairs),
            self._sweep("memory", self.memory, min(1, self.pairs)),
        ]

    def rows(self, store: Store) -> list[Row]:
        """Return its rows; what the store does not hold is left out."""
        return [row for setting in self.settings for row in self._rows(store, setting)]

    def left_out(self, store: Store) -> list[str]:
        """Return which rows are missing, and how to get them."""
        del store  # where a version is not known, nor are its rows
        return list(self.missing)

    def _rows(self, store: Store, setting: Setting) -> Iterator[Row]:
        times, memory = (sweep.columns(store, setting) for sweep in self.sweeps())
        for way, name in self.names(setting).items() if times else ():
            yield Row(
                part=self.part,
                size=self.size(setting),
                method=name,
                ours=way != BARE,
                cost=cost_of(times[way], times[BARE], memory.get(way, [])),
            )

    def _sweep(self, name: str, function: TrialFunction, trials: int) -> Sweep:
        return Sweep(
            name=f"{self.part.value}, {name}",
            revision=1,
            function=function,
            settings=self.settings,
            trials=trials,
        )


def not_installed(package: str, extra: str) -> str:
    """Say that a package is not there, and how to get it."""
    return (
        f"{package} is not installed, so its rows are left out: pip install "
        f"'dpaudit[{extra}]'"
    )
