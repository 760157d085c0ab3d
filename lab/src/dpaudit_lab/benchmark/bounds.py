"""Bounds from the same scores: ours, the published one, and other tools'.

The comparison itself is ``experiments.power``; here its rows get the memory that each
method takes, and the form that all rows of the benchmark have.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import final

import numpy as np

from dpaudit_lab.benchmark.memory import growth
from dpaudit_lab.benchmark.row import Bound, Cost, Part, Row
from dpaudit_lab.power import table
from dpaudit_lab.power.methods import Method, methods
from dpaudit_lab.power.peers import PEERS, Peer
from dpaudit_lab.power.plan import Guesses, guesses_of, planned_setting
from dpaudit_lab.power.task import Draw, Task, draw, task_of
from dpaudit_lab.sweeps.store import Outcome, Setting, Store
from dpaudit_lab.sweeps.sweep import Sweep

__all__ = ["Bounds", "memory_trial"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The comparison of bounds.

    Attributes:
        comparison: What is compared.
        installed: Peers that can be called here.
    """

    comparison: table.Comparison
    installed: tuple[Peer, ...]

    def sweeps(self) -> list[Sweep]:
        """Return the sweeps that fill its rows."""
        wanted = self.comparison.sweeps()
        for peer in self.installed:
            wanted += self.comparison.peer_sweeps(peer)
        return [*wanted, *self._memory()]

    def rows(self, store: Store) -> list[Row]:
        """Return its rows; what the store does not hold is left out."""
        return [self._row(store, row) for row in self.comparison.table(store)]

    def left_out(self, store: Store) -> list[str]:
        """Return which rows are missing, and how to get them."""
        planned = [
            f"weighted guesses are left out at {task.canaries:,} canaries: planned, "
            "they are expected to show no more than counting does"
            for task, guesses in self.comparison.plans.items()
            if guesses.weighted is None
        ]
        return [*planned, *self._too_slow(), *self._not_installed(store)]

    def _too_slow(self) -> list[str]:
        most = max(task.canaries for task in self.comparison.plans)
        slow = [peer for peer in self.installed if peer.most_canaries < most]
        return [
            f"{table.NAMES[key].format(self.comparison.versions[peer.name])} is left "
            f"out above {peer.most_canaries:,} canaries: it takes too long"
            for peer in slow
            for key, whose in table.PEER_OF.items()
            if whose == peer.name
        ]

    def _not_installed(self, store: Store) -> list[str]:
        there = {table.PEER_OF.get(row.key) for row in self.comparison.table(store)}
        return [
            f"{peer.name} is not installed, so its rows are left out; to get them, in "
            f"an environment of their own: {peer.how_to_get_it}"
            for peer in PEERS.values()
            if peer.name not in there and peer not in self.installed
        ]

    def _memory(self) -> list[Sweep]:
        """Return what measures memory, if costs are wanted at all."""
        settings = [
            self._memory_setting(task, method.key)
            for task, guesses in self.comparison.plans.items()
            for method in (*methods(guesses), *self._theirs(task, guesses))
        ]
        return [_memory_sweep(settings)] if self.comparison.pairs else []

    def _theirs(self, task: Task, guesses: Guesses) -> list[Method]:
        taking = [peer for peer in self.installed if peer.takes(task)]
        return [method for peer in taking for method in peer.methods(guesses)]

    def _memory_setting(self, task: Task, key: str) -> Setting:
        whose = table.PEER_OF.get(key, "")
        named = {"method": key, "version": self.comparison.versions.get(whose)}
        return {**planned_setting(task, self.comparison.plans[task]), **named}

    def _row(self, store: Store, row: table.Row) -> Row:
        (task,) = [t for t in self.comparison.plans if t.canaries == row.canaries]
        setting = self._memory_setting(task, row.key)
        memory = _memory_sweep([setting]).columns(store, setting).get("memory")
        return Row(
            part=Part.BOUNDS,
            size=f"{row.canaries:,} canaries",
            method=row.method,
            ours=row.ours,
            cost=Cost(
                seconds=row.seconds,
                ratio=None if row.key == table.COMPARED_WITH else row.ratio,
                memory=memory[0] if memory and self.comparison.pairs else None,
            ),
            bound=Bound(mean=row.mean, error=row.error, draws=row.draws),
            wrong=row.wrong,
            guesses=row.guesses,
        )


def memory_trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Measure the memory of one method on the first draw of a task."""
    del rng
    task, guesses = task_of(setting), guesses_of(setting)
    found = growth(
        partial(_ready, task, guesses, str(setting["method"])), _bound_of_draw
    )
    return {"memory": found}


def _memory_sweep(settings: Sequence[Setting]) -> Sweep:
    return Sweep(
        name="power, memory",
        revision=1,
        function=memory_trial,
        settings=settings,
        trials=1,
    )


def _ready(task: Task, guesses: Guesses, key: str) -> tuple[Method, Draw]:
    """Return a method, imported, and a draw."""
    if key in table.PEER_OF:
        PEERS[table.PEER_OF[key]].load()
    theirs = [m for peer in PEERS.values() for m in peer.methods(guesses)]
    (method,) = [m for m in (*methods(guesses), *theirs) if m.key == key]
    return method, draw(task, 0)


def _bound_of_draw(prepared: tuple[Method, Draw]) -> float:
    method, drawn = prepared
    return method.epsilon_lower(drawn)
