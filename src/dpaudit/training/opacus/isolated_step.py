"""Runs the user's training step without side effects, by restoring all state.

Inside, nothing is noised, stepped or accounted for: Opacus' noise is zero, the noise
multiplier negligible, though not 0, as programs may divide by it, and the wrapped
optimizer does not step. Sums are read where Opacus adds its noise, before the program
processes them further. With a program that adds noise by itself they are read where the
wrapped optimizer would step. Afterwards parameters, buffers, gradients, the optimizer's
own state, other optimizers that stepped, and all random states are restored bit for
bit; schedulers do not advance. Large weights that are not trained are copied only if
the step writes to them (``frozen_weights``). Only state that user code keeps in its own
Python objects cannot be restored.
"""

import copy
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final, TypeAlias, cast, final

import numpy as np
import torch
from opacus.optimizers import DPOptimizer
from opacus.schedulers.grad_clip_scheduler import _GradClipScheduler
from opacus.schedulers.noise_scheduler import _NoiseScheduler
from torch import nn
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import register_optimizer_step_pre_hook

from dpaudit.errors import InvalidInputError
from dpaudit.training.opacus.frozen_weights import (
    Saved,
    frozen_among,
    moved,
    saved_before_writes,
)
from dpaudit.training.opacus.setup import divisor

__all__ = [
    "IsolatedStep",
    "Model",
    "isolated_step",
    "modules_of",
    "named_tensors",
    "network",
    "noise_modules",
    "own_attributes",
    "patched",
    "put",
    "random_states",
    "same",
    "taken",
    "trained_by",
]

# The model from make_private: a module, or with wrap_model=False an object beside it.
Model: TypeAlias = Any

Sums: TypeAlias = list[torch.Tensor]

_NO_NOISE: Final = 1e-12
_ROUNDING: Final = 0.01  # relative, also in half precision
_ABSENT: Final = object()
# Attributes that a step leaves on parameters and modules, with their initial values.
_ON_PARAMETERS: Final = {
    "grad": None,
    "grad_sample": None,
    "summed_grad": None,
    "_forward_counter": 0,
    "_current_grad_sample": _ABSENT,
    "_norm_sample": _ABSENT,
}
_ON_MODULES: Final = {"activations": _ABSENT, "max_batch_len": _ABSENT}
_ON_WRAPPER: Final = (
    "max_grad_norm",
    "hooks_enabled",
    "_per_sample_gradient_norms",
    "get_clipping_coef",
)


@final
class IsolatedStep:
    """The observations of isolated steps.

    Attributes:
        sums: The sum to which noise would have been added, for each parameter; one list
            for each step that the wrapped optimizer would have made. Steps without
            noise are left out, unless no step had any.
        others: Optimizers beside the private one that stepped.
        reworked: Whether a noisy sum was changed before the step.
        before: Parameters and buffers, each with its value before the step; frozen
            weights only once they are written to.
        memory: Frozen weights, each with a view of the memory that it had.
    """

    def __init__(self) -> None:
        self._steps: list[tuple[Sums, bool]] = []
        self.noised = False  # since the last step
        self.reworked = False
        self.others: list[torch.optim.Optimizer] = []
        self.before: Saved = []
        self.memory: Saved = []

    def changed(self, tensors: Mapping[str, torch.Tensor]) -> list[str]:
        """Return the names of the tensors whose values are not those before."""
        before = {id(tensor): value for tensor, value in self.before}
        left = {id(w) for w, memory in self.memory if not moved(w, memory)}
        return [
            name
            for name, tensor in tensors.items()
            if (
                not same(tensor, before[id(tensor)])
                if id(tensor) in before
                else id(tensor) not in left
            )
        ]

    @property
    def sums(self) -> list[Sums]:
        """The sums of all steps with noise, or of all steps if none had any."""
        noised = [sums for sums, noised in self._steps if noised]
        return noised or [sums for sums, _ in self._steps]

    def add(self, sums: Sums) -> None:
        """Record the sums of a step of the wrapped optimizer."""
        self._steps.append((sums, self.noised))
        self.noised = False


@contextmanager
def isolated_step(
    model: Model,
    optimizer: DPOptimizer,
    *,
    seed: int,
    generators: Sequence[torch.Generator] = (),
    noisy: bool = False,
) -> Iterator[IsolatedStep]:
    """Yield the observations of steps in this context; restore all state at its end.

    Args:
        model: The model that ``make_private`` returned.
        optimizer: The optimizer that it returned.
        seed: The seed of all random numbers within.
        generators: Other generators that the user's step draws from.
        noisy: Whether noise is added, as large as configured.
    """
    own, multiplier = [*generators], float(optimizer.noise_multiplier)
    if optimizer.generator is not None:
        own.append(optimizer.generator)
    seen, inner = IsolatedStep(), optimizer.original_optimizer
    give_noise = optimizer.add_noise

    def add_noise() -> None:
        seen.noised = True
        give_noise()

    at_noise: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def no_noise(
        std: float,
        reference: torch.Tensor,
        *_: object,
        **__: object,
    ) -> torch.Tensor:
        noise = torch.zeros_like(reference)
        if noisy:
            noise.normal_(std=std / _NO_NOISE * multiplier)
        at_noise[id(reference)] = reference, reference.detach() + noise
        return noise

    def read(*_: object, **__: object) -> None:
        times = divisor(optimizer)
        sums = [p.grad.detach() * times for p in optimizer.params]
        if all(id(p.summed_grad) in at_noise for p in optimizer.params):
            given = [at_noise[id(p.summed_grad)][1] for p in optimizer.params]
            noised = [one.view_as(own) for one, own in zip(given, sums, strict=True)]
            seen.reworked |= _differ(sums, noised)
            sums = noised
        at_noise.clear()
        seen.add(sums)
        for parameter in optimizer.params:  # with noise it would show nothing either
            parameter.grad = torch.zeros_like(parameter)

    with (
        random_states(own),
        _tensors(model, optimizer, seen),
        _left_behind(model, optimizer),
        own_attributes(model, optimizer),
        _schedules(inner),
        _no_other_private(optimizer),
        _other_optimizers(inner, seen),
        patched(inner, "step", read),
        patched(optimizer, "add_noise", add_noise),
        ExitStack() as without_noise,
    ):
        for module in noise_modules():
            zeros = patched(module, "_generate_noise", no_noise)
            without_noise.enter_context(zeros)
        optimizer.noise_multiplier, optimizer.step_hook = _NO_NOISE, None
        optimizer._step_skip_queue = []
        optimizer._is_last_step_skipped = False
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002 (user code may draw from it)
        random.seed(seed)
        for generator in own:
            generator.manual_seed(seed)
        yield seen


def _differ(first: Sums, second: Sums) -> bool:
    """Return whether sums differ by more than rounding."""
    pairs = zip(first, second, strict=True)
    return any(
        float((one - other).norm()) > _ROUNDING * float(other.norm())
        for one, other in pairs
    )


def noise_modules() -> list[Any]:
    """Return the modules of Opacus that draw noise."""
    return [
        module
        for name, module in sys.modules.items()
        if name.startswith("opacus.optimizers") and hasattr(module, "_generate_noise")
    ]


@contextmanager
def patched(owner: object, name: str, value: object) -> Iterator[None]:
    """Replace an attribute's value within this context."""
    old = taken(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        put(owner, name, old)


@contextmanager
def random_states(generators: Sequence[torch.Generator] = ()) -> Iterator[None]:
    """Restore random states at the end: torch's, numpy's, Python's, and others."""
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
def _tensors(
    model: Model, optimizer: DPOptimizer, seen: IsolatedStep
) -> Iterator[None]:
    """Restore the values of parameters and buffers, and the set of buffers."""
    modules = [(m, dict(m._buffers), m.training) for m in modules_of(model)]
    tensors = _once([*named_tensors(model).values(), *optimizer.params])
    frozen = {id(each): each for each in frozen_among(tensors, optimizer.params)}
    seen.memory = [(weight, weight.detach()) for weight in frozen.values()]
    seen.before = [
        (tensor, tensor.detach().clone())
        for tensor in tensors
        if id(tensor) not in frozen
    ]
    try:
        with saved_before_writes(seen.memory, seen.before):
            yield
    finally:
        for module, buffers, training in modules:
            module._buffers.clear()
            module._buffers.update(buffers)
            module.training = training
        with torch.no_grad():
            for tensor, value in seen.before:
                if not same(tensor, value):
                    tensor.copy_(value)


@contextmanager
def _left_behind(model: Model, optimizer: DPOptimizer) -> Iterator[None]:
    """Restore what is stored on parameters and modules between backward and step.

    Tensors are kept and not copied, as gradients may be views of the same memory.
    """
    owners: list[tuple[Any, dict[str, Any]]] = [
        *((p, _ON_PARAMETERS) for p in _parameters(model, optimizer)),
        *((m, _ON_MODULES) for m in modules_of(model)),
    ]
    kept = [
        (owner, name, getattr(owner, name, _ABSENT))
        for owner, names in owners
        for name in names
    ]
    for owner, names in owners:
        for name, first in names.items():
            if hasattr(owner, name):
                put(owner, name, first)
    try:
        yield
    finally:
        for owner, name, old in kept:
            put(owner, name, old)


@contextmanager
def own_attributes(model: Model, optimizer: DPOptimizer) -> Iterator[None]:
    """Restore the private optimizer's and the wrapped model's own attributes."""
    own = {name: _kept(value) for name, value in vars(optimizer).items()}
    wrapper = {name: taken(model, name) for name in _ON_WRAPPER}
    try:
        yield
    finally:
        vars(optimizer).clear()
        vars(optimizer).update(own)
        for name, value in wrapper.items():
            put(model, name, value)


@contextmanager
def _schedules(inner: torch.optim.Optimizer) -> Iterator[None]:
    """Disable schedulers, and restore learning rates that are set directly."""
    rates = [{k: v for k, v in g.items() if k != "params"} for g in inner.param_groups]
    with ExitStack() as stack:
        for kind in _kinds(LRScheduler, _NoiseScheduler, _GradClipScheduler):
            if "step" in vars(kind):
                stack.enter_context(patched(kind, "step", lambda *_, **__: None))
        try:
            yield
        finally:
            for group, rate in zip(inner.param_groups, rates, strict=True):
                group.update(rate)


@contextmanager
def _no_other_private(optimizer: DPOptimizer) -> Iterator[None]:
    """Raise if a second private optimizer steps, before it is accounted for."""
    scale = DPOptimizer.scale_grad

    def only_this(other: DPOptimizer) -> None:
        if other is not optimizer:
            raise InvalidInputError(
                "step(batch) steps two private optimizers; give each a step of its "
                "own, and probe one after the other"
            )
        scale(other)

    with patched(DPOptimizer, "scale_grad", only_this):
        yield


@contextmanager
def _other_optimizers(
    inner: torch.optim.Optimizer, seen: IsolatedStep
) -> Iterator[None]:
    """Restore what optimizers beside the private one changed."""
    before: list[tuple[Any, dict[str, Any], list[torch.Tensor]]] = []

    def note(optimizer: torch.optim.Optimizer, *_: object) -> None:
        if optimizer is inner or isinstance(optimizer, DPOptimizer):
            return
        if optimizer not in seen.others:
            seen.others.append(optimizer)
            values = [p.detach().clone() for p in trained_by(optimizer)]
            before.append((optimizer, copy.deepcopy(optimizer.state_dict()), values))

    hook = register_optimizer_step_pre_hook(note)
    try:
        yield
    finally:
        hook.remove()
        for optimizer, state, values in before:
            with torch.no_grad():
                for parameter, value in zip(trained_by(optimizer), values, strict=True):
                    parameter.copy_(value)
            optimizer.load_state_dict(state)


def trained_by(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Return the parameters of any optimizer."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def network(model: Model) -> nn.Module:
    """Return the user's own module, unwrapped."""
    inside: Any = getattr(model, "_module", model)
    return cast(nn.Module, inside)


def named_tensors(model: Model) -> dict[str, torch.Tensor]:
    """Return all parameters and buffers, by their names in the user's module."""
    whole = model if isinstance(model, nn.Module) else network(model)
    tensors: dict[str, torch.Tensor] = dict(whole.named_parameters())
    tensors |= dict(whole.named_buffers())
    return {name.removeprefix("_module."): each for name, each in tensors.items()}


def same(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return whether two tensors hold the same values; NaN equals NaN."""
    if first.shape != second.shape:
        return False
    if first.dtype == second.dtype and torch.equal(first, second):
        return True
    neither = (first != first) & (second != second)  # noqa: PLR0124 (not a number)
    return bool(((first == second) | neither).all())


def modules_of(model: Model) -> Iterator[nn.Module]:
    """Return all modules, including the wrapper."""
    return (model if isinstance(model, nn.Module) else network(model)).modules()


def _parameters(model: Model, optimizer: DPOptimizer) -> list[torch.Tensor]:
    return _once([*network(model).parameters(), *optimizer.params])


def _once(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return list({id(tensor): tensor for tensor in tensors}.values())


def _kept(value: object) -> object:
    """Return a copy of a value that may be changed in place."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return copy.copy(value) if isinstance(value, list) else value


def _kinds(*bases: type) -> Iterator[type]:
    """Yield classes and all their subclasses."""
    for base in bases:
        yield base
        yield from _kinds(*base.__subclasses__())


def taken(owner: object, name: str) -> object:
    """Return an object's own attribute for ``put``, which deletes it if absent."""
    return vars(owner).get(name, _ABSENT)


def put(owner: Any, name: str, value: object) -> None:  # noqa: ANN401
    """Restore the attribute that ``taken`` returned."""
    if value is not _ABSENT:
        setattr(owner, name, value)
    elif name in vars(owner):
        delattr(owner, name)
