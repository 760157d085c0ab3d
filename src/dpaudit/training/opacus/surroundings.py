"""What leaves a step besides the noisy sum, noticed while the training runs.

Between two steps of the private optimizer nothing may change that records decide: no
parameter, no buffer, nothing that another optimizer trains. torch counts how often a
tensor was written to, so noticing costs next to nothing. That something changed is no
fault by itself, as a step counter or an average of weights is harmless. Whether records
decide it, a probe of the step finds out (``sensitivity``); what no probe looked at is
named, and keeps a verdict from being clean.

Writing to ``tensor.data`` is not counted by torch. So at some steps, ever fewer, the
values are compared as well.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeAlias, final

import torch
from opacus.optimizers import DPOptimizer
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.hooks import RemovableHandle

from dpaudit.game.ledger import How, Look, Road
from dpaudit.game.verdict import Control, Verdict
from dpaudit.training.opacus.frozen import Model, named_tensors

__all__ = ["Surroundings"]

Marks: TypeAlias = dict[str, tuple[int, int]]


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
        self.changed: dict[str, int] = {}
        self._marks: Marks = {}
        self._sums: dict[str, tuple[float, float]] = {}
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
        self._marks, self._sums = {}, {}

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Notice nothing for a while, and begin anew after it."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False
            self.forget()

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
            said=f"parameters, buffers and other optimizers, over {self.steps} steps: "
            f"{said}; what is logged or printed is not seen",
        )

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
        if self._paused or self._model is None or not self._marks:
            return
        now = named_tensors(self._model)
        for name, tensor in now.items():
            known = name in self._marks
            if (known and self._marks[name] != _written(tensor)) or (
                name in self._sums and self._sums[name] != _digest(tensor)
            ):
                self._count(name)

    def _remember(self, *_: object) -> None:
        """Just after a step: how things are."""
        if self._paused or self._model is None:
            return
        self.steps += 1
        now = named_tensors(self._model)
        self._marks = {name: _written(tensor) for name, tensor in now.items()}
        chosen = (self.steps - 1) & (self.steps - 2) == 0  # 2, 3, 5, 9, 17, ...
        self._sums = {name: _digest(t) for name, t in now.items()} if chosen else {}

    def _count(self, name: str) -> None:
        self.changed[name] = self.changed.get(name, 0) + 1


def _written(tensor: torch.Tensor) -> tuple[int, int]:
    """Return what changes when a tensor is written to, or another takes its place."""
    return id(tensor), tensor._version


def _digest(tensor: torch.Tensor) -> tuple[float, float]:
    """Return two numbers: gradients of a bias often sum to 0, and their squares not."""
    values = tensor.detach().double()
    return float(values.sum()), float(values.square().sum())
