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

A step of the wrapped optimizer that is given no noise, on public data, must leave
everything equal as well. Where it does, such steps are passed over in the run.

The loop is also played with the noise that it draws by itself (``rehearsed_noise``).
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

_NAMED: Final = 4  # of what differs


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Moment:
    """What was compared just before a step's noise, or after a step without any.

    Attributes:
        weights: Digests of parameters and buffers.
        controls: What steers the step.
        bare: Where it was made, if it was given no noise; else "".
    """

    weights: tuple[str, ...]
    controls: str = ""
    bare: str = ""


@dataclass(slots=True)
class _Played:
    """What a rehearsal showed.

    Attributes:
        moments: In order.
        sizes: Of the batches that were drawn.
        end: Digests of parameters and buffers at the end, if the loop came to it.
        names: Of these.
        written: Those that were written to besides by the private optimizer.
    """

    moments: list[_Moment] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    end: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    written: set[str] = field(default_factory=set)

    @property
    def bare(self) -> list[str]:
        """Where each step was made that was given no noise."""
        return [moment.bare for moment in self.moments if moment.bare]

    @property
    def steps(self) -> int:
        """How many private steps were made."""
        return len(self.moments) - len(self.bare)


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

        def before_noise(controls: str) -> None:
            if found.steps == MOST_STEPS:
                raise EnoughError
            wrapped.give_noise()
            moment = _Moment(weights=values(), controls=controls)
            found.moments.append(moment)
            written_since(self._last, moment.weights)

        def after(bare: str) -> None:
            if not bare:
                self._last = values()
                return
            compared = len(found.bare) < MOST_STEPS  # others with the next noise
            weights = values() if compared else ()
            found.moments.append(_Moment(weights=weights, bare=bare))

        self._last = values()
        wrapped = WrappedSteps(optimizer.original_optimizer, lambda _: None, after)
        noise = ForcedNoise(optimizer, before_noise, own_noise=self._own_noise)
        noise.begin(1)
        if flipped:
            _flip()
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
        bare: Where steps are made that are given no noise, and were compared.
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

    try:
        first = play(None)
        if not first.steps:
            error = "it makes no private step"
            return Rehearsal([noted("rehearsal.failed", error=error)])
        found = _compared(play, first, _others(loop.records, rng))
    except CopyFailedError as error:
        return Rehearsal([noted("rehearsal.failed", error=str(error))])
    found.findings += noise_findings(loop, optimizer, seconds=seconds)
    return found


def _compared(
    play: Callable[..., _Played],
    first: _Played,
    others: Iterable[tuple[str, Places]],
) -> Rehearsal:
    """Return how the loop compares on other records.

    Args:
        play: Plays the loop.
        first: What was played on the data as they are.
        others: What is done to the records.
    """
    found = Rehearsal(written=set(first.written), bare=set(first.bare))
    for kind, places in others:
        other = play(places)
        found.written |= other.written
        found.bare |= set(other.bare)
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
        found.findings.append(finding)
        return found
    found.findings.append(
        inspected(
            Stage.SIDE_PATHS,
            "rehearsal.compared",
            steps=first.steps,
            bare=len(first.bare),
            whole=bool(first.end),
        )
    )
    return found


def _difference(one: _Played, other: _Played) -> tuple[str, int, list[str]] | None:
    """Return what differs first, at which step, and where; None if nothing does."""
    step = 0
    for moment, its in zip_longest(one.moments, other.moments):
        if moment is None or its is None or bool(moment.bare) != bool(its.bare):
            if one.sizes[:step] != other.sizes[:step]:
                return None
            bare = any(each is not None and each.bare for each in (moment, its))
            return ("bare_steps", step, []) if bare else ("steps", step + 1, [])
        step += not moment.bare
        names = _differing(one.names, moment.weights, its.weights)
        if names:
            return "bare" if moment.bare else "weights", step, names
        if moment.controls != its.controls:
            return "controls", step, []
    if one.end and other.end:
        names = _differing(one.names, one.end, other.end)
        if names:
            return "end", step, names
    return None


def _differing(
    names: Sequence[str], values: Sequence[str], others: Sequence[str]
) -> list[str]:
    """Return the names, four at most, of what has other values."""
    triples = zip(names, values, others, strict=False)  # or none, if not compared
    return [name for name, value, its in triples if value != its][:_NAMED]


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
