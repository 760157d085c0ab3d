"""The table of a comparison: which sweeps fill it, and what it makes of a store.

One row per method and number of canaries: the mean bound with its standard error over
the draws, the median CPU time, the median ratio to the ranked bound's time on the same
draws, and how often the method was above the truth where that is known. What a store
does not hold is left out, so a table can be made where a peer is not installed from a
store that was filled where it is.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from typing import final

import numpy as np

from dpaudit import _validate
from dpaudit.stats.intervals import standard_error
from dpaudit_lab.power.nulls import MOST_CANARIES, NULLS, Null, Wrong
from dpaudit_lab.power.peers import PEERS, Peer, peer_null_sweep, peer_sweep
from dpaudit_lab.power.plan import Guesses
from dpaudit_lab.power.sweeps import bound_sweep, null_sweep, time_sweep
from dpaudit_lab.power.task import Task
from dpaudit_lab.power.timing import Ratio, ratio_of
from dpaudit_lab.sweeps.store import Store
from dpaudit_lab.sweeps.sweep import Sweep

__all__ = ["COMPARED_WITH", "NAMES", "PEER_OF", "Comparison", "Row"]

COMPARED_WITH = "ranked"

# What a method is called, by its name in a store; {} is the version of the peer.
NAMES: dict[str, str] = {
    "exact": "exact, guesses planned",
    "ranked": "ranked, nothing planned",
    "weighted": "weighted, guesses planned",
    "steinke": "Steinke et al., guesses planned",
    "published": "Steinke et al., by the published loop",
    "jax_privacy": "jax-privacy {}, as it comes",
    "jax_privacy_split": "jax-privacy {}, Split",
    "privacy_guard": "PrivacyGuard {}, f-DP node (tier B)",
}
_OURS = ("exact", "ranked", "weighted")
PEER_OF = {
    "published": "Steinke et al.",
    "jax_privacy": "jax-privacy",
    "jax_privacy_split": "jax-privacy",
    "privacy_guard": "PrivacyGuard",
}
_PLANNED_AS = {"published": "steinke", "privacy_guard": "steinke"}
_ROUNDING = 1e-9  # of bounds that are found by a search
_NULLS_PER_DRAW = 3


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one method shows of so many canaries.

    Attributes:
        canaries: Canaries of each audit.
        key: The method's name in a store.
        method: What the method is called.
        ours: Whether it is one of dpaudit's own.
        guesses: How many guesses were planned; None if none were.
        draws: How many audits.
        mean: Mean lower bound on epsilon.
        error: Its standard error; None if there is a single draw.
        seconds: Median CPU time from scores to bound; None if it was not taken.
        ratio: How many times the ranked bound's CPU time that is.
        wrong: How often it was above a truth that is known.
    """

    canaries: int
    key: str
    method: str
    ours: bool
    guesses: int | None
    draws: int
    mean: float
    error: float | None
    seconds: float | None
    ratio: Ratio | None
    wrong: tuple[Wrong, ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What is compared, once the numbers of guesses are planned.

    Attributes:
        plans: The tasks, with the numbers of guesses planned for them.
        trials: Draws of each task.
        pairs: Draws on which methods are timed; 0 for none.
        versions: Versions of the peers, by name.
    """

    plans: Mapping[Task, Guesses]
    trials: Mapping[Task, int]
    pairs: int
    versions: Mapping[str, str]

    def __post_init__(self) -> None:
        _validate.whole_number("pairs", self.pairs)
        for trials in self.trials.values():
            _validate.whole_number("trials", trials, least=1)

    def sweeps(self) -> list[Sweep]:
        """Return what our rows need."""
        bounds = [self._bounds(task) for task in self.plans]
        nulls = [self._nulls(task, null) for task, null in self._known()]
        return [*bounds, *(self._times(task) for task in self.plans), *nulls]

    def peer_sweeps(self, peer: Peer) -> list[Sweep]:
        """Return what a peer's rows need."""
        tasks = [task for task in self.plans if peer.takes(task)]
        wanted = [self._peer(peer, task) for task in tasks]
        wanted += [
            self._peer_nulls(peer, task, null)
            for task, null in self._known()
            if peer.takes(task)
        ]
        return [sweep for sweep in wanted if sweep.trials]

    def table(self, store: Store) -> list[Row]:
        """Return the rows that a store holds, by number of canaries."""
        return list(chain.from_iterable(self._rows(store, task) for task in self.plans))

    def _rows(self, store: Store, task: Task) -> list[Row]:
        columns, wrong = self._columns(store, task), self._wrong(store, task)
        return [
            self._row(task, key, columns[key], wrong.get(key, ()))
            for key in NAMES
            if key in columns
        ]

    def _row(
        self, task: Task, key: str, column: "_Column", wrong: tuple[Wrong, ...]
    ) -> Row:
        bounds, times = column.bounds, column.times
        draws = len(bounds)
        whose = PEER_OF.get(key, "")
        return Row(
            canaries=task.canaries,
            key=key,
            method=NAMES[key].format(self.versions.get(whose, "")),
            ours=key in _OURS,
            guesses=asdict(self.plans[task]).get(_PLANNED_AS.get(key, key)),
            draws=draws,
            mean=float(np.mean(bounds)),
            error=standard_error(bounds),
            seconds=float(np.median(times)) if times else None,
            ratio=ratio_of(times, column.beside) if times else None,
            wrong=wrong,
        )

    def _columns(self, store: Store, task: Task) -> "dict[str, _Column]":
        """Return what a store holds of each method on the task."""
        times = _outcomes(store, self._times(task))
        beside = times.get(COMPARED_WITH, [])
        found = {
            key: _Column(bounds=bounds, times=times.get(key, []), beside=beside)
            for key, bounds in _outcomes(store, self._bounds(task)).items()
        }
        for peer in self._peers(task):
            theirs = _outcomes(store, self._peer(peer, task))
            found |= {
                key: _Column(
                    bounds=theirs[key],
                    times=theirs[f"{key} seconds"][: self.pairs],
                    beside=theirs[f"{COMPARED_WITH} seconds"][: self.pairs],
                )
                for key in theirs.keys() & PEER_OF.keys()
            }
        return found

    def _wrong(self, store: Store, task: Task) -> dict[str, tuple[Wrong, ...]]:
        """Return how often each method was above the truths that are known."""
        found: dict[str, tuple[Wrong, ...]] = {}
        for _, null in self._known([task]):
            bounds = _outcomes(store, self._nulls(task, null))
            for peer in self._peers(task):
                bounds |= _outcomes(store, self._peer_nulls(peer, task, null))
            truth = null.truth(task.delta) + _ROUNDING
            for key, seen in bounds.items():
                wrong = Wrong.of(seen, epsilon=null.epsilon, truth=truth)
                found[key] = (*found.get(key, ()), wrong)
        return found

    def _known(self, tasks: Iterable[Task] | None = None) -> list[tuple[Task, Null]]:
        """Return the tasks and nulls whose draws are not too many to be bounded."""
        some = self.plans if tasks is None else tasks
        few = [task for task in some if task.canaries <= MOST_CANARIES]
        return [(task, null) for task in few for null in NULLS]

    def _peers(self, task: Task) -> list[Peer]:
        known = [PEERS[name] for name in self.versions]
        return [peer for peer in known if peer.takes(task)]

    def _bounds(self, task: Task) -> Sweep:
        return bound_sweep(task, self.plans[task], trials=self.trials[task])

    def _times(self, task: Task) -> Sweep:
        return time_sweep(task, self.plans[task], pairs=self.pairs)

    def _nulls(self, task: Task, null: Null) -> Sweep:
        trials = _NULLS_PER_DRAW * self.trials[task]
        return null_sweep(task, self.plans[task], null, trials=trials)

    def _peer(self, peer: Peer, task: Task) -> Sweep:
        version, plan = self.versions[peer.name], self.plans[task]
        return peer_sweep(peer, version, task, plan, trials=self.trials[task])

    def _peer_nulls(self, peer: Peer, task: Task, null: Null) -> Sweep:
        version, plan = self.versions[peer.name], self.plans[task]
        trials = _NULLS_PER_DRAW * self.trials[task]
        return peer_null_sweep(peer, version, task, plan, null, trials=trials)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """The bounds of a method, its times, and the ranked bound's beside them."""

    bounds: list[float]
    times: list[float]
    beside: list[float]


def _outcomes(store: Store, sweep: Sweep) -> dict[str, list[float]]:
    """Return the outcomes of a sweep of one setting, name by name."""
    (setting,) = sweep.settings
    return sweep.columns(store, setting)
