"""Coordinates in trees of parameters: every one found, in leaves of every kind."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpaudit import Key
from dpaudit.errors import InvalidInputError
from dpaudit.training.jax_privacy.layout import TreeLayout, holds_floats
from dpaudit.training.layout import Layout

TREE = {  # of numpy: arrays of JAX would start it at once
    "a": np.arange(12, dtype=np.float32).reshape(3, 4),
    "b": [np.zeros((2, 0), np.float32), np.float32(100.0), None],
    "c": np.arange(5, dtype=np.int32),  # whole numbers are not trained
    "d": (np.arange(20, 28).astype(jnp.bfloat16).reshape(2, 2, 2),),
    "e": np.arange(30, 33, dtype=np.float16),
}
FLAT = [*range(12), 100, *range(20, 28), 30, 31, 32]  # written out by hand


def layout_at(numbers, tree=TREE):
    shapes = [leaf.shape for leaf in jax.tree.leaves(tree)]
    return TreeLayout(
        structure=jax.tree.structure(tree),
        layout=Layout.at(np.asarray(numbers), shapes, holds_floats(tree)),
    )


def test_only_numbers_that_are_trained_are_counted():
    shapes = [leaf.shape for leaf in jax.tree.leaves(TREE)]
    layout = Layout.uniform(shapes, 3, key=Key(bytes(32)), floats=holds_floats(TREE))
    assert layout.dimension == len(FLAT)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["plain", "compiled"])
def test_every_coordinate_is_read_where_it_is(wrap):
    order = np.random.default_rng(0).permutation(24)
    layout = layout_at(order)
    assert wrap(layout.read)(TREE).tolist() == [FLAT[i] for i in order]


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["plain", "compiled"])
def test_adding_changes_the_coordinates_named_and_nothing_else(wrap):
    layout = layout_at([0, 12, 16, 23])
    after = wrap(layout.add)(TREE, jnp.asarray([1.0, 2.0, 4.0, 8.0]))
    change = jax.tree.map(lambda new, old: new - old, after, TREE)
    expected = np.zeros(24)
    expected[[0, 12, 16, 23]] = 1, 2, 4, 8
    found = np.concatenate(
        [
            np.ravel(leaf.astype(float))
            for name in "abde"
            for leaf in jax.tree.leaves(change[name])
        ]
    )
    assert found.tolist() == expected.tolist()
    assert not change["c"].any()
    for new, old in zip(jax.tree.leaves(after), jax.tree.leaves(TREE), strict=True):
        assert (new.shape, new.dtype) == (old.shape, old.dtype)


def test_gradients_of_another_structure_are_refused():
    layout = layout_at([0, 1, 2])
    with pytest.raises(InvalidInputError, match="do not have the structure of params"):
        layout.read({**TREE, "a": jnp.zeros((4, 3))})
    with pytest.raises(InvalidInputError, match="do not have the structure of params"):
        layout.add([TREE], jnp.zeros(3))


def test_shapes_are_enough_to_lay_out():
    shapes = jax.eval_shape(lambda: TREE)
    layout = layout_at([12, 23], shapes)
    assert layout.read(TREE).tolist() == [100, 32]
