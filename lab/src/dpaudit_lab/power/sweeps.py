"""How much each method shows of the same scores, and how long it takes.

Every method turns the same scores and coins into a lower bound on epsilon, at the same
delta and alpha; the one that shows more is better, as long as it is valid.

Four sweeps fill a store: *plans*, the numbers of guesses that are fixed before any
draw; *bounds*, what each method shows of each draw; *times*, the CPU seconds of each
from scores to bound, one method after the other on one draw; and what each shows of
draws *where the truth is known*. Only the times depend on the machine. What peers show
is in sweeps of their own (``peers``), so that ours are the same whether or not a peer
is installed.

Reference: docs/explanation/others.md.
"""

from collections.abc import Iterable
from dataclasses import asdict

import numpy as np

from dpaudit_lab.power.methods import methods
from dpaudit_lab.power.nulls import Null, null_draw
from dpaudit_lab.power.plan import (
    Guesses,
    guesses_of,
    planned,
    planned_setting,
)
from dpaudit_lab.power.task import Task, draw, draw_number, task_of
from dpaudit_lab.power.timing import cpu
from dpaudit_lab.sweeps.store import Outcome, Setting, Store
from dpaudit_lab.sweeps.sweep import Sweep

__all__ = [
    "bound_sweep",
    "bound_trial",
    "default_trials",
    "null_sweep",
    "null_trial",
    "plan_sweep",
    "plan_trial",
    "plans",
    "time_sweep",
    "time_trial",
]

_REVISION = 1


def plan_trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Plan how many guesses to count; nothing is random."""
    del rng
    return asdict(planned(task_of(setting)))


def bound_trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Bound one draw by every method."""
    drawn = draw(task_of(setting), draw_number(rng))
    return {m.key: m.epsilon_lower(drawn) for m in methods(guesses_of(setting))}


def time_trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Time every method on one draw, one after the other, in CPU seconds."""
    drawn = draw(task_of(setting), draw_number(rng))
    return {m.key: cpu(m.epsilon_lower, drawn) for m in methods(guesses_of(setting))}


def null_trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Bound one draw of known truth by every method."""
    null = Null(epsilon=float(setting["null"] or 0))
    drawn = null_draw(task_of(setting), null, draw_number(rng))
    return {m.key: m.epsilon_lower(drawn) for m in methods(guesses_of(setting))}


def plan_sweep(tasks: Iterable[Task]) -> Sweep:
    """Return what plans the tasks."""
    return Sweep(
        name="power, plans",
        revision=_REVISION,
        function=plan_trial,
        settings=[asdict(task) for task in tasks],
        trials=1,
    )


def plans(store: Store, tasks: Iterable[Task]) -> dict[Task, Guesses]:
    """Return the plans that a store holds."""
    found = {}
    for task in tasks:
        cell = plan_sweep([task]).cell(asdict(task))
        for plan in store.outcomes(cell):
            found[task] = Guesses(**plan)
    return found


def bound_sweep(task: Task, guesses: Guesses, *, trials: int) -> Sweep:
    """Return what bounds that many draws of a task by every method of ours."""
    return Sweep(
        name="power, bounds",
        revision=_REVISION,
        function=bound_trial,
        settings=[planned_setting(task, guesses)],
        trials=trials,
    )


def time_sweep(task: Task, guesses: Guesses, *, pairs: int) -> Sweep:
    """Return what times every method of ours on that many draws of a task."""
    return Sweep(
        name="power, times",
        revision=_REVISION,
        function=time_trial,
        settings=[planned_setting(task, guesses)],
        trials=pairs,
    )


def null_sweep(task: Task, guesses: Guesses, null: Null, *, trials: int) -> Sweep:
    """Return what bounds that many draws of known truth by every method of ours."""
    return Sweep(
        name="power, where the truth is known",
        revision=_REVISION,
        function=null_trial,
        settings=[planned_setting(task, guesses) | {"null": null.epsilon}],
        trials=trials,
    )


def default_trials(task: Task) -> int:
    """Return how many draws make the standard error small, for the time it takes."""
    return 200 if task.canaries <= 100_000 else 50
