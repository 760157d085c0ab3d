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
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final, TypeAlias, final

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.optimizers import DPOptimizer
from torch.utils.data import Dataset

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
from dpaudit.training.opacus.reachable import digest
from dpaudit.training.opacus.records import CanaryDataset
from dpaudit.training.opacus.setup import Loader
from dpaudit.training.process_copy import CopyFailedError, in_copy

__all__ = ["Rehearsal", "Train", "rehearse"]

_STEPS: Final = 30
_LONGEST: Final = 3  # steps of an epoch
Train: TypeAlias = Callable[[], object]
Places: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]  # first parts, rest


class _EnoughError(BaseException):
    """Ends a rehearsal."""


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
    """Plays the loop in a copy of the process."""

    def __init__(
        self,
        train: Train,
        model: Model,
        optimizer: DPOptimizer,
        loader: Loader,
        epoch: int,
        own_noise: bool,  # noqa: FBT001
    ) -> None:
        self._train, self._model = train, model
        self._optimizer, self._loader = optimizer, loader
        self._epoch, self._own_noise = epoch, own_noise
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
            found.controls.append(controls)
            found.weights.append(values())
            written_since(self._last, found.weights[-1])

        self._last = values()
        noise = ForcedNoise(optimizer, before, own_noise=self._own_noise)
        noise.begin(1)
        if flipped:
            _flip()
        _shorten(self._loader, self._epoch, found.sizes)
        if places is not None:
            _exchange(self._loader.dataset, places)

        def after(*_: object) -> None:
            self._last = values()
            if len(found.controls) >= _STEPS:
                raise _EnoughError

        optimizer.original_optimizer.register_step_post_hook(after)
        try:
            self._train()
            found.end = values()
            written_since(self._last, found.end)
        except _EnoughError:
            pass
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
    epochs = 1 if steps is None else -(-steps // max(1, len(loader)))
    epoch = max(1, min(_LONGEST, (_STEPS - 1) // epochs))
    stage = _Stage(train, model, optimizer, loader, epoch, own_noise)

    def play(places: Places | None, *, flipped: bool = False) -> _Played:
        return in_copy(lambda: stage.play(places, flipped=flipped), seconds=seconds)

    found = Rehearsal()
    try:
        first = play(None)
        if not first.controls:
            error = "it makes no private step"
            found.findings.append(noted("rehearsal.failed", error=error))
            return found
        for kind, places in _others(_count(loader), rng):
            other = play(places)
            found.written |= other.written
            differ = _difference(first, other)
            if differ is None:
                continue
            what, step, names = differ
            if _difference(first, play(None)):
                found.findings.append(noted("rehearsal.differs_by_itself"))
            elif _difference(first, play(None, flipped=True)):
                found.findings.append(
                    inconclusive("rehearsal.noised", names, what=what, step=step)
                )
            else:
                found.findings.append(
                    fault(
                        Stage.RELEASED_MODEL if what == "end" else Stage.SIDE_PATHS,
                        "rehearsal.decided",
                        names,
                        what=what,
                        step=step,
                        kind=kind,
                    )
                )
            return found
    except CopyFailedError as error:
        found.findings.append(noted("rehearsal.failed", error=str(error)))
        return found
    found.written |= first.written
    found.findings.append(
        inspected(
            Stage.SIDE_PATHS,
            "rehearsal.compared",
            steps=len(first.controls),
            whole=bool(first.end),
        )
    )
    return found


def _count(loader: Loader) -> int:
    data: Any = loader.dataset
    return data.first if isinstance(data, CanaryDataset) else len(data)


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


def _exchange(data: Dataset[Any], places: Places) -> None:
    """Put records in others' places."""
    first, rest = places
    if isinstance(data, CanaryDataset):
        return _exchange(data.dataset, (first[: data.first], rest[: data.first]))
    tensors = getattr(data, "tensors", None)
    if isinstance(tensors, tuple):  # in place, as the loop may hold them too
        for number, tensor in enumerate(tensors):
            at = torch.from_numpy(rest if number else first) % len(tensor)
            tensor.copy_(tensor[at].clone())
        return None
    kind = type(data)
    get = kind.__getitem__

    def other(self: Any, index: Any) -> Any:  # noqa: ANN401
        if self is not data:
            return get(self, index)
        one, two = get(self, int(first[int(index)])), get(self, int(rest[int(index)]))
        if isinstance(one, tuple):
            return (one[0], *two[1:])
        if isinstance(one, dict) and "labels" in one:
            return {**one, "labels": two["labels"]}
        return one

    kind.__getitem__ = other  # type: ignore[method-assign]
    return None


def _shorten(loader: Loader, epoch: int, sizes: list[int]) -> None:
    """Let epochs be short, and everything happen in this process."""
    sampler: Any = loader.batch_sampler
    if hasattr(sampler, "steps"):
        sampler.steps = min(sampler.steps, epoch)
    watched = copy.copy(sampler)
    kind = type(sampler)

    def batches(self: Any) -> Iterator[Any]:  # noqa: ANN401
        for batch in kind.__iter__(self):
            sizes.append(len(batch))
            yield batch

    watched.__class__ = type(kind.__name__, (kind,), {"__iter__": batches})
    object.__setattr__(loader, "batch_sampler", watched)
    for name, value in (
        ("num_workers", 0),
        ("prefetch_factor", None),
        ("persistent_workers", False),
        ("_iterator", None),
    ):
        object.__setattr__(loader, name, value)


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
