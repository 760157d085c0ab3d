"""What changes beside the private optimizer's steps, noticed while the training runs.

Between two steps of the private optimizer nothing may change that records decide: no
parameter, no buffer, nothing that another optimizer trains; nor may the released model
be another than the last step left. So after each step every parameter and buffer is
summed up bit by bit, and compared just before the next, and at the end. That something
changed is no fault by itself, as a step counter or an average of weights is harmless.
Whether records decide it, a check of the step or a rehearsal of the loop finds out
(``interference``, ``rehearsal``); what none looked at is named, and keeps a verdict
from being clean.

Of parameters that nobody is to train some numbers are compared, as adapters that are
merged into frozen weights are written so. Every few steps it is also looked which
parameters the model has: between these steps, only whether they are in their places.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Final, NamedTuple, final

import torch
from opacus.optimizers import DPOptimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from dpaudit.game.findings import (
    Finding,
    Stage,
    inconclusive,
    inspected,
    not_checked,
)
from dpaudit.training.opacus.attachment import Attachment
from dpaudit.training.opacus.isolated_step import (
    Model,
    modules_of,
    named_tensors,
    network,
    trained_by,
)
from dpaudit.training.opacus.setup import local
from dpaudit.training.released import weights_digest

__all__ = ["SideEffects"]

_OFTEN: Final = 8  # steps, after which the model's parameters are listed again
_LARGEST: Final = 1 << 22  # numbers of a tensor that are compared one and all
_SOME: Final = 1024  # of one that is not trained


class _Mark(NamedTuple):
    """A tensor, where a module has it, and of which numbers it is summed up."""

    name: str
    held_by: Mapping[str, torch.Tensor | None]
    key: str
    tensor: torch.Tensor
    stride: int

    def now(self) -> "_Mark":
        """Return the mark of what is there now."""
        there = self.held_by.get(self.key)
        return self if there is None else self._replace(tensor=there)

    def bits(self) -> torch.Tensor:
        """Return the sum of the tensor's bits, eight bytes at a time."""
        flat = local(self.tensor.detach()).reshape(-1)[:: self.stride].contiguous()
        if flat.storage_offset() * flat.element_size() % 8 or flat.stride(0) != 1:
            flat = flat.new_empty(len(flat)).copy_(flat)
        data = flat.view(torch.uint8)
        whole = len(data) // 8 * 8
        return data[:whole].view(torch.int64).sum() + data[whole:].sum()


@final
class SideEffects:
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
        self._late: list[str] = []  # what changed after the last step
        self._broken: list[str] = []  # parameters that hold NaN or infinity at the end
        self._private = 0  # steps of other private optimizers
        self._marks: list[_Mark] = []
        self._sums: list[int] = []
        self.steps, self._paused = 0, False

    def attach(self, attachment: Attachment) -> None:
        """Begin to notice."""
        attachment.before(self._look)
        attachment.after(self._remember)

        def other(optimizer: torch.optim.Optimizer, *_: object) -> None:
            attachment.guard.run(self._other, optimizer, inside=attachment.inside)

        attachment.on_close(register_optimizer_step_post_hook(other).remove)

    def end(self) -> None:
        """Look once more, when training has ended: what changed since the last step?"""
        before = dict(self.changed)
        self._look()
        self._late = [
            name for name, n in self.changed.items() if n > before.get(name, 0)
        ]
        self._broken = [
            mark.name
            for mark in self._marks
            if id(mark.tensor) in self._trained and not _finite(mark.tensor)
        ]

    def forget(self) -> None:
        """Take what is there now as it is: after loading a checkpoint."""
        self._marks, self._sums = [], []

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Notice nothing for a while, and begin anew after it."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False
            self._marks, self._sums = [], []

    def findings(self, examined: Iterable[str], *, compared: bool) -> Iterator[Finding]:
        """Return what was noticed, and what of it no probe has looked at.

        Args:
            examined: Names of what a probe of the step saw change.
            compared: Whether steps were compared on other records: without that, what
                is seen to change says little.
        """
        if self._model is None:
            yield not_checked(Stage.SIDE_PATHS, "side_paths.would")
        else:
            watched = inspected if compared else not_checked
            yield watched(
                Stage.SIDE_PATHS,
                "side_paths.watched",
                (*sorted(self.changed), *sorted(self._late)),
                changed=len(self.changed),
                not_trained=self._not_trained(),
                steps=self.steps,
                private_steps=self._private,
            )
            yield self._released({*examined})
        if self._broken:
            yield inconclusive("side_paths.not_finite", self._broken)
        unknown = self.changed.keys() - set(examined)
        late = {name for name in unknown & {*self._late} if self.changed[name] == 1}
        if late:
            yield inconclusive("side_paths.late", sorted(late))
        for name in sorted(unknown - late):
            times = self.changed[name]
            yield inconclusive("side_paths.not_probed", (name,), times=times)

    def _released(self, examined: set[str]) -> Finding:
        """Return whether the model is the one that the last step left."""
        if not self._late:
            return inspected(
                Stage.RELEASED_MODEL,
                "released.as_left",
                steps=self.steps,
                **self._digest(),
            )
        if {*self._late} <= examined:
            return inspected(Stage.RELEASED_MODEL, "released.alike", self._late)
        return not_checked(Stage.RELEASED_MODEL, "released.changed", self._late)

    def _digest(self) -> dict[str, str]:
        """Return the digest of the weights, unless ranks share them."""
        weights = network(self._model).state_dict()
        if any(local(each) is not each for each in weights.values()):
            return {}
        return {"sha256": weights_digest(weights)}

    def _not_trained(self) -> int:
        """Return how many numbers the private optimizer does not train."""
        return sum(
            parameter.numel()
            for parameter in network(self._model).parameters()
            if id(parameter) not in self._trained
        )

    def _other(self, optimizer: torch.optim.Optimizer, *, inside: bool) -> None:
        """Notice the step of another optimizer.

        Args:
            optimizer: Which.
            inside: Whether the private one is making its step, of which this is a part
                if it trains the same parameters: the wrapped optimizer wraps another.
        """
        own = optimizer is self._inner or isinstance(optimizer, DPOptimizer)
        if own or self._paused:
            return
        if inside and {id(p) for p in trained_by(optimizer)} <= self._trained:
            return
        if _steps_privately(optimizer):
            self._private += 1
        else:
            self._count(f"optimizer {type(optimizer).__name__}")

    def _look(self) -> None:
        """Just before a step: what was written to since the last one?"""
        if self._paused:
            return
        there = [mark.now() for mark in self._marks]
        sums = zip(self._marks, there, self._sums, _sums(there), strict=True)
        for mark, its, before, now in sums:
            if its.tensor is not mark.tensor or before != now:
                self._count(mark.name)

    def _remember(self) -> None:
        """Just after a step: how things are."""
        if self._paused or self._model is None:
            return
        self.steps += 1
        if self._marks and self.steps % _OFTEN:
            self._marks = [mark.now() for mark in self._marks]
        else:
            self._list()
        self._sums = _sums(self._marks)

    def _list(self) -> None:
        """Look which tensors the model has."""
        before = {mark.name: mark.tensor for mark in self._marks}
        self._marks = list(_marks(self._model, self._trained))
        now = {mark.name: mark.tensor for mark in self._marks}
        for name, tensor in before.items():
            if now.get(name) is not tensor:
                self._count(name)

    def _count(self, name: str) -> None:
        self.changed[name] = self.changed.get(name, 0) + 1


def _marks(model: Model, trained: Set[int]) -> Iterator[_Mark]:
    """Return all parameters and buffers of a model, as they are."""
    places = {
        id(tensor): (held_by, key)
        for module in modules_of(model)
        for held_by in (module._parameters, module._buffers)
        for key, tensor in held_by.items()
    }
    for name, tensor in named_tensors(model).items():
        if id(tensor) not in places:
            continue
        idle = isinstance(tensor, torch.nn.Parameter) and id(tensor) not in trained
        most = _SOME if idle else _LARGEST
        stride = max(1, local(tensor.detach()).numel() // most)
        yield _Mark(name, *places[id(tensor)], tensor, stride)


def _sums(marks: list[_Mark]) -> list[int]:
    """Return the sum of each tensor's bits."""
    sums = [mark.bits() for mark in marks]
    if len({each.device for each in sums}) == 1:
        return [int(each) for each in torch.stack(sums).tolist()]
    return [int(each) for each in sums]


def _finite(tensor: torch.Tensor) -> bool:
    return bool(torch.isfinite(local(tensor.detach())).all())


def _steps_privately(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether it is a private optimizer that has this one make its step."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_name == "step":
            owner = frame.f_locals.get("self")
            if isinstance(owner, DPOptimizer):
                return owner.original_optimizer is optimizer
    return False
