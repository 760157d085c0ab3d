"""Does the loop around the steps let records decide? Its beginning, played on others.

What a step leaves behind is compared by ``interference``. But a loop may look at
records too: it stops early, lowers the learning rate, keeps the best weights. So the
user's whole loop is played in copies of the process, with short epochs, for some steps
or to its end, on the data set as it is and with other records in their places, while
the noise makes all noisy sums equal. What steers the steps and all weights must then be
equal at every step, and at the end if it is reached. Weights that differ at the end
alone were all trained privately: which of them is released is what records decide.

Which records are drawn may differ: a sampler may look at a record to decide about that
record. Then the number of steps is not compared.

The loop is also played with the noise that it draws by itself (``rehearsed_noise``).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, final

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


@dataclass(slots=True)
class _Played:
    """What a rehearsal showed.

    Attributes:
        controls: What steered each step.
        weights: Digests of parameters and buffers just before each step's noise.
        sizes: Of the batches that were drawn.
        end: The same digests at the end, if the loop came to it.
        names: Of these.
        written: Those that were written to besides by the private optimizer.
    """

    controls: list[str] = field(default_factory=list)
    weights: list[tuple[str, ...]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    end: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    written: set[str] = field(default_factory=set)


@final
class _Stage:
    """Plays the loop with noisy sums that are given, in a copy of the process."""

    def __init__(
        self, model: Model, optimizer: DPOptimizer, *, loop: LoopRunner, own_noise: bool
    ) -> None:
        self._model, self._optimizer = model, optimizer
        self._loop, self._own_noise = loop, own_noise
        self._last: tuple[str, ...] = ()  # as the last update left them

    def play(self, places: Places | None, *, flipped: bool = False) -> _Played:
        """Play the beginning of the loop.

        Args:
            places: Of records that are put in place of others; None for the data as
                they are.
            flipped: Whether all normal random numbers of the user's own have the
                opposite sign.
        """
        found, optimizer = _Played(), self._optimizer
        tensors = named_tensors(self._model)
        found.names = tuple(tensors)

        def values() -> tuple[str, ...]:
            return tuple(digest(each) for each in tensors.values())

        def written_since(last: tuple[str, ...], now: tuple[str, ...]) -> None:
            pairs = zip(found.names, last, now, strict=True)
            found.written |= {name for name, was, value in pairs if was != value}

        def before(controls: str) -> None:
            if len(found.controls) == MOST_STEPS:
                raise EnoughError
            found.controls.append(controls)
            found.weights.append(values())
            written_since(self._last, found.weights[-1])

        def after(*_: object) -> None:
            self._last = values()

        self._last = values()
        noise = ForcedNoise(optimizer, before, own_noise=self._own_noise)
        noise.begin(1)
        if flipped:
            _flip()
        optimizer.original_optimizer.register_step_post_hook(after)
        if self._loop.run(places, found.sizes):
            found.end = values()
            written_since(self._last, found.end)
        return found


@dataclass(slots=True)
class Rehearsal:
    """What rehearsals showed.

    Attributes:
        findings: What records decide, or that nothing was seen to.
        written: Parameters and buffers that are written to between steps, alike
            whatever the records.
    """

    findings: list[Finding] = field(default_factory=list)
    written: set[str] = field(default_factory=set)


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
    """Return what records decide in the user's loop besides the noisy sums.

    Args:
        train: The loop, from its first step to its last.
        model: As ``make_private`` returned it.
        optimizer: Likewise.
        loader: Likewise.
        steps: How many steps it makes, if that is known.
        rng: Picks records.
        seconds: For a rehearsal.
        own_noise: Whether it adds noise by other means than Opacus'.
    """
    loop = LoopRunner(train, loader, steps=steps)
    stage = _Stage(model, optimizer, loop=loop, own_noise=own_noise)

    def play(places: Places | None, *, flipped: bool = False) -> _Played:
        return in_copy(lambda: stage.play(places, flipped=flipped), seconds=seconds)

    found = Rehearsal()
    try:
        first = play(None)
        if not first.controls:
            error = "it makes no private step"
            found.findings.append(noted("rehearsal.failed", error=error))
            return found
        found.written |= first.written
        for kind, places in _others(loop.records, rng):
            other = play(places)
            found.written |= other.written
            differ = _difference(first, other)
            if differ is not None:
                found.findings.append(_judged(play, first, kind, *differ))
                break
        else:
            found.findings.append(
                inspected(
                    Stage.SIDE_PATHS,
                    "rehearsal.compared",
                    steps=len(first.controls),
                    whole=bool(first.end),
                )
            )
    except CopyFailedError as error:
        found.findings.append(noted("rehearsal.failed", error=str(error)))
        return found
    found.findings += noise_findings(loop, optimizer, seconds=seconds)
    return found


def _judged(
    play: Callable[..., _Played],
    first: _Played,
    kind: str,
    what: str,
    step: int,
    names: list[str],
) -> Finding:
    """Return what a difference means.

    Args:
        play: Plays the loop.
        first: What was played on the data as they are.
        kind: What was done to the records where it differs.
        what: What differs first.
        step: At which step.
        names: Of weights that differ.
    """
    if _difference(first, play(None)):
        return noted("rehearsal.differs_by_itself")
    if _difference(first, play(None, flipped=True)):
        return inconclusive("rehearsal.noised", names, what=what, step=step)
    stage = Stage.RELEASED_MODEL if what == "end" else Stage.SIDE_PATHS
    return fault(stage, "rehearsal.decided", names, what=what, step=step, kind=kind)


def _difference(one: _Played, other: _Played) -> tuple[str, int, list[str]] | None:
    """Return what differs first, at which step, and where; None if nothing does."""
    pairs = zip(one.controls, other.controls, one.weights, other.weights, strict=False)
    for step, (control, its_control, weights, its_weights) in enumerate(pairs, 1):
        names = [
            name
            for name, value, its in zip(one.names, weights, its_weights, strict=True)
            if value != its
        ]
        if names:
            return "weights", step, names[:4]
        if control != its_control:
            return "controls", step, []
    steps = len(one.controls), len(other.controls)
    if one.sizes[: min(steps)] == other.sizes[: min(steps)] and steps[0] != steps[1]:
        return "steps", min(steps) + 1, []
    if steps[0] == steps[1] and bool(one.end) and bool(other.end):
        pairs_at_end = zip_longest(one.names, one.end, other.end)
        names = [name for name, value, its in pairs_at_end if value != its]
        if names:
            return "end", steps[0], names[:4]
    return None


def _others(count: int, rng: np.random.Generator) -> Iterator[tuple[str, Places]]:
    """Yield which records are put in whose places.

    Others at random, one in everybody's place, and one that is put together of two:
    what a mean, a loss or a count of records decides comes out differently for one.
    """
    anew = rng.integers(count, size=count)
    yield "exchanged", (anew, anew)
    one, other = (np.full(count, k, np.int64) for k in rng.integers(count, size=2))
    yield "one", (one, one)
    yield "other", (other, other)
    yield "mixed", (one, other)


def _flip() -> None:
    """Give all normal random numbers the opposite sign, but for forced noise."""
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
