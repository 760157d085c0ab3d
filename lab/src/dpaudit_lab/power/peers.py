"""Other tools that get the same scores, and how their trials are kept beside ours.

A peer is no dependency of dpaudit: it is imported where it is called. Its trials are
stored under its version, so that a table can be made where it is not installed from a
store that was filled where it is. One call gives both the bound and its time; our
ranked bound is timed on the same draw, in turn.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from types import MappingProxyType
from typing import Final, final

import numpy as np

from dpaudit_lab.power import jax_privacy, privacy_guard, published
from dpaudit_lab.power.jax_privacy import JaxPrivacyDefault, JaxPrivacySplit
from dpaudit_lab.power.methods import Method, RankedAll
from dpaudit_lab.power.nulls import Null, null_draw
from dpaudit_lab.power.plan import Guesses, guesses_of, planned_setting
from dpaudit_lab.power.privacy_guard import PrivacyGuardNode
from dpaudit_lab.power.published import PublishedLoop
from dpaudit_lab.power.task import Task, draw, draw_number, task_of
from dpaudit_lab.power.timing import cpu
from dpaudit_lab.sweeps.store import Outcome, Setting
from dpaudit_lab.sweeps.sweep import Sweep

__all__ = [
    "PEERS",
    "Peer",
    "peer_null_sweep",
    "peer_null_trial",
    "peer_sweep",
    "peer_trial",
]

_REVISION = 2


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another tool, and how much of it there is time for.

    Attributes:
        name: Its name here and in a store.
        module: What is imported; None if nothing is.
        package: What is installed, of which there are versions.
        measured: The version that was measured last, for stores filled elsewhere.
        how_to_get_it: The command.
        load: Imports it.
        methods: What it offers, given the guesses that were planned.
        most_canaries: More take too long.
        canaries: How many there is time for, in all draws of a task together.
        few: Draws that there are at least, if there are as many of ours.
        nulls: The most draws of known truth.
    """

    name: str
    module: str | None
    package: str
    measured: str
    how_to_get_it: str
    load: Callable[[], object]
    methods: Callable[[Guesses], tuple[Method, ...]]
    most_canaries: int
    canaries: int
    few: int
    nulls: int

    def installed(self) -> str | None:
        """Return the version that is installed, if any is."""
        if self.module is None:
            return self.measured
        if find_spec(self.module) is None:
            return None
        try:
            return version(self.package)
        except PackageNotFoundError:
            return "of unknown version"

    def takes(self, task: Task) -> bool:
        """Return whether there is time for the task."""
        return task.canaries <= self.most_canaries

    def draws(self, task: Task, trials: int) -> int:
        """Return of how many draws there is time for, if ours are so many."""
        return min(trials, max(self.few, self.canaries // task.canaries))


_REQUIREMENTS: Final = "pip install -r lab/measure/peers-requirements.txt"

PEERS: Mapping[str, Peer] = MappingProxyType(
    {
        peer.name: peer
        for peer in (
            Peer(
                name="Steinke et al.",
                module=None,
                package="",
                measured="2305.08846",
                how_to_get_it="",
                load=published.load,
                methods=lambda planned: (PublishedLoop(guesses=planned.steinke),),
                most_canaries=100_000,
                canaries=0,
                few=20,
                nulls=0,  # the same number as by our way
            ),
            Peer(
                name="jax-privacy",
                module="jax_privacy",
                package="jax-privacy",
                measured="2.0.0",
                how_to_get_it=_REQUIREMENTS,
                load=jax_privacy.load,
                methods=lambda _planned: (JaxPrivacyDefault(), JaxPrivacySplit()),
                most_canaries=10**9,
                canaries=2_000_000,
                few=10,
                nulls=10**9,
            ),
            Peer(
                name="PrivacyGuard",
                module="privacy_guard",
                package="privacyguard-platform",
                measured="0.0.2",
                how_to_get_it="pip install --no-deps privacyguard-platform==0.0.2",
                load=privacy_guard.load,
                methods=lambda planned: (PrivacyGuardNode(guesses=planned.steinke),),
                most_canaries=1000,
                canaries=0,
                few=10,
                nulls=10,
            ),
        )
    }
)


def peer_trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Bound by a peer the draw that ours bound in the trial so numbered, and time it.

    The key of a method gives its bound, with " seconds" after it the CPU time.
    """
    drawn = draw(task_of(setting), draw_number(rng))
    PEERS[str(setting["peer"])].load()  # its import is not timed
    found: dict[str, float] = {}
    for method in (RankedAll(), *_methods(setting)):
        bounds: list[float] = []
        seconds = cpu(lambda m, to: to.append(m.epsilon_lower(drawn)), method, bounds)
        found |= {method.key: bounds[0], f"{method.key} seconds": seconds}
    return found


def peer_null_trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Bound by a peer the null draw that ours bound in the trial so numbered."""
    null = Null(epsilon=float(setting["null"] or 0))
    drawn = null_draw(task_of(setting), null, draw_number(rng))
    return {method.key: method.epsilon_lower(drawn) for method in _methods(setting)}


def peer_sweep(
    peer: Peer, version: str, task: Task, guesses: Guesses, *, trials: int
) -> Sweep:
    """Return what bounds draws of a task by a peer, as many as there is time for."""
    return Sweep(
        name=f"power, {peer.name}",
        revision=_REVISION,
        function=peer_trial,
        settings=[_setting(peer, version, task, guesses)],
        trials=peer.draws(task, trials),
    )


def peer_null_sweep(
    peer: Peer, version: str, task: Task, guesses: Guesses, null: Null, *, trials: int
) -> Sweep:
    """Return what bounds null draws by a peer, as many as there is time for."""
    return Sweep(
        name=f"power, {peer.name} where the truth is known",
        revision=_REVISION,
        function=peer_null_trial,
        settings=[_setting(peer, version, task, guesses) | {"null": null.epsilon}],
        trials=min(trials, peer.nulls),
    )


def _setting(
    peer: Peer, version: str, task: Task, guesses: Guesses
) -> dict[str, str | int | float | None]:
    named = {"peer": peer.name, "version": version}
    return {**planned_setting(task, guesses), **named}


def _methods(setting: Setting) -> tuple[Method, ...]:
    return PEERS[str(setting["peer"])].methods(guesses_of(setting))
