"""Runs the user's own step repeatedly on chosen records, without side effects.

A probe needs a batch's sum under changes: with one row left out of it, with the loss
multiplied, with other random numbers, with dropout disabled. Each run returns the sum
just before noise, and what else the step changed.
"""

import copy
import inspect
import random
from collections import Counter, UserDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final, TypeAlias, final

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.optimizers import DPOptimizer
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from dpaudit.errors import InvalidInputError
from dpaudit.training.opacus.isolated_step import (
    IsolatedStep,
    Model,
    isolated_step,
    named_tensors,
    network,
    patched,
    random_states,
    same,
    trained_by,
)
from dpaudit.training.probe.engine import Rows
from dpaudit.training.process_copy import in_copy

__all__ = [
    "Batch",
    "Collate",
    "NoStepError",
    "OpacusStepRunner",
    "Step",
    "StepRun",
    "alike",
    "check_step",
    "collated_anew",
    "equal",
    "holds_records",
    "parameter_names",
    "records_in",
    "rows_of",
]

Batch: TypeAlias = Any  # what the user's loader yields
Step: TypeAlias = Callable[[Batch], object]
Collate: TypeAlias = Callable[[Sequence[int]], Batch]  # some of the records, by row
Watch: TypeAlias = Callable[[nn.Module, object, object], None]

_RUN_SECONDS: Final = 60.0  # limit for one run in a copy
_BLOCK: Final = 1 << 16  # numbers of a sum that are combined at once, in the cache


class NoStepError(InvalidInputError):
    """Raised if a call of the user's step made no step of the private optimizer."""


@dataclass(slots=True)
class StepRun:
    """The observations of one run of the step.

    Attributes:
        total: The sum, for each parameter.
        norms: Norms of the records' gradients before clipping.
        beside: Buffers and parameters that the step changed, with their values after
            it; the private optimizer itself changes none, as it does not step.
        others: For each parameter in ``beside`` that another optimizer trains, the
            name of that optimizer.
        drawn: The random states after the step.
        reworked: Whether it changed the noisy sum before the optimizer's own step.
    """

    total: list[torch.Tensor]
    norms: torch.Tensor
    beside: dict[str, torch.Tensor]
    others: dict[str, str]
    drawn: object
    reworked: bool


@final
class OpacusStepRunner:
    """Runs the user's step on chosen records without side effects, and counts runs.

    Args:
        step: The user's own step.
        model: The model that ``make_private`` returned.
        optimizer: The optimizer that it returned.
        batch: Real records.
        generators: Other generators that the step draws from.
        seed: The seed of all random numbers.
        apart: Whether each run is made in a copy of the process, so that the step's own
            Python objects are restored, too.

    Attributes:
        size: Number of records in the batch; set once a run has shown it.
        still: Whether the step is deterministic with dropout disabled.
        others: Parameters that other optimizers train, and the optimizers' names.
        rows: For each record the rows of its gradients, if these are several.
    """

    def __init__(
        self,
        step: Step,
        model: Model,
        optimizer: DPOptimizer,
        batch: Batch,
        *,
        generators: Sequence[torch.Generator],
        seed: int,
        apart: bool = False,
    ) -> None:
        self.batch, self.size, self.still, self._apart = batch, 0, False, apart
        self.others: dict[str, str] = {}
        self.rows: Sequence[list[int]] = ()
        self._step, self.model, self.optimizer = step, network(model), optimizer
        self._wrapper, self.ghost = model, hasattr(model, "get_clipping_coef")
        self._generators, self._seed = generators, seed
        self.clip = float(optimizer.max_grad_norm)
        self.precision, self.runs, self._dropout = 0.0, 0, True
        self._norms = torch.zeros(0)
        self.names = parameter_names(model, optimizer)

    def run(
        self,
        rows: Rows,
        without: Sequence[int] = (),
        *,
        scale: float = 1.0,
        seed: int | None = None,
        watch: Watch | None = None,
    ) -> StepRun:
        """Run the step once, on some records of the batch.

        Args:
            rows: The record in each row.
            without: Rows that are left out of the sum.
            scale: Factor by which gradients are multiplied.
            seed: The seed of all random numbers, if not the default one.
            watch: Called with inputs and outputs of every leaf of the model.
        """
        batch = self.batch
        if not np.array_equal(rows, np.arange(self.size)):
            batch = rows_of(batch, self.size, rows)
        return self.run_on(batch, without, scale=scale, seed=seed, watch=watch)

    def run_on(
        self,
        batch: Batch,
        without: Sequence[int] = (),
        *,
        scale: float = 1.0,
        seed: int | None = None,
        watch: Watch | None = None,
        noisy: bool = False,
    ) -> StepRun:
        """Run the step once, on any batch, with noise or without."""
        self.runs += 1

        def run() -> tuple[StepRun, float]:
            seen = self._run_here(batch, without, scale, seed, watch, noisy=noisy)
            return seen, self.precision

        if not self._apart or watch is not None:  # a copy could not return these
            return run()[0]
        seen, self.precision = in_copy(run, seconds=_RUN_SECONDS)
        self._norms = seen.norms
        return seen

    def _run_here(
        self,
        batch: Batch,
        without: Sequence[int],
        scale: float,
        seed: int | None,
        watch: Watch | None,
        *,
        noisy: bool,
    ) -> StepRun:
        seed = self._seed if seed is None else seed
        with (
            isolated_step(
                self._wrapper,
                self.optimizer,
                seed=seed,
                generators=self._generators,
                noisy=noisy,
            ) as seen,
            ExitStack() as stack,
        ):
            for module in _leaves(self.model):
                hook = module.register_forward_hook(self._note_precision)
                stack.callback(hook.remove)
                if watch is not None:
                    stack.callback(module.register_forward_hook(watch).remove)
            if self.ghost:
                stack.enter_context(self._coefficient_left_out(without))
            else:
                stack.enter_context(self._row_left_out(without))
            if scale != 1.0:
                stack.enter_context(_gradients_times(scale))
            if not self._dropout:
                identity = patched(nn.functional, "dropout", _identity)
                stack.enter_context(identity)
            self._step(batch)
            beside, others = _changed(self._wrapper, seen)
            drawn = _drawn(self._generators)
        if len(seen.sums) != 1:
            error = InvalidInputError if seen.sums else NoStepError
            raise error(
                f"step(batch) made {len(seen.sums)} steps of the private optimizer; "
                "it must be the whole step of one batch, and no more"
            )
        norms = self._norms
        if self.rows:
            norms = torch.stack([norms[own].norm() for own in self.rows])
        return StepRun(seen.sums[0], norms, beside, others, drawn, seen.reworked)

    def steps_at_last(self, most: int) -> bool:
        """Return whether at most so many calls of the step make an optimizer step."""
        with isolated_step(
            self._wrapper, self.optimizer, seed=self._seed, generators=self._generators
        ) as seen:
            for _ in range(most):
                self._step(self.batch)
                if seen.sums:
                    return True
        return False

    def norms(self, terms: Sequence[tuple[float, StepRun]]) -> list[float]:
        """Return for each parameter the norm of a linear combination of sums."""
        factors, runs = zip(*terms, strict=True)
        parts = zip(*(each.total for each in runs), strict=True)
        return [_norm(factors, part) for part in parts]

    def finite(self, seen: StepRun) -> bool:
        """Return whether a sum is finite."""
        return all(bool(torch.isfinite(part).all()) for part in seen.total)

    def raw(self, seen: StepRun, row: int, record: int, scale: float) -> float:  # noqa: ARG002
        """Return the norm of the gradient in a row before clipping."""
        return float(seen.norms[row])

    def drew_alike(self, first: StepRun, second: StepRun) -> bool:
        """Return whether two runs drew the same random numbers."""
        return first.drawn == second.drawn

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Disable dropout within this context."""
        before, self._dropout = self._dropout, False
        try:
            yield
        finally:
            self._dropout = before

    def beside(self, first: StepRun, second: StepRun) -> set[str]:
        """Return the names of what else two runs changed differently."""
        self.others |= first.others
        return _different(first.beside, second.beside)

    def _note_precision(self, _: nn.Module, __: object, output: object) -> None:
        for value in tree_leaves(output):
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                self.precision = max(self.precision, torch.finfo(value.dtype).eps)

    def _rows_of(self, records: Sequence[int]) -> list[int]:
        """Return the rows of the gradients of some records."""
        if not self.rows:
            return [*records]
        return [row for record in records for row in self.rows[record]]

    @contextmanager
    def _coefficient_left_out(self, without: Sequence[int]) -> Iterator[None]:
        """Set the clipping coefficient of rows to 0, for ghost clipping."""
        model = self._wrapper
        coefficients, seen, norms = model.get_clipping_coef, 0, []
        without = self._rows_of(without)

        def left_out() -> torch.Tensor:
            nonlocal seen
            current: torch.Tensor = coefficients()
            norms.append(model.per_sample_gradient_norms.detach().float().clone())
            gone = [row - seen for row in without if 0 <= row - seen < len(current)]
            if gone:
                current = current.clone()
                current[gone] = 0
            seen += len(current)
            self._norms = torch.cat(norms)
            return current

        with patched(model, "get_clipping_coef", left_out):
            yield

    @contextmanager
    def _row_left_out(self, without: Sequence[int]) -> Iterator[None]:
        """Drop rows of all per-record gradients, just before they are clipped."""
        optimizer = self.optimizer
        clip, seen, norms = optimizer.clip_and_accumulate, 0, []
        without = self._rows_of(without)

        def left_out() -> None:
            nonlocal seen
            for grads in _parts(optimizer):
                count = len(grads[0])
                norms.append(_row_norms(grads))
                gone = [row - seen for row in without if 0 <= row - seen < count]
                if gone:
                    _leave_out(optimizer, grads, gone, drop=not self.rows)
                seen += count
            self._norms = torch.cat(norms)
            clip()

        with patched(optimizer, "clip_and_accumulate", left_out):
            yield


def check_step(step: object) -> None:
    """Raise if ``step`` cannot be called with one batch."""
    named = getattr(step, "__name__", repr(step))
    if not callable(step):
        raise InvalidInputError(
            f"step must be a function of a batch, got step={step!r:.60}; define one "
            "from zero_grad to optimizer.step(), or leave it out"
        )
    try:
        signature = inspect.signature(step)
    except (TypeError, ValueError):  # not written in Python
        return
    try:
        signature.bind(None)
    except TypeError as error:
        raise InvalidInputError(
            f"step must accept one batch, as the loader yields it, got "
            f"{named}{signature}, which does not ({error}): define step(batch), from "
            "zero_grad to optimizer.step()"
        ) from None


def parameter_names(model: Model | None, optimizer: DPOptimizer) -> list[str]:
    """Return the names of the parameters that the optimizer trains."""
    named = () if model is None else network(model).named_parameters()
    known = {id(parameter): name for name, parameter in named}
    return [known.get(id(p), f"parameter {k}") for k, p in enumerate(optimizer.params)]


def _changed(
    model: Model, seen: IsolatedStep
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Return what a step changed, and what of it another optimizer trains."""
    tensors = named_tensors(model)
    names, others = {id(tensor): name for name, tensor in tensors.items()}, {}
    for other in seen.others:
        kind = type(other).__name__
        for k, parameter in enumerate(trained_by(other)):
            name = names.get(id(parameter), f"parameter {k} of {kind}")
            tensors[name], others[name] = parameter, kind
    changed = {name: tensors[name].detach().clone() for name in seen.changed(tensors)}
    return changed, others


def collated_anew(collate: Collate, rows: Sequence[int]) -> Batch | None:
    """Return a batch of some records; None if collating draws random numbers."""
    with random_states():
        before = _drawn()
        batch = collate(rows)
        return batch if _drawn() == before else None


def alike(first: Batch, second: Batch) -> bool:
    """Return whether two batches hold the same values."""
    pairs = [*zip_longest(_held(first), _held(second))]
    return all(_equal(one, other) for one, other in pairs)


def _held(batch: Batch) -> Iterator[object]:
    for leaf in tree_leaves(batch):
        if isinstance(leaf, UserDict):  # as transformers' BatchEncoding is
            yield from _held(leaf.data)
        else:
            yield leaf


def _equal(one: object, other: object) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return same(one, other)
    return bool(np.array_equal(one, other))  # type: ignore[arg-type]


def _drawn(generators: Sequence[torch.Generator] = ()) -> object:
    """Return all random states."""
    kind, keys, at, *rest = np.random.get_state()  # noqa: NPY002
    torchs = [torch.get_rng_state(), *(each.get_state() for each in generators)]
    return (
        random.getstate(),
        (kind, np.asarray(keys).tobytes(), at, *rest),
        [state.numpy().tobytes() for state in torchs],
    )


def _leaves(model: nn.Module) -> Iterator[nn.Module]:
    return (each for each in model.modules() if not any(True for _ in each.children()))


def _identity(values: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
    return values


@contextmanager
def _gradients_times(scale: float) -> Iterator[None]:
    """Multiply all gradients, as if the loss were scaled."""
    backward = torch.autograd.backward

    def larger(
        tensors: Any,  # noqa: ANN401 (torch's)
        grad_tensors: Any = None,  # noqa: ANN401
        *arguments: Any,  # noqa: ANN401
        **named: Any,  # noqa: ANN401
    ) -> None:
        given = (
            grad_tensors if isinstance(grad_tensors, tuple | list) else [grad_tensors]
        )
        if all(each is None for each in given):
            several = tensors if isinstance(tensors, tuple | list) else (tensors,)
            grad_tensors = tuple(torch.full_like(each, scale) for each in several)
        backward(tensors, grad_tensors, *arguments, **named)

    with patched(torch.autograd, "backward", larger):
        yield


def _parts(optimizer: DPOptimizer) -> Iterator[list[torch.Tensor]]:
    """Yield the per-record gradients of all parameters, for each backward pass."""
    kept: list[Any] = [parameter.grad_sample for parameter in optimizer.params]
    if isinstance(kept[0], list):
        for part in range(len(kept[0])):
            yield [each[part] for each in kept]
    else:
        yield kept


def _leave_out(
    optimizer: DPOptimizer,
    grads: list[torch.Tensor],
    gone: Sequence[int],
    *,
    drop: bool,
) -> None:
    """Remove some rows from per-record gradients.

    Args:
        optimizer: The optimizer whose parameters hold the gradients.
        grads: The gradients.
        gone: The rows to remove.
        drop: Whether to drop them; if not, they are set to zero, as the program may
            rely on their number.
    """
    for parameter, grad in zip(optimizer.params, grads, strict=True):
        if drop:
            left = [row for row in range(len(grad)) if row not in gone]
            rest = grad.index_select(0, torch.tensor(left, device=grad.device))
        else:
            rest = grad.clone()
            rest[[*gone]] = 0.0
        if isinstance(parameter.grad_sample, list):
            at = next(k for k, x in enumerate(parameter.grad_sample) if x is grad)
            parameter.grad_sample[at] = rest
        else:
            parameter.grad_sample = rest


def _norm(factors: Sequence[float], tensors: Sequence[torch.Tensor]) -> float:
    """Return the norm of a linear combination of tensors, in double precision."""
    flat = [each.reshape(-1) for each in tensors]
    count = flat[0].numel()
    block = _BLOCK if flat[0].device.type == "cpu" else max(count, 1)
    squares = []
    for start in range(0, count, block):
        parts = [each[start : start + block] for each in flat]
        total = parts[0].double() * factors[0]
        for factor, part in zip(factors[1:], parts[1:], strict=True):
            total.add_(part, alpha=factor)
        squares.append(total @ total)
    return float(torch.stack(squares).sum().sqrt()) if squares else 0.0


def _row_norms(grads: list[torch.Tensor]) -> torch.Tensor:
    each = [g.detach().reshape(len(g), -1).float().norm(dim=1) for g in grads]
    whole: torch.Tensor = torch.stack(each, 1).norm(dim=1)
    return whole


def equal(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> bool:
    """Return whether all tensors are equal."""
    return len(first) == len(second) and all(map(torch.equal, first, second))


def _different(
    first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor]
) -> set[str]:
    """Return the names under which two collections differ."""
    return {
        name
        for name in first.keys() | second.keys()
        if name not in first
        or name not in second
        or not same(first[name], second[name])
    }


def holds_records(batch: Batch, count: int) -> bool:
    """Return whether something in a batch has an item for each of ``count`` records."""
    holds = False

    def check(value: object) -> object:
        nonlocal holds
        holds = holds or _by_record(value, count)
        return value

    _map(check, count, batch)
    return holds


def records_in(batch: Batch) -> int:
    """Return how many records a batch seems to hold: the most common length in it."""
    sizes = Counter(
        len(leaf)
        for leaf in tree_leaves(batch)
        if isinstance(leaf, torch.Tensor | np.ndarray) and leaf.ndim
    )
    return sizes.most_common(1)[0][0] if sizes else 0


def rows_of(
    batch: Batch, count: int, index: Sequence[int] | NDArray[np.int64]
) -> Batch:
    """Return some of a batch's records, in the order given."""

    def pick(value: Any) -> Any:  # noqa: ANN401
        if not _by_record(value, count):
            return value
        if isinstance(value, torch.Tensor):
            return value[torch.as_tensor(index, device=value.device)]
        if isinstance(value, np.ndarray):
            return value[np.asarray(index)]
        return type(value)(value[int(k)] for k in index)

    return _map(pick, count, batch)


def _map(change: Callable[..., Any], count: int, *batches: Batch) -> Batch:
    """Return a batch with its leaves changed; several batches are mapped together."""

    def inside(*values: Any) -> Any:  # noqa: ANN401
        if not isinstance(values[0], UserDict):  # as transformers' BatchEncoding is
            return change(*values)
        new = copy.copy(values[0])
        new.data = _map(change, count, *(each.data for each in values))
        return new

    def whole(value: object) -> bool:
        return isinstance(value, UserDict) or _by_record(value, count)

    return tree_map(inside, *batches, is_leaf=whole)


def _by_record(value: object, count: int) -> bool:
    """Return whether a value has an item for each record.

    A list does if it has that length and its items are not themselves such values.
    """
    if isinstance(value, torch.Tensor | np.ndarray):
        return value.ndim > 0 and len(value) == count
    return (
        type(value) in (list, tuple)
        and len(value) == count  # type: ignore[arg-type]
        and not any(_by_record(part, count) for part in value)  # type: ignore[attr-defined]
    )
