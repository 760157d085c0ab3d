"""The canaries' coordinates in trees of JAX arrays.

Coordinates are numbered through the leaves in JAX's order, and through each leaf row by
row. Empty leaves, and leaves without floating-point numbers, have none.
"""

from dataclasses import dataclass
from typing import Any, Self, TypeAlias, final

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError
from dpaudit.game.coins import Key
from dpaudit.training.layout import ArrayCoordinates, Layout

__all__ = ["Tree", "TreeLayout", "holds_floats", "named_arrays"]

Tree: TypeAlias = Any  # a tree of JAX arrays of any structure


def holds_floats(tree: Tree) -> list[bool]:
    """Return which leaves hold floating-point numbers; only these hold canaries."""
    return [
        bool(jnp.issubdtype(leaf.dtype, jnp.floating)) for leaf in jax.tree.leaves(tree)
    ]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TreeLayout:
    """Adds and reads at a layout's coordinates in trees of one structure.

    Its methods are plain JAX, so they may be traced by ``jax.jit``.

    Attributes:
        structure: The structure of the trees.
        layout: The coordinates' positions in their leaves.
    """

    structure: jax.tree_util.PyTreeDef
    layout: Layout

    @classmethod
    def of(cls, tree: Tree, coordinates: int, *, key: Key) -> Self:
        """Return a layout with a number of coordinates, drawn from the key."""
        leaves, structure = jax.tree.flatten(tree)
        layout = Layout.uniform(
            (leaf.shape for leaf in leaves),
            coordinates,
            key=key,
            floats=holds_floats(tree),
        )
        return cls(structure=structure, layout=layout)

    def add(self, tree: Tree, values: jax.Array) -> Tree:
        """Return the tree with a value added at each coordinate."""
        leaves = self._leaves(tree)
        for part in self.layout.parts:
            old = leaves[part.array]
            vector = jnp.atleast_1d(old)
            new = vector.at[self._index(part)].add(values[part.which].astype(old.dtype))
            leaves[part.array] = new.reshape(old.shape)
        return jax.tree.unflatten(self.structure, leaves)

    def read(self, tree: Tree) -> jax.Array:
        """Return the tree's value at each coordinate."""
        leaves = self._leaves(tree)
        values = jnp.zeros(self.layout.coordinates, jnp.float32)
        for part in self.layout.parts:
            entries = jnp.atleast_1d(leaves[part.array])[self._index(part)]
            values = values.at[part.which].set(entries.astype(jnp.float32))
        return values

    def named(self, tree: Tree) -> dict[str, jax.Array]:
        """Return the leaves by name, such as ``layer.weights``."""
        self._leaves(tree)
        return named_arrays(tree)

    def _index(self, part: ArrayCoordinates) -> tuple[NDArray[np.int64], ...]:
        return np.unravel_index(part.offsets, self.layout.shapes[part.array] or (1,))

    def _leaves(self, tree: Tree) -> list[jax.Array]:
        leaves, structure = jax.tree.flatten(tree)
        shapes = tuple(tuple(leaf.shape) for leaf in leaves)
        if structure != self.structure or shapes != self.layout.shapes:
            raise InvalidInputError(
                "the gradients that the privatizer is given do not have the structure "
                f"of params: expected {self.structure} with shapes "
                f"{self.layout.shapes}, got {structure} with shapes {shapes}; pass as "
                "params a tree like the gradients that are made noisy"
            )
        return list(leaves)


def named_arrays(tree: Tree) -> dict[str, Any]:
    """Return the leaves of any tree by name; random keys as their bits."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): _bits(leaf)
        for path, leaf in jax.tree.leaves_with_path(tree)
    }


def _bits(leaf: Any) -> Any:  # noqa: ANN401 (a leaf may be a number)
    is_key = jnp.issubdtype(getattr(leaf, "dtype", bool), jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf
