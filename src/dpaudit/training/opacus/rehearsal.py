"""Checks that the loop around the steps does not depend on records, in a rehearsal.

The state after a step is compared by ``interference``. But a loop may use records too:
to stop early, lower the learning rate, keep the best weights. So the user's whole loop
is run in copies of the process, with short epochs, for some steps or to its end, on the
data set as it is and with other records in place of its own, while the noise makes all
noisy sums equal. The settings that control the steps and all weights must then be equal
at every step, and at the end if it is reached. Weights that differ only at the end were
all trained privately: the choice of which to release depends on records.

The sampled records may differ: a sampler may use a record to decide about that record.
Then the number of steps is not compared.

A step of the wrapped optimizer without noise, on public data, must leave everything
equal as well. Where it does, such steps are skipped in the audit of the run.

The loop is also run with the noise that it draws itself (``rehearsed_noise``).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final, final

import numpy as np
import torch
from opacus.optimizers import DPOptimizer

from dpaudit.game.findings import (
    Finding,
    Stage,
    fault,
    inconclusive,
    inspected,
    noted,
)
from dpaudit.training.opacus.attachment import WrappedSteps
from dpaudit.training.opacus.interference import ForcedNoise
from dpaudit.training.opacus.isolated_step import Model, named_tensors
from dpaudit.training.opacus.loop_runner import (
    MOST_STEPS,
    EnoughError,
    LoopRunner,
    Places,
    Train,
)
from dpaudit.training.opacus.reachable import digest
from dpaudit.training.opacus.rehearsed_noise import noise_findings
from dpaudit.training.opacus.setup import Loader
from dpaudit.training.process_copy import CopyFailedError, in_copy

__all__ = ["Rehearsal", "Train", "rehearse"]

_MAX_NAMED: Final = 4  # differing tensors in a finding


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Moment:
    """The state to compare just before a step's noise, or after a step without noise.

    Attributes:
        weights: Digests of parameters and buffers.
        controls: The settings that control the step.
        bare: The place in the code of a step without noise; else "".
    """

    weights: tuple[str, ...]
    controls: str = ""
    bare: str = ""


@dataclass(slots=True)
class _Played:
    """The observations of one rehearsal.

    Attributes:
        moments: The states to compare, in order.
        sizes: Sizes of the batches that were drawn.
        end: Digests of parameters and buffers at the end, if the loop reached it.
        names: Names of the parameters and buffers.
        written: Those that were written to other than by the private optimizer.
    """

    moments: list[_Moment] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    end: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    written: set[str] = field(default_factory=set)

    @property
    def bare(self) -> list[str]:
        """The places in the code of all steps without noise."""
        return [moment.bare for moment in self.moments if moment.bare]

    @property
    def steps(self) -> int:
        """How many private steps were made."""
        return len(self.moments) - len(self.bare)


@final
class _Player:
    """Runs the loop with fixed noisy sums, in a copy of the process."""

    def __init__(
        self, model: Model, optimizer: DPOptimizer, *, loop: LoopRunner, own_noise: bool
    ) -> None:
        self._model, self._optimizer = model, optimizer
        self._loop, self._own_noise = loop, own_noise
        self._last: tuple[str, ...] = ()  # digests after the last update

    def play(self, places: Places | None, *, flipped: bool = False) -> _Played:
        """Run the first steps of the loop.

        Args:
            places: Places of the records that replace others; None for the data as it
                is.
            flipped: Whether to flip the sign of all normal random numbers that the
                user's code draws.
        """
        played, optimizer = _Played(), self._optimizer
        tensors = named_tensors(self._model)
        played.names = tuple(tensors)

        def values() -> tuple[str, ...]:
            return tuple(digest(each) for each in tensors.values())

        def written_since(last: tuple[str, ...], now: tuple[str, ...]) -> None:
            pairs = zip(played.names, last, now, strict=True)
            played.written |= {name for name, was, value in pairs if was != value}

        def before_noise(controls: str) -> None:
            if played.steps == MOST_STEPS:
                raise EnoughError
            wrapped.give_noise()
            moment = _Moment(weights=values(), controls=controls)
            played.moments.append(moment)
            written_since(self._last, moment.weights)

        def after(bare: str) -> None:
            if not bare:
                self._last = values()
                return
            compared = len(played.bare) < MOST_STEPS  # later ones: at the next noise
            weights = values() if compared else ()
            played.moments.append(_Moment(weights=weights, bare=bare))

        self._last = values()
        wrapped = WrappedSteps(optimizer.original_optimizer, lambda _: None, after)
        noise = ForcedNoise(optimizer, before_noise, own_noise=self._own_noise)
        noise.begin(1)
        if flipped:
            _flip()
        if self._loop.run(places, played.sizes):
            played.end = values()
            written_since(self._last, played.end)
        return played


@dataclass(slots=True)
class Rehearsal:
    """The results of all rehearsals.

    Attributes:
        findings: What depends on records, or that no dependence was detected.
        written: Parameters and buffers that are written to between steps, equally for
            all records.
        bare: Places in the code of steps without noise that were compared.
    """

    findings: list[Finding] = field(default_factory=list)
    written: set[str] = field(default_factory=set)
    bare: set[str] = field(default_factory=set)


def rehearse(
    train: Train,
    model: Model,
    optimizer: DPOptimizer,
    loader: Loader,
    *,
    steps: int | None,
    rng: np.random.Generator,
    seconds: float,
    own_noise: bool = False,
) -> Rehearsal:
    """Return what in the user's loop depends on records besides the noisy sums.

    Args:
        train: The loop, from its first step to its last.
        model: The model that ``make_private`` returned.
        optimizer: The optimizer that it returned.
        loader: The loader that it returned.
        steps: Number of steps that the loop makes, if known.
        rng: Samples records.
        seconds: Time limit of a rehearsal.
        own_noise: Whether the loop adds noise by other means than Opacus'.
    """
    loop = LoopRunner(train, loader, steps=steps)
    player = _Player(model, optimizer, loop=loop, own_noise=own_noise)

    def play(places: Places | None, *, flipped: bool = False) -> _Played:
        return in_copy(lambda: player.play(places, flipped=flipped), seconds=seconds)

    try:
        first = play(None)
        if not first.steps:
            error = "it makes no private step"
            return Rehearsal([noted("rehearsal.failed", error=error)])
        rehearsal = _compared(play, first, _others(loop.records, rng))
    except CopyFailedError as error:
        return Rehearsal([noted("rehearsal.failed", error=str(error))])
    rehearsal.findings += noise_findings(loop, optimizer, seconds=seconds)
    return rehearsal


def _compared(
    play: Callable[..., _Played],
    first: _Played,
    others: Iterable[tuple[str, Places]],
) -> Rehearsal:
    """Return the comparison of the loop with its rehearsals on other records.

    Args:
        play: Runs the loop.
        first: The rehearsal on the data as it is.
        others: The ways to replace records.
    """
    rehearsal = Rehearsal(written=set(first.written), bare=set(first.bare))
    for kind, places in others:
        other = play(places)
        rehearsal.written |= other.written
        rehearsal.bare |= set(other.bare)
        differ = _difference(first, other)
        if differ is None:
            continue
        what, step, names = differ
        if _difference(first, play(None)):
            return Rehearsal([noted("rehearsal.differs_by_itself")])
        if _difference(first, play(None, flipped=True)):
            finding = inconclusive("rehearsal.noised", names, what=what, step=step)
        else:
            finding = fault(
                Stage.RELEASED_MODEL if what == "end" else Stage.SIDE_PATHS,
                "rehearsal.decided",
                names,
                what=what,
                step=step,
                kind=kind,
            )
        rehearsal.findings.append(finding)
        return rehearsal
    rehearsal.findings.append(
        inspected(
            Stage.SIDE_PATHS,
            "rehearsal.compared",
            steps=first.steps,
            bare=len(first.bare),
            whole=bool(first.end),
        )
    )
    return rehearsal


def _difference(one: _Played, other: _Played) -> tuple[str, int, list[str]] | None:
    """Return the first difference: what, at which step, where; None without one."""
    step = 0
    for moment, theirs in zip_longest(one.moments, other.moments):
        if moment is None or theirs is None or bool(moment.bare) != bool(theirs.bare):
            if one.sizes[:step] != other.sizes[:step]:
                return None
            bare = any(each is not None and each.bare for each in (moment, theirs))
            return ("bare_steps", step, []) if bare else ("steps", step + 1, [])
        step += not moment.bare
        names = _differing(one.names, moment.weights, theirs.weights)
        if names:
            return "bare" if moment.bare else "weights", step, names
        if moment.controls != theirs.controls:
            return "controls", step, []
    if one.end and other.end:
        names = _differing(one.names, one.end, other.end)
        if names:
            return "end", step, names
    return None


def _differing(
    names: Sequence[str], values: Sequence[str], others: Sequence[str]
) -> list[str]:
    """Return the names of at most four tensors whose values differ."""
    triples = zip(names, values, others, strict=False)  # empty if not compared
    return [name for name, value, its in triples if value != its][:_MAX_NAMED]


def _others(count: int, rng: np.random.Generator) -> Iterator[tuple[str, Places]]:
    """Yield ways to replace records.

    By random others, all by one record, and all by one combined from two: anything that
    a mean, a loss or a count of records decides differs for one of them.
    """
    anew = rng.integers(count, size=count)
    yield "exchanged", (anew, anew)
    one, other = (np.full(count, k, np.int64) for k in rng.integers(count, size=2))
    yield "one", (one, one)
    yield "other", (other, other)
    yield "mixed", (one, other)


def _flip() -> None:
    """Flip the sign of all normal random numbers except forced noise."""
    for owner, name in (
        (torch, "normal"),
        (torch, "randn"),
        (torch, "randn_like"),
        (np.random, "normal"),
        (np.random, "laplace"),
        (np.random, "randn"),
    ):
        _negate(owner, name)


def _negate(owner: Any, name: str) -> None:  # noqa: ANN401
    draw = getattr(owner, name)

    def negative(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
        return -draw(*arguments, **named)

    setattr(owner, name, negative)
