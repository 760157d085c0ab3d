"""Trees of arrays of any library: their leaves by name, and rows of them."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from dpaudit.errors import InvalidInputError
from dpaudit.training.probe.engine import Rows

__all__ = ["Tree", "counted", "mapped", "named_leaves", "parameters", "rows_of"]

Tree: TypeAlias = Any  # an array, or dicts, lists and tuples of arrays


def named_leaves(
    tree: Tree, name: str = "", *, alone: str = "the sum"
) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested dicts, lists and tuples with their names.

    Args:
        tree: The tree.
        name: Prefix of the names.
        alone: Name of the leaf if the tree is a single one.

    Example:
        >>> dict(named_leaves({"in": [1, 2], "out": 3}))
        {'in.0': 1, 'in.1': 2, 'out': 3}
    """
    if isinstance(tree, Mapping):
        parts = [*tree.items()]
    elif isinstance(tree, tuple) and hasattr(tree, "_fields"):
        parts = [*zip(tree._fields, tree, strict=True)]
    elif isinstance(tree, list | tuple):
        parts = [*enumerate(tree)]
    else:
        if tree is not None:
            yield name or alone, tree
        return
    for key, part in parts:
        yield from named_leaves(part, f"{name}.{key}" if name else str(key))


def rows_of(tree: Tree, index: Rows) -> Tree:
    """Return some rows of each array."""
    return mapped(tree, lambda leaf: leaf[index])


def mapped(tree: Tree, change: Callable[[Any], Any]) -> Tree:
    """Return a tree with each leaf changed, in the order of ``named_leaves``."""
    if tree is None:
        return None
    if isinstance(tree, Mapping):
        return {key: mapped(part, change) for key, part in tree.items()}
    if isinstance(tree, list | tuple):
        parts = [mapped(part, change) for part in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    return change(tree)


def counted(batch: Tree) -> int:
    """Return the number of records in a batch."""
    shapes = {name: getattr(leaf, "shape", ()) for name, leaf in named_leaves(batch)}
    sizes = {int(shape[0]) if shape else -1 for shape in shapes.values()}
    if len(sizes) != 1 or -1 in sizes:
        raise InvalidInputError(
            "batch must be an array, or a dict, list or tuple of arrays, each with one "
            f"row for each record, got shapes {[*shapes.values()]}; what is not a "
            "record's belongs into the function itself"
        )
    (count,) = sizes
    if count < 3:
        raise InvalidInputError(
            f"a probe needs 3 records or more in its batch, got {count}"
        )
    return count


def parameters(function: Callable[..., Tree]) -> Mapping[str, inspect.Parameter]:
    """Return a function's parameters; none if they cannot be determined."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
