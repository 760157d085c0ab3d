"""A figure of the paper: what it claims, how it is measured, how it is read.

The measuring is sweeps of trials; figures that name the same sweep share its trials.
The reading is a function of a store alone, to a chart and to what was found.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, final

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit_lab.paper.findings import Finding
from dpaudit_lab.pictures.chart import Chart
from dpaudit_lab.sweeps.store import Setting, Store
from dpaudit_lab.sweeps.sweep import Sweep

__all__ = ["Figure", "Reproduced", "number", "rows"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduced:
    """A figure as it came out.

    Attributes:
        chart: The curves.
        findings: The paper's statements beside what was measured.
    """

    chart: Chart
    findings: tuple[Finding, ...]


Planning: TypeAlias = Callable[[int], tuple[Sweep, ...]]
Reading: TypeAlias = Callable[[Store, tuple[Sweep, ...]], Reproduced]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of the paper.

    Attributes:
        name: What the command calls it.
        label: What the paper's LaTeX source calls it.
        number: What the paper numbers it.
        shows: What it shows, in a few words.
        claim: What the paper says about it.
        paper_repeats: How many experiments each of the paper's points is the mean of;
            None if its curve is computed, without experiments.
        repeats: How many are run here unless told otherwise: the paper's, if it has
            any.
        plan: From a number of repeats to the sweeps.
        read: From a store that holds these sweeps to what came out.
    """

    name: str
    label: str
    number: int
    shows: str
    claim: str
    paper_repeats: int | None
    repeats: int
    plan: Planning
    read: Reading

    def __post_init__(self) -> None:
        if self.paper_repeats not in (None, self.repeats):
            raise InvalidInputError(
                f"repeats must be the paper's, {self.paper_repeats}, got "
                f"repeats={self.repeats!r}; others are given to sweeps()"
            )

    def sweeps(self, repeats: int | None = None) -> tuple[Sweep, ...]:
        """Return what must be run, with the repeats of the figure or with others."""
        if repeats is None:
            return self.plan(self.repeats)
        _validate.whole_number("--trials", repeats, least=2)  # for a standard error
        return self.plan(repeats)


def rows(store: Store, sweep: Sweep, setting: Setting) -> list[dict[str, Any]]:
    """Return the outcomes of a setting, as many as the sweep asks for."""
    found = list(store.outcomes(sweep.cell(setting), sweep.trials))
    if len(found) < sweep.trials:
        raise InvalidInputError(
            f"the store holds {len(found)} of {sweep.trials} trials of {sweep.name} "
            f"at {dict(setting)}; run the sweep first"
        )
    return found


def number(setting: Setting, name: str) -> float:
    """Return a number of a setting."""
    value = setting[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInputError(f"{name} must be a number, got {value!r}")
    return value
