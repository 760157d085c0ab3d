"""Restores weights that nothing trains without a copy of them.

The base of a fine-tuned model can be a thousand times larger than what is trained. So a
step that is run without side effects copies a frozen weight only just before the first
operation of torch that writes to it, through whichever tensor it does so; what a step
does not write to needs no copy. Writes past torch, as by numpy in the same memory, are
not noticed here (``side_effects`` hashes these weights at both ends of the run).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, TypeAlias

import torch
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    is_traceable_wrapper_subclass,
)

__all__ = [
    "Saved",
    "frozen_among",
    "moved",
    "saved_before_writes",
    "version",
]

_COPIED: Final = 1 << 24  # bytes of frozen weights that are simply copied

Saved: TypeAlias = list[tuple[torch.Tensor, torch.Tensor]]  # tensors and their values


def frozen_among(
    tensors: Iterable[torch.Tensor], trained: Iterable[torch.Tensor]
) -> Sequence[torch.Tensor]:
    """Return the parameters that need no gradient, if they are too large to copy.

    Args:
        tensors: Parameters and buffers.
        trained: The parameters of optimizers, which are not frozen.
    """
    known = {id(each) for each in trained}
    frozen = [
        each
        for each in tensors
        if isinstance(each, torch.nn.Parameter)
        and not each.requires_grad
        and id(each) not in known
        and each.layout == torch.strided
        and not is_traceable_wrapper_subclass(each)  # sharded, as by FSDP
    ]
    large = sum(each.numel() * each.element_size() for each in frozen) > _COPIED
    return frozen if large else []


@contextmanager
def saved_before_writes(memory: Saved, saved: Saved) -> Iterator[None]:
    """Within this context, save weights that are written to; then restore the memory.

    Args:
        memory: The weights, each with a view of the memory that it had.
        saved: To which each of them that is about to be written to is added, with a
            copy of its values.
    """
    if not memory:
        yield
        return
    try:
        with _SavesBeforeWrites(memory, saved):
            yield
    finally:
        for weight, before in memory:
            if moved(weight, before):
                weight.data = before


def moved(weight: torch.Tensor, before: torch.Tensor) -> bool:
    """Return whether a weight has other memory than before: ``weight.data = other``."""
    return _storage(weight) != _storage(before) or weight.shape != before.shape


class _SavesBeforeWrites(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operation of torch, and saves what it is about to write to."""

    def __init__(self, memory: Saved, saved: Saved) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._saved = saved
        self._weights: dict[int, Saved] = {}
        for weight, before in memory:
            self._weights.setdefault(_storage(before), []).append((weight, before))

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 (torch's)
        types: Any,  # noqa: ANN401
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        named = kwargs or {}
        for at, name in _written(func):
            given = args[at] if at < len(args) else named.get(name)
            for tensor in given if isinstance(given, list | tuple) else (given,):
                if isinstance(tensor, torch.Tensor):
                    self._save(tensor)
        return func(*args, **named)

    def _save(self, tensor: torch.Tensor) -> None:
        for weight, before in self._weights.pop(_storage(tensor), ()):
            self._saved.append((weight, before.clone()))


@cache
def _written(operation: Any) -> tuple[tuple[int, str], ...]:  # noqa: ANN401 (torch's)
    """Return position and name of the arguments that an operation writes to."""
    schema = getattr(operation, "_schema", None)
    return tuple(
        (at, each.name)
        for at, each in enumerate(schema.arguments if schema is not None else ())
        if each.alias_info is not None and each.alias_info.is_write
    )


def _storage(tensor: torch.Tensor) -> int:
    """Return what identifies a tensor's memory."""
    return int(tensor.untyped_storage()._cdata)


def version(tensor: torch.Tensor) -> int:
    """Return how often a tensor was written to, as far as torch counts it."""
    return 0 if tensor.is_inference() else int(tensor._version)
