"""Checks that only the noisy sums depend on records: one step on different batches.

DP-SGD is private because everything after a step's noise, including the released model,
depends on records only through the noisy sum. So the user's step is run from one state
on different batches of equal shape, in separate "worlds", while the noise makes all
noisy sums equal. All reachable state must then be equal: parameters, buffers, the
optimizer's state, its learning rate, clipping norm and noise, other random states, and
Python objects.

A difference in what is released or controls training is a fault. For a difference
elsewhere, a second step on the same batch in all worlds is compared. If its sum before
noise differs, or the state after it, records leaked past the noise, which is a fault
too. If not, they are merely stored, as in a list of losses: a remark.

Each world is a copy of the process (``process_copy``). The compared batches are as
large as those of training: other records, the record with the largest gradient in half
or in all places, that with the smallest likewise, and one combined from two, so that
anything that a mean, a loss or a count of records decides differs in one of them. And
one with a record fewer, as the number of records in a batch depends on them too; as
shapes differ there, only what is released or controls training is compared. Where half
of the records stay, their gradients must occur again, or records are coupled.

A difference between two runs on the same batch is not caused by records. What differs
with other random numbers may have been noised by other means than Opacus': then nothing
is concluded.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, final

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.optimizers import DPOptimizer
from torch.nn.modules.module import register_module_forward_hook
from torch.utils._pytree import tree_leaves

from dpaudit.errors import InvalidInputError
from dpaudit.game.findings import (
    Finding,
    Stage,
    fault,
    inconclusive,
    inspected,
    not_checked,
    noted,
)
from dpaudit.training.opacus.frozen_weights import frozen_among, version
from dpaudit.training.opacus.isolated_step import (
    Model,
    named_tensors,
    noise_modules,
    random_states,
)
from dpaudit.training.opacus.reachable import digest, reachable
from dpaudit.training.opacus.step_runner import Batch, Step, holds_records, rows_of
from dpaudit.training.process_copy import CopyFailedError, in_copy

__all__ = ["CONTROLS", "Batches", "ForcedNoise", "Interference", "batches_of"]

_fault = partial(fault, Stage.SIDE_PATHS)

_MAX_RECORDS: Final = 256  # of a batch that is compared, at most
_MAX_BYTES: Final = 1 << 28  # of its records and their gradients, at most
_MIN_RECORDS: Final = 8  # however large they are
_NORM_TOLERANCE: Final = 0.02  # relative, of a gradient's norm, also in half precision
_HALF_STEP: Final = 2.0**-7  # relative, of the largest value: two of bfloat16
_HALF: Final = (torch.bfloat16, torch.float16)
CONTROLS: Final = (
    "max_grad_norm",
    "max_grad_norms",
    "noise_multiplier",
    "expected_batch_size",
    "loss_reduction",
)
_MAX_NAMED: Final = 4  # differing paths in a finding
_HALVES: Final = ("half largest", "half smallest")
_ADDING: Final = {"add", "add_", "__add__", "__radd__", "__iadd__"}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """Batches of equal shape to compare, and one for the second step.

    Attributes:
        size: The number of records in each.
        first: The first batch.
        others: Returns how the first batch's records are changed, and the batches that
            result; called with the rows of the largest and of the smallest gradient.
        fewer: The first batch without its last record.
        second: Another batch, the same in all worlds.
    """

    size: int
    first: Batch
    others: Callable[[int, int], Sequence[tuple[str, Batch]]]
    fewer: Batch
    second: Batch

    def kept(self, kind: str) -> int:
        """Return how many records at the front of the first batch stay in another."""
        return self.size // 2 if kind in _HALVES else 0


@dataclass(slots=True)
class _World:
    """The observations in one world.

    Attributes:
        steps: How many sums got noise on the first batch.
        applied: Whether the wrapped optimizer then made a step.
        own_noise: Whether noise was added by other means than Opacus'.
        rows: Norms of the gradients in the first batch, as far as known.
        half: Whether any module computed in half precision.
        state: Digests of all reachable state after the first batch.
        written: Parameters and buffers written to other than by the optimizer.
        controls: The settings that controlled each step.
        sums: Digests of each step's sums before noise.
        failed: Why the step on the second batch failed.
        left: Digests of parameters and buffers after the second batch.
        seconds: CPU time of the first batch.
    """

    steps: int = 0
    applied: bool = False
    own_noise: bool = False
    rows: list[float] = field(default_factory=list)
    half: bool = False
    state: dict[str, str] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    controls: list[str] = field(default_factory=list)
    sums: list[str] = field(default_factory=list)
    failed: str = ""
    left: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def after_first(self, other: "_World") -> set[str]:
        """Return the paths at which two worlds differ after the first batch."""
        return {
            path
            for path in self.state.keys() | other.state.keys()
            if self.state.get(path) != other.state.get(path)
        }

    def in_second(self, other: "_World") -> str:
        """Return how the second step differs; "" if it does not."""
        if self.controls[self.steps :] != other.controls[other.steps :]:
            return "controls"
        if self.sums[self.steps :] != other.sums[other.steps :]:
            return "sum"
        return "left" if self.left != other.left else ""


class _Forced(torch.Tensor):
    """Noise that turns any sum into a given value."""

    value: torch.Tensor
    taken: Callable[[], None]

    @classmethod
    def __torch_function__(
        cls,
        function: Any,  # noqa: ANN401 (torch's)
        types: Any,  # noqa: ANN401
        arguments: Any = (),  # noqa: ANN401
        named: Any = None,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        if function.__name__ in _ADDING:
            own = next(each for each in arguments if isinstance(each, _Forced))
            own.taken()
            return own.value.clone()
        with torch._C.DisableTorchFunctionSubclass():
            return function(*arguments, **(named or {}))


@final
class Interference:
    """Runs the user's step in several worlds, and compares the resulting states.

    Args:
        step: The user's own step.
        model: The model that ``make_private`` returned.
        optimizer: The optimizer that it returned.
        seconds: Time limit of a world.
        train: The user's whole loop, whose objects are compared too.
        leave_out: Objects that are not compared, such as the loader.

    Attributes:
        written: Parameters and buffers that the step writes to besides the private
            update, and that were equal in all worlds.
        own_noise: Whether noise is added by other means than Opacus'.
        step_seconds: CPU time of a step.
        unapplied: Whether noise is added, but the wrapped optimizer makes no step.
    """

    def __init__(
        self,
        step: Step,
        model: Model,
        optimizer: DPOptimizer,
        *,
        seconds: float,
        train: Callable[[], object] | None = None,
        leave_out: Sequence[object] = (),
    ) -> None:
        self._step, self._model, self._optimizer = step, model, optimizer
        self._seconds, self._train = seconds, train
        self._leave_out = [*leave_out, self]
        self.written: set[str] = set()
        self.own_noise, self.step_seconds = False, 0.0
        self.unapplied = False

    def check(self, batches: Batches) -> Iterator[Finding]:
        """Return the differences between worlds, and that they were compared."""
        try:
            findings = [*self._compare(batches)]
        except CopyFailedError as error:
            yield not_checked(Stage.SIDE_PATHS, "interference.failed", error=str(error))
            return
        yield from findings

    def _compare(self, batches: Batches) -> Iterator[Finding]:
        run = partial(self._world, second=batches.second)
        own = run(batches.first).own_noise
        first = run(batches.first, own_noise=own)
        self.own_noise, self.step_seconds = own, first.seconds
        self.unapplied = first.steps > 0 and not first.applied
        rows = first.rows[: batches.size] or [0.0, 1.0]  # with views, only the first
        largest, smallest = int(np.argmax(rows)), int(np.argmin(rows))
        comparison = _Comparison(first, run, batches.first, own=own, named=self._named)
        steps = first.steps
        for kind, batch in batches.others(largest, smallest):
            world = run(batch, own_noise=own)
            comparison.judge(kind, world)
            comparison.find_again(world, kept=batches.kept(kind), size=batches.size)
            steps += world.steps
        if steps:
            fewer = run(batches.fewer, own_noise=own)
            comparison.judge_fewer(fewer)
            comparison.find_rest(fewer)
        if not steps:
            yield not_checked(Stage.SIDE_PATHS, "interference.no_update")
            return
        self.written |= comparison.written
        yield from comparison.findings()
        yield inspected(
            Stage.SIDE_PATHS,
            "interference.compared",
            batches=1 + comparison.compared,
            compared=len(first.state),
        )

    def _named(self) -> set[str]:
        """Return the names of all parameters and buffers, which are released."""
        return set(named_tensors(self._model))

    def _world(
        self,
        batch: Batch,
        *,
        second: Batch,
        own_noise: bool = False,
        seed: int = 1,
    ) -> _World:
        """Return the observations of a step on a batch and one on a second batch."""
        return in_copy(
            lambda: self._run(batch, second, own_noise=own_noise, seed=seed),
            seconds=self._seconds,
        )

    def _run(
        self, batch: Batch, second: Batch, *, own_noise: bool, seed: int
    ) -> _World:
        world, optimizer = _World(), self._optimizer
        tensors, trained = named_tensors(self._model), optimizer.params
        private = {id(parameter) for parameter in optimizer.params}
        updated: dict[str, str] = {}

        frozen = {id(w): version(w) for w in frozen_among(tensors.values(), trained)}

        def values() -> dict[str, str]:
            return {
                name: digest(each, whole=version(each) != frozen.get(id(each)))
                for name, each in tensors.items()
            }

        def changed(since: dict[str, str], *, besides: bool) -> set[str]:
            return {
                name
                for name, value in values().items()
                if since.get(name, value) != value
                and (besides or id(tensors[name]) not in private)
            }

        def before(controls: str) -> None:
            world.written |= changed(at_first, besides=True)
            world.controls.append(controls)
            world.sums.append(" ".join(digest(p.summed_grad) for p in optimizer.params))

        def after(*_: object) -> None:
            updated.update(values())

        at_first = values()
        noise = ForcedNoise(optimizer, before, own_noise=own_noise)
        optimizer.original_optimizer.register_step_post_hook(after)
        _watch_norms(optimizer, world)
        _watch_precision(world)
        noise.begin(seed)
        started = time.process_time()
        self._step(batch)
        world.seconds = time.process_time() - started
        world.steps, world.own_noise = len(world.sums), noise.own_noise
        world.applied = bool(updated)
        world.state = self._state()
        world.written |= changed(updated, besides=True)
        world.written |= changed(at_first, besides=False)
        at_first = values()
        noise.begin(seed + 1)
        try:
            self._step(second)
        except Exception as error:
            world.failed = f"{type(error).__name__}: {error}"[:200]
        world.left = [*values().values()]
        return world

    def _state(self) -> dict[str, str]:
        optimizer = self._optimizer
        inner = optimizer.original_optimizer
        private = {id(p) for p in optimizer.params}
        grads = [
            (f"{name}.grad", tensor.grad)
            for name, tensor in named_tensors(self._model).items()
            if id(tensor) in private
        ]
        random_state = [
            ("random torch", torch.get_rng_state()),
            ("random python", random.getstate()),
            ("random numpy", list(np.random.get_state())[1:3]),  # noqa: NPY002
        ]
        return reachable(
            [
                *named_tensors(self._model).items(),
                *grads,
                ("optimizer.state", dict(inner.state)),
                ("optimizer.param_groups", optimizer.param_groups),
                *((f"optimizer.{c}", getattr(optimizer, c, None)) for c in CONTROLS),
                *random_state,
                ("optimizer", optimizer),
                ("model", self._model),
                ("step", self._step),
                ("train", self._train),
            ],
            self._leave_out,
        )


@final
class ForcedNoise:
    """Makes the noisy sums of all worlds equal, whatever the sums are.

    Opacus' noise is replaced by one that turns any sum into the next value of a
    sequence. Where a program adds noise by other means, sums are replaced instead.

    Args:
        optimizer: Opacus' optimizer, in a copy of the process.
        before: Called just before noise is added, with the settings that control the
            step.
        own_noise: Whether noise is added by other means.

    Attributes:
        own_noise: Whether it was, in any step so far.
    """

    def __init__(
        self,
        optimizer: DPOptimizer,
        before: Callable[[str], object],
        *,
        own_noise: bool,
    ) -> None:
        self._optimizer, self._before = optimizer, before
        self.own_noise = self._replace = own_noise
        self._drawn = self._taken = 0
        for module in noise_modules():
            module._generate_noise = self._noise
        self._add = optimizer.add_noise
        optimizer.add_noise = self._add_noise
        optimizer._step_skip_queue, optimizer._is_last_step_skipped = [], False

    def begin(self, seed: int) -> None:
        """Restart the sequence, and seed all random number generators."""
        self._drawn = 0
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002 (user code may draw from it)
        random.seed(seed)
        if self._optimizer.generator is not None:
            with suppress(RuntimeError, NotImplementedError):  # a secure generator
                self._optimizer.generator.manual_seed(seed)

    def _value(self, like: torch.Tensor, scale: float) -> torch.Tensor:
        """Return the next value of the sequence."""
        generator = torch.Generator().manual_seed(1000 + self._drawn)
        self._drawn += 1
        value = torch.empty(like.shape).normal_(0.0, scale, generator=generator)
        return value.to(dtype=like.dtype, device=like.device)

    def _noise(
        self,
        std: float,
        reference: torch.Tensor,
        *_: object,
        **__: object,
    ) -> torch.Tensor:
        """Return noise that turns the sum into the next value of the sequence."""
        value = self._value(reference, float(std))
        if self._replace:  # sums are equal already
            return value
        forced = value.clone().as_subclass(_Forced)
        forced.value, forced.taken = value, self._take
        return forced

    def _take(self) -> None:
        self._taken += 1

    def _add_noise(self) -> None:
        optimizer = self._optimizer
        controls: list[Any] = [getattr(optimizer, name, None) for name in CONTROLS]
        for group in optimizer.param_groups:
            controls.append({k: v for k, v in group.items() if k != "params"})
        self._before(repr(controls))
        if self._replace:
            for parameter in optimizer.params:
                scale = float(optimizer.max_grad_norm)
                parameter.summed_grad = self._value(parameter.summed_grad, scale)
        self._taken = 0
        self._add()
        self.own_noise |= self._taken < len(optimizer.params)


def _watch_norms(optimizer: DPOptimizer, world: _World) -> None:
    """Record the norms of the first batch's gradients when they are clipped.

    A batch may be clipped in parts. If one part is unknown, none is recorded.
    """
    clip = getattr(optimizer, "clip_and_accumulate", None)
    if clip is None:
        return
    parts: list[list[float]] = []

    def clipping() -> None:
        if not world.sums:  # still in the first batch
            parts.append(_norms_of([p.grad_sample for p in optimizer.params]))
            world.rows = [norm for part in parts for norm in part] if all(parts) else []
        clip()

    optimizer.clip_and_accumulate = clipping


def _watch_precision(world: _World) -> None:
    """Record whether a module computes in half precision, as under autocast."""

    def computed(_module: object, _inputs: object, output: object) -> None:
        world.half |= isinstance(output, torch.Tensor) and output.dtype in _HALF

    register_module_forward_hook(computed)  # in a copy of the process, which ends


def _norms_of(grads: Sequence[object]) -> list[float]:
    """Return the norm of each row of gradients; nothing if rows are unknown."""
    norms = [
        each.detach().flatten(1).float().norm(dim=1)
        for each in grads
        if isinstance(each, torch.Tensor)
    ]
    if len(norms) != len(grads) or len({len(part) for part in norms}) != 1:
        return []
    whole: list[float] = torch.stack(norms, 1).norm(dim=1).tolist()
    return whole


@final
class _Comparison:
    """Compares the first world with others.

    Attributes:
        compared: Number of worlds that it was compared with.
        written: See ``Interference``.
    """

    def __init__(
        self,
        first: _World,
        run: Callable[..., _World],
        batch: Batch,
        *,
        own: bool,
        named: Callable[[], set[str]],
    ) -> None:
        self._first, self._batch, self._named = first, batch, named
        self._run = partial(run, own_noise=own)
        self._again: _World | None = None
        self._otherwise: _World | None = None
        self._found: dict[str, Finding] = {}
        self.compared, self.written = 0, set(first.written)

    def findings(self) -> Iterator[Finding]:
        """Return the findings, one of each code."""
        yield from self._found.values()

    def judge(self, kind: str, world: _World) -> None:
        """Compare a world with other records in the first batch."""
        self.compared += 1
        first = self._first
        self.written |= world.written
        if world.steps != first.steps or bool(world.failed) != bool(first.failed):
            code = "steps" if world.steps != first.steps else "fails"
            if not self._by_itself(lambda w: (w.steps, w.failed) != _outcome(first)):
                self._note(_fault, code, kind=kind)
            return
        if first.failed:
            self._found.setdefault(
                "failed",
                not_checked(
                    Stage.SIDE_PATHS, "interference.failed", error=first.failed
                ),
            )
        differ = first.after_first(world)
        back = first.in_second(world)
        if not differ and not back:
            return
        self._explain(kind, differ, back)

    def judge_fewer(self, world: _World) -> None:
        """Compare a world whose first batch had a record fewer.

        Only what is released or controls training: all else may have other shapes, and
        other random numbers may have been drawn.
        """
        first = self._first
        if first.failed or world.failed:
            return
        self.compared += 1
        if world.steps != first.steps:
            if self._same_again().steps == first.steps:
                self._note(_fault, "steps", kind="fewer")
            return
        held = {path for path in first.after_first(world) if self._is_held(path)}
        if held:
            held -= first.after_first(self._same_again())
            held -= first.after_first(self._with_other_numbers())
        if held:
            self._note(_fault, "held", held, kind="fewer")

    def find_again(self, world: _World, *, kept: int, size: int) -> None:
        """Check that the gradients of records that stayed occur in another world.

        Args:
            world: The world in which the other records were replaced.
            kept: How many records stayed, the first ones.
            size: How many records each batch has.
        """
        first = self._first
        if kept and len(first.rows) == len(world.rows) == size:
            self._find(first.rows[:kept], world.rows, world)

    def find_rest(self, world: _World) -> None:
        """Check that the gradients of a world with a record fewer occur in the first.

        Gradients of zero may pad a batch. Where gradients depend on random numbers, as
        with dropout, those of a smaller batch may all differ, even if equal random
        states remain: some builds of torch draw one number for a mask of any size.
        """
        if self._lost(self._first.rows, self._with_other_numbers().rows):
            return
        norms = [norm for norm in world.rows if norm > 0]
        self._find(norms, self._first.rows, world)

    def _find(self, norms: list[float], among: list[float], world: _World) -> None:
        """Report norms of gradients in one world that do not occur in the other."""
        first = self._first
        drawn = any(path.startswith("random") for path in first.after_first(world))
        if drawn or not first.rows or not world.rows:
            return
        lost = self._lost(norms, among)
        if lost and not self._lost(first.rows, self._same_again().rows):
            coupled = partial(fault, Stage.GRADIENTS)
            self._note(coupled, "coupled", lost=lost, kept=len(norms))

    def _lost(self, norms: Sequence[float], among: Sequence[float]) -> int:
        """Return how many norms have no match among others, but for rounding.

        Half precision rounds by steps of the largest values: where a small gradient is
        a difference of these, as of a record that is classified with confidence, it
        depends on how a batch of this size is multiplied.
        """
        step = _HALF_STEP * max(self._first.rows, default=0.0)
        return _lost(norms, among, rounding=step if self._first.half else 0.0)

    def _explain(self, kind: str, differ: set[str], back: str) -> None:
        first, again = self._first, self._same_again()
        differ = differ - first.after_first(again)
        back = "" if first.in_second(again) else back
        drawn = {path for path in differ if path.startswith("random ")}
        if drawn:
            self._note(noted, "drawn", drawn, kind=kind)
        held = {path for path in differ - drawn if self._is_held(path)}
        other = self._with_other_numbers()
        noised = held & first.after_first(other)
        if held - noised:
            self._note(_fault, "held", held - noised, kind=kind)
        elif noised:
            self._note(inconclusive, "noised", noised, kind=kind)
        elif back:
            source = differ - drawn - held
            make = inconclusive if first.in_second(other) else _fault
            code = "noised_back" if make is inconclusive else "back"
            self._note(make, code, source, kind=kind, by=back)
        elif differ - drawn:
            self._note(noted, "kept", differ - drawn, kind=kind)

    def _is_held(self, path: str) -> bool:
        """Return whether a path leads to what is released or controls training."""
        name = path.removesuffix(".grad")
        steering = ("optimizer.state", "optimizer.param_groups")
        controls = {f"optimizer.{control}" for control in CONTROLS}
        return (
            name in self._named()
            or path.startswith(steering)
            or path.partition("[")[0] in controls
        )

    def _by_itself(self, differs: Callable[[_World], bool]) -> bool:
        return differs(self._same_again())

    def _same_again(self) -> _World:
        if self._again is None:
            self._again = self._run(self._batch)
        return self._again

    def _with_other_numbers(self) -> _World:
        if self._otherwise is None:
            self._otherwise = self._run(self._batch, seed=101)
        return self._otherwise

    def _note(
        self,
        make: Callable[..., Finding],
        code: str,
        paths: Set[str] = frozenset(),
        **numbers: str | int,
    ) -> None:
        names = self._named()

        def weight(path: str) -> tuple[bool, int, str]:
            return path.removesuffix(".grad") in names, len(path), path

        subject = sorted(paths, key=weight)[:_MAX_NAMED]
        more = len(paths) - len(subject)
        finding = make(f"interference.{code}", subject, more=more, **numbers)
        self._found.setdefault(code, finding)


def _outcome(world: _World) -> tuple[int, str]:
    return world.steps, world.failed


def _lost(
    norms: Sequence[float], among: Sequence[float], *, rounding: float = 0.0
) -> int:
    """Return how many norms have no match among others, if most are matched.

    The smallest norm takes the smallest other one that it may: as no larger norm
    reaches further down, that leaves the fewest without a match.

    Args:
        norms: The norms to match, each with another.
        among: The others.
        rounding: The least difference that counts.

    Example:
        >>> _lost([1.0, 0.01], [1.0, 0.013]), _lost([1.0, 0.01], [1.0, 0.013],
        ...     rounding=0.004)
        (1, 0)
    """
    remaining, lost, at = sorted(among), 0, 0
    for norm in sorted(norms):
        allowed = max(_NORM_TOLERANCE * norm, rounding)
        while at < len(remaining) and remaining[at] < norm - allowed:
            at += 1
        if at < len(remaining) and remaining[at] <= norm + allowed:
            at += 1
        else:
            lost += 1
    return lost


def batches_of(
    count: int,
    records: Callable[[NDArray[np.int64]], Batch],
    rng: np.random.Generator,
    *,
    size: int = _MAX_RECORDS,
    bytes_each: int = 0,
) -> Batches:
    """Return batches to compare.

    Args:
        count: How many records there are.
        records: Makes a batch of some of them.
        rng: Samples them.
        size: How many records a training batch has.
        bytes_each: Size of a record's gradient.
    """
    if count < 6:
        raise InvalidInputError(
            f"comparing batches needs 6 records or more, got {count}"
        )
    with random_states():  # reading records may draw random numbers (augmentation)
        bytes_each += _bytes(records(np.arange(2, dtype=np.int64))) // 2
        most = max(_MIN_RECORDS, min(_MAX_RECORDS, _MAX_BYTES // max(bytes_each, 1)))
        size = min(max(size, 2), most, count // 3)
        chosen = rng.choice(count, 3 * size, replace=False)
        whole = records(chosen)
        by_row = holds_records(whole, 3 * size)

        def batch(rows: NDArray[np.int64]) -> Batch:
            if by_row:  # so that all have the same padding
                return rows_of(whole, 3 * size, rows)
            return records(chosen[rows])

        first, half = np.arange(size, dtype=np.int64), size // 2

        def others(largest: int, smallest: int) -> list[tuple[str, Batch]]:
            with random_states():
                large, small = (np.full(size, k) for k in (largest, smallest))
                batches = [
                    (kind, batch(np.concatenate([first[:half], alike[half:]])))
                    for kind, alike in zip(_HALVES, (large, small), strict=True)
                ]
                one, other = batch(large), batch(small)
                batches += [
                    ("others", batch(size + first)),
                    ("largest", one),
                    ("smallest", other),
                ]
                mixed = _put_together(one, other)
                return batches if mixed is None else [*batches, ("mixed", mixed)]

        return Batches(
            size=size,
            first=batch(first),
            others=others,
            fewer=batch(first[1:]),
            second=batch(2 * size + first),
        )


def _bytes(batch: Batch) -> int:
    return sum(
        leaf.nbytes
        for leaf in tree_leaves(batch)
        if isinstance(leaf, torch.Tensor | np.ndarray)
    )


def _put_together(one: Batch, other: Batch) -> Batch | None:
    """Return a batch with the first part of one and the rest of another."""
    if type(one) in (tuple, list) and len(one) > 1:
        return type(one)([one[0], *other[1:]])
    if isinstance(one, dict) and "labels" in one:
        return {**one, "labels": other["labels"]}
    return None
