"""Detects changes outside the private optimizer's steps during a training run.

Between two steps of the private optimizer nothing may change depending on records: no
parameter, no buffer, nothing that another optimizer trains; and the released model must
be the one that the last step left. So the bits of every parameter and buffer are summed
after each step, and compared just before the next, and at the end. A change is no fault
by itself, as a step counter or an average of weights is harmless. Whether it depends on
records is determined by a check of the step or a rehearsal of the loop
(``interference``, ``rehearsal``); the result names what neither covered, and is then
inconclusive.

Of a parameter that is not trained, torch's count of writes and some numbers are
compared, as merging adapters writes to frozen weights; their places are drawn from the
key anew whenever the model's parameters are listed again, every few steps. Writes that
torch does not count, to few numbers, and undone before the end, may be missed. All
bytes of these weights are hashed at the beginning and at the end.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, final

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.optimizers import DPOptimizer
from torch.distributed.tensor import DTensor
from torch.optim.optimizer import register_optimizer_step_post_hook

from dpaudit.errors import InvalidInputError
from dpaudit.game.findings import (
    Finding,
    Stage,
    inconclusive,
    inspected,
    not_checked,
)
from dpaudit.training.opacus.attachment import Attachment
from dpaudit.training.opacus.bit_sums import BitSums, integers
from dpaudit.training.opacus.frozen_weights import version
from dpaudit.training.opacus.isolated_step import (
    Model,
    modules_of,
    named_tensors,
    network,
    trained_by,
)
from dpaudit.training.opacus.transfers import ToHost, Values, local
from dpaudit.training.probe import leaf_digests
from dpaudit.training.released import digest_of_leaves

__all__ = ["SideEffects"]

_RELIST_EVERY: Final = 8  # steps, after which the model's parameters are listed again
_COMPARED: Final = 1 << 22  # numbers of a tensor; of larger ones, evenly spaced
_COMPARED_UNTRAINED: Final = 128  # the same, of a tensor that is not trained


@final
class _Mark:
    """A tensor, where a module holds it, and which of its numbers are summed.

    Args:
        name: Its name in the model.
        held_by: What holds it under a key, such as a module's parameters.
        key: That key.
        tensor: The tensor.
        which: Which numbers of the flat tensor are summed.
        idle: Whether nothing trains it.
    """

    def __init__(
        self,
        name: str,
        held_by: Mapping[str, torch.Tensor | None],
        key: str,
        tensor: torch.Tensor,
        which: slice,
        *,
        idle: bool,
    ) -> None:
        self.name, self.tensor = name, tensor
        self._held_by, self._key = held_by, key
        self._which, self._idle = which, idle
        self._memory = -1  # where the view lies that was kept
        self._numbers = torch.empty(0, dtype=torch.int64)

    @property
    def written(self) -> int:
        """How often it was written to, if nothing trains it."""
        return version(self.tensor) if self._idle else 0

    def replaced(self) -> bool:
        """Return whether the module holds another tensor by now, and mark that."""
        now = self._held_by.get(self._key)
        if now is None or now is self.tensor:
            return False
        self.tensor, self._memory = now, -1
        return True

    def numbers(self) -> torch.Tensor:
        """Return the tensor's bits, or some of them, as integers."""
        if isinstance(self.tensor, DTensor):
            return self._as_integers(local(self.tensor.detach()))
        memory = self.tensor.data_ptr()
        if memory == self._memory:  # and a view of it was kept
            return self._numbers
        numbers = self._as_integers(self.tensor.detach())
        # A view that is kept keeps the memory, of which accelerators have little.
        on_host = self.tensor.device.type == "cpu"
        if on_host and _memory(numbers) == _memory(self.tensor):
            self._numbers, self._memory = numbers, memory
        return numbers

    def _as_integers(self, tensor: torch.Tensor) -> torch.Tensor:
        numbers = tensor.reshape(-1)[self._which]
        every = self._which.step in {None, 1}
        return integers(numbers.contiguous() if every else numbers)


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


@final
class SideEffects:
    """Records changes outside the private optimizer's own steps.

    Args:
        model: The model that ``make_private`` returned; without it only other
            optimizers are detected.
        optimizer: The private optimizer.
        rng: Draws the numbers of idle parameters that are compared.

    Attributes:
        changed: How often each tensor or optimizer changed, by name.
        steps: Number of steps that were watched.
    """

    def __init__(
        self, model: Model | None, optimizer: DPOptimizer, rng: np.random.Generator
    ) -> None:
        self._model, self._inner = model, optimizer.original_optimizer
        self._rng = rng
        self._trained = {id(parameter) for parameter in optimizer.params}
        self.changed: dict[str, int] = {}
        self._late: list[str] = []  # what changed after the last step
        self._broken: list[str] = []  # parameters that hold NaN or infinity at the end
        self._private = 0  # steps of other private optimizers
        self._marks: list[_Mark] = []
        self._sums: tuple[Values, list[int]] = [], []
        self._bit_sums = BitSums()
        self._written: list[int] = []
        self._to_host = ToHost()
        self._idle: dict[str, str] = {}  # digests at the beginning
        self._digests: dict[str, str] = {}  # of the weights at the end
        self.steps, self._paused = 0, False

    def attach(self, attachment: Attachment) -> None:
        """Begin to record changes."""
        self._idle = self._digests_now(idle=True)
        self._to_host = attachment.to_host
        attachment.before(self._record_changes)
        attachment.after(self._remember)

        def other(optimizer: torch.optim.Optimizer, *_: object) -> None:
            attachment.guard.run(self._other, optimizer, inside=attachment.inside)

        attachment.on_close(register_optimizer_step_post_hook(other).remove)

    def end(self) -> None:
        """Record what changed since the last step, after training has ended."""
        before = dict(self.changed)
        self._record_changes()
        self._to_host.start()
        self._to_host.settle()
        self._late = [
            name for name, n in self.changed.items() if n > before.get(name, 0)
        ]
        self._digests = self._digests_now()
        for name, digest in self._idle.items():
            if name not in self.changed and self._digests.get(name) != digest:
                self._count(name)  # it is not known when
        self._broken = [
            mark.name
            for mark in self._marks
            if id(mark.tensor) in self._trained and not _finite(mark.tensor)
        ]

    def forget(self) -> None:
        """Accept the current state as unchanged, after loading a checkpoint."""
        self._marks, self._sums, self._written = [], ([], []), []
        self._idle = self._digests_now(idle=True)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Record nothing within this context, and start afresh after it."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False
            self._marks, self._sums, self._written = [], ([], []), []

    def findings(self, examined: Iterable[str], *, compared: bool) -> Iterator[Finding]:
        """Return the recorded changes, and those of them that no probe examined.

        Args:
            examined: Names of what a probe of the step saw change.
            compared: Whether steps were compared on other records: without that, a
                recorded change shows little.
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
        """Return whether the model is unchanged since the last step."""
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
        """Return the digest of the weights, if this rank alone can compute it."""
        return {"sha256": digest_of_leaves(self._digests)} if self._digests else {}

    def _digests_now(self, *, idle: bool = False) -> dict[str, str]:
        """Return a digest of each weight; nothing if one cannot be read here.

        Args:
            idle: Whether to read only those that nothing trains privately.
        """
        if self._model is None:
            return {}
        weights = network(self._model).state_dict(keep_vars=True)
        if idle:
            weights = {name: w for name, w in weights.items() if self._is_idle(w)}
        if not weights or any(local(each) is not each for each in weights.values()):
            return {}
        try:
            return leaf_digests(weights, "weights")
        except InvalidInputError:  # of a type that numpy cannot read
            return {}

    def _is_idle(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor is a parameter that is not trained privately."""
        idle = isinstance(tensor, torch.nn.Parameter)
        return idle and id(tensor) not in self._trained

    def _not_trained(self) -> int:
        """Return how many of the model's parameters are not trained privately."""
        return sum(
            parameter.numel()
            for parameter in network(self._model).parameters()
            if id(parameter) not in self._trained
        )

    def _other(self, optimizer: torch.optim.Optimizer, *, inside: bool) -> None:
        """Record a step of another optimizer.

        Args:
            optimizer: The other optimizer.
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

    def _record_changes(self) -> None:
        """Record, just before a step, which tensors changed since the last one."""
        if self._paused:
            return
        names = [mark.name for mark in self._marks]
        moved = np.array(
            [
                mark.replaced() or mark.written != written
                for mark, written in zip(self._marks, self._written, strict=True)
            ],
            bool,
        )
        (sums_before, order_before), (sums, order) = self._sums, self._sum()

        def received(before: NDArray[np.int64], now: NDArray[np.int64]) -> None:
            differences = np.zeros(len(names), np.int64)
            differences[order_before] += before.astype(np.int64)  # or there is none
            differences[order] -= now.astype(np.int64)
            for k in np.flatnonzero(moved | (differences != 0)):
                self._count(names[k])

        self._to_host.add(received, sums_before, sums)

    def _remember(self) -> None:
        """Store, just after a step, the sums of all tensors."""
        if self._paused or self._model is None:
            return
        self.steps += 1
        if self._marks and self.steps % _RELIST_EVERY:
            for mark in self._marks:
                mark.replaced()
        else:
            self._list()
        self._sums = self._sum()
        self._written = [mark.written for mark in self._marks]

    def _sum(self) -> tuple[Values, list[int]]:
        """Return the sums of all tensors' bits, and the number of each one's tensor."""
        return self._bit_sums.of([mark.numbers() for mark in self._marks])

    def _list(self) -> None:
        """List the model's tensors, and record which were replaced or removed."""
        before = {mark.name: mark.tensor for mark in self._marks}
        self._marks = [*self._marked()]
        now = {mark.name: mark.tensor for mark in self._marks}
        for name, tensor in before.items():
            if now.get(name) is not tensor:
                self._count(name)

    def _marked(self) -> Iterator[_Mark]:
        """Return marks of all parameters and buffers of the model."""
        places = {
            id(tensor): (held_by, key)
            for module in modules_of(self._model)
            for held_by in (module._parameters, module._buffers)
            for key, tensor in held_by.items()
        }
        for name, tensor in named_tensors(self._model).items():
            if id(tensor) not in places:
                continue
            idle = self._is_idle(tensor)
            most = _COMPARED_UNTRAINED if idle else _COMPARED
            stride = max(1, local(tensor.detach()).numel() // most)
            first = int(self._rng.integers(stride)) if idle else 0
            which = slice(first, None, stride)
            yield _Mark(name, *places[id(tensor)], tensor, which, idle=idle)

    def _count(self, name: str) -> None:
        self.changed[name] = self.changed.get(name, 0) + 1


def _finite(tensor: torch.Tensor) -> bool:
    return bool(torch.isfinite(local(tensor.detach())).all())


def _steps_privately(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether a private optimizer is stepping this one, as its wrapped one."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_name == "step":
            owner = frame.f_locals.get("self")
            if isinstance(owner, DPOptimizer):
                return owner.original_optimizer is optimizer
    return False
