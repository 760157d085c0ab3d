"""Where in a tree of parameters the canaries' coordinates lie.

Coordinates are numbered through the leaves in JAX's order, and through each leaf row by
row. Leaves that hold nothing, or no floating-point numbers, have none.
"""

from dataclasses import dataclass
from math import prod
from typing import Any, Self, TypeAlias, final

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError

__all__ = ["Layout", "Tree", "float_sizes"]

Tree: TypeAlias = Any  # a tree of JAX arrays of any structure


def float_sizes(tree: Tree) -> list[int]:
    """Return how many coordinates each leaf has; canaries live in no other numbers."""
    return [
        prod(leaf.shape) if jnp.issubdtype(leaf.dtype, jnp.floating) else 0
        for leaf in jax.tree.leaves(tree)
    ]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """The coordinates that lie in one leaf: which of them, and where in the leaf."""

    leaf: int
    coordinates: NDArray[np.int64]
    index: tuple[NDArray[np.int64], ...]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Finds a list of coordinates in trees of one structure.

    Its verbs are plain JAX, so they may be traced by ``jax.jit``.

    Attributes:
        structure: The structure of the trees.
        shapes: The shape of each leaf.
        places: What lies in which leaf.
        leaf: For each coordinate its leaf.
        offset: For each coordinate its place in the flattened leaf.
    """

    structure: jax.tree_util.PyTreeDef
    shapes: tuple[tuple[int, ...], ...]
    places: tuple[_Place, ...]
    leaf: NDArray[np.int64]
    offset: NDArray[np.int64]

    @classmethod
    def of(cls, tree: Tree, coordinates: NDArray[np.int64]) -> Self:
        """Return the layout of coordinates, numbered through the whole tree."""
        leaves, structure = jax.tree.flatten(tree)
        shapes = tuple(tuple(leaf.shape) for leaf in leaves)
        ends = np.cumsum(float_sizes(tree))
        owner = np.searchsorted(ends, coordinates, side="right")
        offset = coordinates - np.concatenate([[0], ends])[owner]
        places = tuple(
            _Place(
                leaf=int(i),
                coordinates=np.flatnonzero(owner == i),
                index=np.unravel_index(offset[owner == i], shapes[i] or (1,)),
            )
            for i in np.unique(owner)
        )
        return cls(
            structure=structure, shapes=shapes, places=places, leaf=owner, offset=offset
        )

    def add(self, tree: Tree, values: jax.Array) -> Tree:
        """Return the tree with a value added at each coordinate."""
        leaves = self._leaves(tree)
        for place in self.places:
            old = leaves[place.leaf]
            vector = jnp.atleast_1d(old)
            new = vector.at[place.index].add(
                values[place.coordinates].astype(old.dtype)
            )
            leaves[place.leaf] = new.reshape(old.shape)
        return jax.tree.unflatten(self.structure, leaves)

    def read(self, tree: Tree) -> jax.Array:
        """Return the tree's value at each coordinate."""
        leaves = self._leaves(tree)
        values = jnp.zeros(len(self.leaf), jnp.float32)
        for place in self.places:
            found = jnp.atleast_1d(leaves[place.leaf])[place.index]
            values = values.at[place.coordinates].set(found.astype(jnp.float32))
        return values

    def named(self, tree: Tree) -> dict[str, jax.Array]:
        """Return the leaves by name, such as ``layer.weights``."""
        self._leaves(tree)
        return {
            jax.tree_util.keystr(path, simple=True, separator="."): leaf
            for path, leaf in jax.tree.leaves_with_path(tree)
        }

    def _leaves(self, tree: Tree) -> list[jax.Array]:
        leaves, structure = jax.tree.flatten(tree)
        shapes = tuple(tuple(leaf.shape) for leaf in leaves)
        if structure != self.structure or shapes != self.shapes:
            raise InvalidInputError(
                "the gradients that the privatizer is given do not have the structure "
                f"of params: expected {self.structure} with shapes {self.shapes}, got "
                f"{structure} with shapes {shapes}; pass as params a tree like the "
                "gradients that are made noisy"
            )
        return list(leaves)
