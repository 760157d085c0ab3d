"""A training step that leaves no trace: run the user's own, then put all of it back.

Inside, nothing is noised, stepped or accounted for: the noise multiplier is 0, and
where the wrapped optimizer would step, the sum is read instead. Afterwards parameters,
buffers, gradients, the optimizer's own state, other optimizers that stepped, and all
random states are as they were, bit for bit. Only state that user code keeps in Python
objects of its own cannot be put back.
"""

import copy
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias, final

import numpy as np
import torch
from opacus.optimizers import DPOptimizer
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from dpaudit.training.opacus.setup import divisor

__all__ = ["Frozen", "frozen", "patched"]

Sums: TypeAlias = list[torch.Tensor]

_NONE: Final = object()
# What a step leaves on parameters and modules, and what it finds there at first.
_ON_PARAMETERS: Final = {
    "grad": None,
    "grad_sample": None,
    "summed_grad": None,
    "_forward_counter": 0,
    "_current_grad_sample": _NONE,
    "_norm_sample": _NONE,
}
_ON_MODULES: Final = {"activations": _NONE, "max_batch_len": _NONE}
_ON_WRAPPER: Final = (
    "max_grad_norm",
    "hooks_enabled",
    "_per_sample_gradient_norms",
    "get_clipping_coef",
)


@final
class Frozen:
    """What a frozen step showed.

    Attributes:
        sums: The sum that would have been given noise, for each parameter; one list
            for each step that the wrapped optimizer would have made.
        others: Optimizers beside the private one that stepped.
    """

    def __init__(self) -> None:
        self.sums: list[Sums] = []
        self.others: list[torch.optim.Optimizer] = []


@contextmanager
def frozen(
    model: nn.Module,
    optimizer: DPOptimizer,
    *,
    seed: int,
    generators: Sequence[torch.Generator] = (),
) -> Iterator[Frozen]:
    """Yield what steps within show, without noise; all is put back at the end.

    Args:
        model: As ``make_private`` returned it.
        optimizer: Likewise.
        seed: All random numbers within begin with it.
        generators: Others that the user's step draws from.
    """
    own = [*generators]
    if optimizer.generator is not None:
        own.append(optimizer.generator)
    seen, inner = Frozen(), optimizer.original_optimizer

    def read(*_: object, **__: object) -> None:
        times = divisor(optimizer)
        seen.sums.append([p.grad.detach() * times for p in optimizer.params])

    with (
        _random_states(own),
        _tensors(model, optimizer),
        _left_behind(model, optimizer),
        _attributes(model, optimizer),
        _other_optimizers(inner, seen),
        patched(inner, "step", read),
    ):
        optimizer.noise_multiplier, optimizer.step_hook = 0.0, None
        optimizer._step_skip_queue = []
        optimizer._is_last_step_skipped = False
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002 (user code may draw from it)
        random.seed(seed)
        for generator in own:
            generator.manual_seed(seed)
        yield seen


@contextmanager
def patched(owner: object, name: str, value: object) -> Iterator[None]:
    """Give an attribute another value for a while."""
    old = vars(owner).get(name, _NONE)
    setattr(owner, name, value)
    try:
        yield
    finally:
        _put(owner, name, old)


@contextmanager
def _random_states(generators: Sequence[torch.Generator]) -> Iterator[None]:
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    cpu, own = torch.get_rng_state(), [each.get_state() for each in generators]
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002
        torch.set_rng_state(cpu)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
        for generator, state in zip(generators, own, strict=True):
            generator.set_state(state)


@contextmanager
def _tensors(model: nn.Module, optimizer: DPOptimizer) -> Iterator[None]:
    """Put back the values of parameters and buffers, and which buffers there are."""
    modules = [(m, dict(m._buffers), m.training) for m in model.modules()]
    values = [
        (tensor, tensor.detach().clone())
        for tensor in [*_parameters(model, optimizer), *model.buffers()]
    ]
    try:
        yield
    finally:
        for module, buffers, training in modules:
            module._buffers.clear()
            module._buffers.update(buffers)
            module.training = training
        with torch.no_grad():
            for tensor, value in values:
                if not torch.equal(tensor, value):
                    tensor.copy_(value)


@contextmanager
def _left_behind(model: nn.Module, optimizer: DPOptimizer) -> Iterator[None]:
    """Put back what waits on parameters and modules between backward and step.

    Tensors are kept and not copied, as gradients may be views of one memory.
    """
    owners: list[tuple[Any, dict[str, Any]]] = [
        *((p, _ON_PARAMETERS) for p in _parameters(model, optimizer)),
        *((m, _ON_MODULES) for m in model.modules()),
    ]
    kept = [
        (owner, name, getattr(owner, name, _NONE))
        for owner, names in owners
        for name in names
    ]
    for owner, names in owners:
        for name, first in names.items():
            if hasattr(owner, name):
                _put(owner, name, first)
    try:
        yield
    finally:
        for owner, name, old in kept:
            _put(owner, name, old)


@contextmanager
def _attributes(model: nn.Module, optimizer: DPOptimizer) -> Iterator[None]:
    """Put back the private optimizer's and the wrapped model's own attributes."""
    own = {
        name: copy.copy(value) if isinstance(value, list) else value
        for name, value in vars(optimizer).items()
    }
    wrapper = {name: vars(model).get(name, _NONE) for name in _ON_WRAPPER}
    try:
        yield
    finally:
        vars(optimizer).clear()
        vars(optimizer).update(own)
        for name, value in wrapper.items():
            _put(model, name, value)


@contextmanager
def _other_optimizers(inner: torch.optim.Optimizer, seen: Frozen) -> Iterator[None]:
    """Put back what optimizers beside the private one changed."""
    before: list[tuple[Any, dict[str, Any], list[torch.Tensor]]] = []

    def note(optimizer: torch.optim.Optimizer, *_: object) -> None:
        if optimizer is inner or isinstance(optimizer, DPOptimizer):
            return
        if optimizer not in seen.others:
            seen.others.append(optimizer)
            values = [p.detach().clone() for p in _trained(optimizer)]
            before.append((optimizer, copy.deepcopy(optimizer.state_dict()), values))

    hook = register_optimizer_step_pre_hook(note)
    try:
        yield
    finally:
        hook.remove()
        for optimizer, state, values in before:
            with torch.no_grad():
                for parameter, value in zip(_trained(optimizer), values, strict=True):
                    parameter.copy_(value)
            optimizer.load_state_dict(state)


def _trained(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _parameters(model: nn.Module, optimizer: DPOptimizer) -> list[nn.Parameter]:
    both = [*model.parameters(), *optimizer.params]
    return list({id(parameter): parameter for parameter in both}.values())


def _put(owner: Any, name: str, value: object) -> None:  # noqa: ANN401
    if value is not _NONE:
        setattr(owner, name, value)
    elif name in vars(owner):
        delattr(owner, name)
