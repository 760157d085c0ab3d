"""The user's own step, run on chosen records as often as wanted, without a trace.

A probe asks what a batch's sum would be: with one row left out of it, with the loss
multiplied, with other random numbers, with dropout switched off. What it finds are
sums just before noise, and what else a step leaves behind.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import sqrt
from typing import Any, TypeAlias, final

import torch
from opacus.optimizers import DPOptimizer
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from dpaudit.errors import InvalidInputError
from dpaudit.training.opacus.frozen import frozen, patched

__all__ = [
    "Batch",
    "Seen",
    "Step",
    "Steps",
    "apart",
    "batch_size",
    "different",
    "equal",
    "exchanged",
    "named_tensors",
    "norm",
    "parameter_names",
    "rows_of",
    "written",
]

Batch: TypeAlias = Any  # what the user's loader yields
Step: TypeAlias = Callable[[Batch], object]
Watch: TypeAlias = Callable[[nn.Module, object, object], None]


@dataclass(slots=True)
class Seen:
    """What one run of the step showed.

    Attributes:
        total: The sum, for each parameter.
        norms: Norms of the records' gradients before clipping.
        beside: What else the step changed, by name, as it was after it: parameters,
            buffers, and what other optimizers train.
    """

    total: list[torch.Tensor]
    norms: torch.Tensor
    beside: dict[str, torch.Tensor]


@final
class Steps:
    """Runs the user's step without a trace, and counts."""

    def __init__(
        self,
        step: Step,
        model: nn.Module,
        optimizer: DPOptimizer,
        generators: Sequence[torch.Generator],
        seed: int,
    ) -> None:
        self._step, self.model, self.optimizer = step, model, optimizer
        self._generators, self._seed = generators, seed
        self.clip = float(optimizer.max_grad_norm)
        self.precision, self.dropout, self.runs = 0.0, True, 0
        self._norms = torch.zeros(0)
        self.names = parameter_names(model, optimizer)

    def run(
        self,
        batch: Batch,
        *,
        without: int | None = None,
        scale: float = 1.0,
        seed: int | None = None,
        watch: Watch | None = None,
    ) -> Seen:
        """Run the step once.

        Args:
            batch: Its records.
            without: A row that is left out of the sum.
            scale: What gradients are multiplied by.
            seed: Of all random numbers, if not the usual one.
            watch: Is shown what goes in and out of every leaf of the model.
        """
        self.runs += 1
        seed = self._seed if seed is None else seed
        with (
            frozen(
                self.model, self.optimizer, seed=seed, generators=self._generators
            ) as seen,
            ExitStack() as stack,
        ):
            for module in _leaves(self.model):
                hook = module.register_forward_hook(self._note_precision)
                stack.callback(hook.remove)
                if watch is not None:
                    stack.callback(module.register_forward_hook(watch).remove)
            if hasattr(self.model, "get_clipping_coef"):
                stack.enter_context(self._coefficient_left_out(without))
            else:
                stack.enter_context(self._row_left_out(without))
            if scale != 1.0:
                stack.enter_context(_gradients_times(scale))
            if not self.dropout:
                identity = patched(nn.functional, "dropout", _identity)
                stack.enter_context(identity)
            before = {
                name: written(each) for name, each in named_tensors(self.model).items()
            }
            self._step(batch)
            beside = {
                name: tensor.detach().clone()
                for name, tensor in named_tensors(self.model).items()
                if before.get(name) != written(tensor)
            }
            for other in seen.others:
                beside[f"optimizer {type(other).__name__}"] = _flat(other)
        if len(seen.sums) != 1:
            raise InvalidInputError(
                f"step(batch) made {len(seen.sums)} steps of the private optimizer; "
                "it must be the whole step of one batch, and no more"
            )
        return Seen(seen.sums[0], self._norms, beside)

    def rounding(self, seen: Seen) -> float:
        """Return what rounding alone may change in a sum, over the clipping norm."""
        return self.precision * (1 + norm(seen.total) / self.clip)

    def _note_precision(self, _: nn.Module, __: object, output: object) -> None:
        for value in tree_leaves(output):
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                self.precision = max(self.precision, torch.finfo(value.dtype).eps)

    @contextmanager
    def _coefficient_left_out(self, without: int | None) -> Iterator[None]:
        """Give a row the clipping coefficient 0, where norms are all there is."""
        model: Any = self.model
        coefficients = model.get_clipping_coef

        def left_out() -> torch.Tensor:
            found: torch.Tensor = coefficients()
            norms = model.per_sample_gradient_norms
            self._norms = norms.detach().float().clone()
            if without is not None:
                found = found.clone()
                found[without] = 0
            return found

        with patched(model, "get_clipping_coef", left_out):
            yield

    @contextmanager
    def _row_left_out(self, without: int | None) -> Iterator[None]:
        """Drop a row of all per-record gradients, just before they are clipped."""
        optimizer = self.optimizer
        clip, seen, norms = optimizer.clip_and_accumulate, 0, []

        def left_out() -> None:
            nonlocal seen
            for grads in _parts(optimizer):
                count = len(grads[0])
                norms.append(_row_norms(grads))
                if without is not None and 0 <= without - seen < count:
                    _drop(optimizer, grads, without - seen)
                seen += count
            self._norms = torch.cat(norms)
            clip()

        with patched(optimizer, "clip_and_accumulate", left_out):
            yield


def parameter_names(model: nn.Module | None, optimizer: DPOptimizer) -> list[str]:
    """Return the names of the parameters that the optimizer trains."""
    inside = getattr(model, "_module", model)
    named = inside.named_parameters() if isinstance(inside, nn.Module) else ()
    known = {id(parameter): name for name, parameter in named}
    return [known.get(id(p), f"parameter {k}") for k, p in enumerate(optimizer.params)]


def _flat(optimizer: torch.optim.Optimizer) -> torch.Tensor:
    """Return all that an optimizer trains."""
    parts = [p for group in optimizer.param_groups for p in group["params"]]
    return torch.cat([part.detach().reshape(-1).double() for part in parts])


def named_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return all parameters and buffers, by the names that the user knows."""
    found: dict[str, torch.Tensor] = dict(model.named_parameters())
    found |= dict(model.named_buffers())
    return {name.removeprefix("_module."): each for name, each in found.items()}


def written(tensor: torch.Tensor) -> tuple[int, int]:
    """Return what changes when a tensor is written to, or another takes its place."""
    return id(tensor), tensor._version


def _leaves(model: nn.Module) -> Iterator[nn.Module]:
    return (each for each in model.modules() if not any(True for _ in each.children()))


def _identity(values: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
    return values


@contextmanager
def _gradients_times(scale: float) -> Iterator[None]:
    """Multiply all gradients: a loss that is so many times larger."""
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


def _drop(optimizer: DPOptimizer, grads: list[torch.Tensor], row: int) -> None:
    """Replace per-record gradients by those without a row."""
    for parameter, grad in zip(optimizer.params, grads, strict=True):
        rest = grad[torch.arange(len(grad), device=grad.device) != row]
        if isinstance(parameter.grad_sample, list):
            at = next(k for k, x in enumerate(parameter.grad_sample) if x is grad)
            parameter.grad_sample[at] = rest
        else:
            parameter.grad_sample = rest


def _row_norms(grads: list[torch.Tensor]) -> torch.Tensor:
    each = [g.detach().reshape(len(g), -1).float().norm(dim=1) for g in grads]
    whole: torch.Tensor = torch.stack(each, 1).norm(dim=1)
    return whole


def norm(parts: Sequence[torch.Tensor]) -> float:
    """Return the norm of several tensors together."""
    return sqrt(sum(float(part.double().square().sum()) for part in parts))


def apart(first: Seen, second: Seen) -> list[float]:
    """Return for each parameter how far two sums are apart there."""
    pairs = zip(first.total, second.total, strict=True)
    return [float((a - b).double().norm()) for a, b in pairs]


def equal(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> bool:
    """Return whether all tensors are the same, bit for bit."""
    return len(first) == len(second) and all(map(torch.equal, first, second))


def different(
    first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor]
) -> set[str]:
    """Return the names under which two collections do not hold the same."""
    return {
        name
        for name in first.keys() | second.keys()
        if name not in first
        or name not in second
        or not torch.equal(first[name], second[name])
    }


def batch_size(batch: Batch) -> int:
    """Return how many records a batch holds."""
    for value in tree_leaves(batch):
        if isinstance(value, torch.Tensor) and value.dim():
            return len(value)
    raise InvalidInputError("the batch holds no tensor with a row for each record")


def rows_of(batch: Batch, index: Sequence[int]) -> Batch:
    """Return some records of a batch, in the order given."""
    count, chosen = batch_size(batch), torch.tensor(index)

    def pick(value: Any) -> Any:  # noqa: ANN401
        return value[chosen.to(value.device)] if _by_record(value, count) else value

    return tree_map(pick, batch)


def exchanged(batch: Batch, row: int, source: Batch, donor: int) -> Batch:
    """Return a batch with a record of another in one place."""
    count = batch_size(batch)

    def place(value: Any, given: Any) -> Any:  # noqa: ANN401
        if _by_record(value, count):
            value = value.clone()
            value[row] = given[donor]
        return value

    return tree_map(place, batch, source)


def _by_record(value: object, count: int) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 0 and len(value) == count
