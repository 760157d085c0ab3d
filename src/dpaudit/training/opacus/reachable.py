"""Computes digests, by path, of all state that can be reached from a step function.

Two runs of a step with the same noisy sums must leave the same state, except where
records are allowed to be. So everything that roots lead to is visited: tensors, arrays,
numbers, strings and random states, in attributes, containers, closures, defaults, bound
objects, and globals and classes of the user's own code.

Objects that hold records or lead outside are not visited: data sets, loaders, samplers,
loggers, files, locks, threads and autograd graphs; library modules; and the raw
gradients that Opacus itself keeps between backward and step, which ``zero_grad``
clears. A record stored in one of these is not detected there; if a later step reads it,
it is detected in the effects of that step.
"""

import functools
import io
import logging
import random
import sys
import sysconfig
import threading
import types
from collections import deque
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

__all__ = ["digest", "reachable"]

_MAX_HASHED: Final = 1 << 22  # numbers of a tensor that is hashed whole
_SAMPLED: Final = 4096  # evenly spaced numbers of a larger one
_MAX_PATHS: Final = 40_000
_MAX_DEPTH: Final = 9

# Opacus' own attributes: not noised by design, and cleared by zero_grad.
_RAW: Final = {
    "grad_sample",
    "summed_grad",
    "_norm_sample",
    "_current_grad_sample",
    "activations",
    "sample_size",
    "_per_sample_gradient_norms",
    "_forward_counter",
    "max_batch_len",
    "_step_skip_queue",
    "_is_last_step_skipped",
}
_LIBRARIES: Final = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
)
_LEFT_OUT: Final = (
    types.ModuleType,
    types.BuiltinFunctionType,
    types.CodeType,
    Dataset,
    DataLoader,
    Sampler,
    logging.Logger,
    logging.Handler,
    io.IOBase,
    threading.Thread,
    type(threading.Lock()),
    type(threading.RLock()),
    torch.autograd.graph.Node,
)
_PLAIN: Final = (bool, int, float, complex, str, bytes, np.generic, torch.dtype)


def digest(tensor: torch.Tensor, *, whole: bool = True) -> str:
    """Return a digest of a tensor's values and shape.

    Args:
        tensor: A tensor of any type and layout.
        whole: Whether to hash all of its numbers rather than some; very large tensors
            are never hashed whole.
    """
    values = tensor.detach()
    if values.layout != torch.strided:
        values = values.to_dense()
    if not whole or values.numel() > _MAX_HASHED:
        flat = values.reshape(-1)
        values = flat[:: max(1, flat.numel() // _SAMPLED)]
    raw = values.contiguous().cpu().reshape(-1).view(torch.uint8).numpy()
    return f"{blake2b(raw.tobytes(), digest_size=8).hexdigest()} {tuple(tensor.shape)}"


def reachable(
    roots: Iterable[tuple[str, object]], leave_out: Iterable[object] = ()
) -> dict[str, str]:
    """Return digests of all reachable state, by the first path that leads to it.

    Args:
        roots: Names and objects.
        leave_out: Objects that are not visited.
    """
    digests: dict[str, str] = {}
    seen = {id(each) for each in leave_out}
    kept: list[object] = []  # so that the ids of temporary objects are not reused
    queue = deque((name, each, 0) for name, each in roots)
    while queue and len(digests) < _MAX_PATHS:
        path, value, depth = queue.popleft()
        if value is None or isinstance(value, _PLAIN):
            digests[path] = repr(value)[:200]
            continue
        if id(value) in seen or isinstance(value, _LEFT_OUT) or _is_ours(value):
            continue
        seen.add(id(value))
        kept.append(value)
        own = _digest_of(value)
        if own is not None:
            digests[path] = own
        elif depth < _MAX_DEPTH:
            queue.extend(
                (path + name, each, depth + 1) for name, each in _inside(value)
            )
    return digests


def _digest_of(value: object) -> str | None:  # noqa: PLR0911 (one for each kind)
    """Return the digest of an object with values; None if it leads to other objects."""
    if isinstance(value, torch.Tensor):
        if value.device.type == "meta":
            return ""
        frozen = isinstance(value, torch.nn.Parameter) and not value.requires_grad
        return digest(value, whole=not frozen)
    if isinstance(value, np.ndarray) and value.dtype != object:
        return blake2b(np.ascontiguousarray(value).tobytes(), digest_size=8).hexdigest()
    if isinstance(value, set | frozenset):
        return repr(sorted(map(repr, value)))
    if isinstance(value, torch.Generator):
        return digest(value.get_state())
    if isinstance(value, np.random.Generator):
        return _in_words(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return _in_words(value.get_state(legacy=False))
    if isinstance(value, random.Random):
        return _in_words(value.getstate())
    return None


def _in_words(state: object) -> str:
    """Return the digest of a random state."""
    with np.printoptions(threshold=sys.maxsize):
        return blake2b(repr(state).encode(), digest_size=8).hexdigest()


def _inside(value: Any) -> Iterator[tuple[str, object]]:  # noqa: ANN401
    """Yield the objects that an object refers to directly, with their names."""
    if isinstance(value, dict):
        for number, (key, each) in enumerate([*value.items()]):
            plain = isinstance(key, str | int)
            yield f"[{key!r}]" if plain else f"[key {number}]", each
    elif isinstance(value, list | tuple | deque):
        yield from ((f"[{k}]", each) for k, each in enumerate([*value]))
    elif isinstance(value, types.MethodType):
        yield "", value.__self__
        yield "", value.__func__
    elif isinstance(value, functools.partial):
        yield ".func", value.func
        yield ".args", value.args
        yield ".keywords", value.keywords
    elif isinstance(value, types.FunctionType):
        yield from _of_function(value)
    elif isinstance(value, types.GeneratorType):
        local = value.gi_frame.f_locals if value.gi_frame else {}
        yield from ((f">{name}", each) for name, each in [*local.items()])
    elif isinstance(value, type):
        if _is_the_users(value.__module__):
            for name, each in [*vars(value).items()]:
                if not name.startswith("__"):
                    yield f".{name}", each
    else:
        yield from _of_object(value)


def _of_function(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    """Yield a function's closure, defaults and attributes, and the globals it uses."""
    if _is_the_users(function.__module__):
        names = {name for code in _codes(function.__code__) for name in code.co_names}
        for name in sorted(names & function.__globals__.keys()):
            yield f">{name}", function.__globals__[name]
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    for name, cell in cells:
        if cell != types.CellType():  # an empty one
            yield f">{name}", cell.cell_contents
    yield ".defaults", function.__defaults__
    yield ".defaults", function.__kwdefaults__
    yield "", vars(function)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _codes(inner)


def _of_object(value: object) -> Iterator[tuple[str, object]]:
    """Yield an object's attributes and slots, and its class."""
    own = getattr(value, "__dict__", None)
    if isinstance(own, dict):
        for name, each in [*own.items()]:
            if name not in _RAW:
                yield f".{name}", each
    if _is_the_users(type(value).__module__):
        for kind in type(value).__mro__:
            slots = vars(kind).get("__slots__") or ()
            for name in [slots] if isinstance(slots, str) else slots:
                yield f".{name}", getattr(value, name, None)
    yield ".class", type(value)


def _is_ours(value: object) -> bool:
    """Return whether an object or a function belongs to this package."""
    function = isinstance(value, types.FunctionType | types.MethodType)
    module = value.__module__ if function else type(value).__module__
    return bool(module) and module.partition(".")[0] == "dpaudit"


def _is_the_users(module: str) -> bool:
    """Return whether a module is the user's: not Python's, installed, or ours."""
    if module == "__main__":
        return True
    if module.partition(".")[0] == "dpaudit":
        return False
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return bool(file) and not file.startswith(_LIBRARIES)
