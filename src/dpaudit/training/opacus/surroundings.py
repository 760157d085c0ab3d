"""What leaves a step besides the noisy sum, noticed while the training runs.

Between two steps of the private optimizer nothing may change that records decide: no
parameter, no buffer, nothing that another optimizer trains. torch counts how often a
tensor was written to, so noticing costs next to nothing. That something changed is no
fault by itself, as a step counter or an average of weights is harmless. Whether records
decide it, a probe of the step finds out (``sensitivity``); what no probe looked at is
named, and keeps a verdict from being clean.

Writing to ``tensor.data`` is not counted by torch. So at some steps, ever fewer, the
values are compared as well; and every few steps some numbers of each parameter that the
private optimizer does not train are held against what they were at first, as adapters
that are merged into frozen weights are written so. Then it is also looked which
parameters the model has: between these steps, only whether they are in their places.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple, final

import torch
from opacus.optimizers import DPOptimizer
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.hooks import RemovableHandle

from dpaudit.game.ledger import How, Look, Road
from dpaudit.game.verdict import Control, Verdict
from dpaudit.training.opacus.frozen import (
    Model,
    modules_of,
    named_tensors,
    network,
    same,
)
from dpaudit.training.opacus.layout import local

__all__ = ["Surroundings"]

_OFTEN: Final = 8  # steps, after which untrained parameters are looked at again
_SOME: Final = 16  # numbers of each of them


class _Mark(NamedTuple):
    """A tensor, where a module has it, and how often it was written to."""

    name: str
    held_by: Mapping[str, torch.Tensor | None]
    key: str
    tensor: torch.Tensor
    written: int

    def moved(self) -> bool:
        """Return whether it was written to, or another took its place."""
        there = self.held_by.get(self.key)
        return there is not self.tensor or self.tensor._version != self.written

    def now(self) -> "_Mark":
        """Return the mark of what is there now."""
        there = self.held_by.get(self.key)
        tensor = self.tensor if there is None else there
        return self._replace(tensor=tensor, written=tensor._version)


@final
class Surroundings:
    """Notes what changes beside the private optimizer's own steps.

    Args:
        model: As ``make_private`` returned it; without it only other optimizers are
            noticed.
        optimizer: The private one.

    Attributes:
        changed: What changed, by name, and how often.
        steps: Over how many steps it was noticed.
    """

    def __init__(self, model: Model | None, optimizer: DPOptimizer) -> None:
        self._model, self._inner = model, optimizer.original_optimizer
        self._trained = {id(parameter) for parameter in optimizer.params}
        self.changed: dict[str, int] = {}
        self._marks: list[_Mark] = []
        self._sums: dict[str, tuple[float, float]] = {}
        self._first: dict[str, torch.Tensor] = {}
        self.steps, self._paused = 0, False
        self._hooks: list[RemovableHandle] = []

    def attach(self) -> None:
        """Begin to notice."""
        self._hooks = [
            self._inner.register_step_pre_hook(self._look),
            self._inner.register_step_post_hook(self._remember),
            register_optimizer_step_post_hook(self._other),
        ]

    def detach(self) -> None:
        """Notice nothing more."""
        for hook in self._hooks:
            hook.remove()

    def forget(self) -> None:
        """Take what is there now as it is: after loading a checkpoint."""
        self._marks, self._sums, self._first = [], {}, {}

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Notice nothing for a while, and begin anew after it."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False
            self._marks, self._sums = [], {}

    def looks(self) -> Iterator[Look]:
        """Return what was noticed."""
        if self._model is None:
            yield Look(
                road=Road.OTHER_WAYS,
                how=How.NOT_LOOKED_AT,
                said="OpacusAudit(..., model=model) would look at it",
            )
            return
        said = "nothing but the private optimizer changed"
        if self.changed:
            said = f"these changed as well: {', '.join(sorted(self.changed))}"
        yield Look(
            road=Road.OTHER_WAYS,
            how=How.PROBED,
            said=f"parameters{self._frozen()}, buffers and other optimizers, over "
            f"{self.steps} steps: {said}; what is logged or printed is not seen",
        )

    def _frozen(self) -> str:
        """Say how many numbers the private optimizer does not train, if any."""
        rest = sum(
            parameter.numel()
            for parameter in network(self._model).parameters()
            if id(parameter) not in self._trained
        )
        return f" ({rest:,} numbers of which are not trained)" if rest else ""

    def controls(self, examined: Iterable[str]) -> Iterator[Control]:
        """Return what changed and no probe has looked at.

        Args:
            examined: Names of what a probe of the step saw change.
        """
        for name in sorted(self.changed.keys() - set(examined)):
            times = self.changed[name]
            yield Control(
                said=f"{name} changed {times} times beside the private optimizer, and "
                "whether records decide it was not looked at (audit.probe(step), with "
                "a step that does it)",
                spoils=Verdict.INCONCLUSIVE,
            )

    def _other(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        own = optimizer is self._inner or isinstance(optimizer, DPOptimizer)
        if not own and not self._paused:
            self._count(f"optimizer {type(optimizer).__name__}")

    def _look(self, *_: object) -> None:
        """Just before a step: what was written to since the last one?"""
        if self._paused:
            return
        for mark in self._marks:
            digest = self._sums.get(mark.name)
            if mark.moved() or (digest is not None and digest != _digest(mark.tensor)):
                self._count(mark.name)

    def _remember(self, *_: object) -> None:
        """Just after a step: how things are."""
        if self._paused or self._model is None:
            return
        self.steps += 1
        if self._marks and self.steps % _OFTEN:
            self._marks = [mark.now() for mark in self._marks]
        else:
            self._list()
        chosen = (self.steps - 1) & (self.steps - 2) == 0  # 2, 3, 5, 9, 17, ...
        self._sums = {m.name: _digest(m.tensor) for m in self._marks} if chosen else {}

    def _list(self) -> None:
        """Look which tensors the model has, and at those that nobody is to change."""
        before = {mark.name: mark.tensor for mark in self._marks}
        self._marks = list(_marks(self._model))
        now = {mark.name: mark.tensor for mark in self._marks}
        for name, tensor in before.items():
            if now.get(name) is not tensor:
                self._count(name)
        for name, tensor in now.items():
            if id(tensor) in self._trained:
                continue
            some = _some(tensor)
            first = self._first.setdefault(name, some)
            if not same(some, first):
                self._first[name] = some
                if name not in self.changed:
                    self._count(name)

    def _count(self, name: str) -> None:
        self.changed[name] = self.changed.get(name, 0) + 1


def _marks(model: Model) -> Iterator[_Mark]:
    """Return all parameters and buffers of a model, as they are."""
    places = {
        id(tensor): (held_by, key)
        for module in modules_of(model)
        for held_by in (module._parameters, module._buffers)
        for key, tensor in held_by.items()
    }
    for name, tensor in named_tensors(model).items():
        if id(tensor) in places:
            held_by, key = places[id(tensor)]
            yield _Mark(name, held_by, key, tensor, tensor._version)


def _some(tensor: torch.Tensor) -> torch.Tensor:
    """Return some numbers of a tensor, from all over it."""
    whole = local(tensor.detach())
    count = min(_SOME, whole.numel())
    at = torch.arange(count, device=whole.device) * (whole.numel() - 1)
    return torch.take(whole, at // max(count - 1, 1))


def _digest(tensor: torch.Tensor) -> tuple[float, float]:
    """Return two numbers: gradients of a bias often sum to 0, and their squares not."""
    values = tensor.detach().double()
    return float(values.sum()), float(values.square().sum())
