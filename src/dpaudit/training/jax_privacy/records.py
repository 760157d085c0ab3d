"""Canaries as records, whose gradients JAX Privacy itself computes, clips and sums.

A canary's loss is linear: a weight times one parameter. Its gradient is therefore the
weight in that parameter's coordinate and zero elsewhere, whatever the model, and passes
through the same stages as other gradients: sampling, microbatches, clipping, summation,
noise. The weight is that of the insertion if the canary's coin is 1, and zero if it is
0; the record is present either way, so that the number of records does not depend on
the coins.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from dpaudit.training.jax_privacy.layout import Tree, holds_floats
from dpaudit.training.layout import Layout

__all__ = ["CanaryRows", "canary_loss", "canary_records"]


class CanaryRows(NamedTuple):
    """The canary of each record, one row each. A tree, so that it can be batched.

    Attributes:
        leaf: The leaf of the parameters with its gradient; -1 if it is not a canary.
        offset: The index in the flattened leaf.
        weight: Its gradient there, before clipping.
    """

    leaf: jax.Array
    offset: jax.Array
    weight: jax.Array


def canary_loss(
    loss: Callable[..., Tree], *, has_aux: bool = False
) -> Callable[..., Tree]:
    """Return the loss with ``CanaryRows`` as an additional, last batch argument.

    Ordinary records keep their loss, canaries have a linear one.

    Args:
        loss: Takes the parameters, then anything.
        has_aux: Whether it returns a pair whose first element is the loss.

    Example:
        >>> def loss(weights, pixels):
        ...     return jnp.sum(jnp.square(pixels - weights))
        >>> weights, pixels = jnp.zeros(3), jnp.ones(3)
        >>> canary = CanaryRows(*map(jnp.asarray, (0, 2, 5.0)))
        >>> jax.grad(canary_loss(loss))(weights, pixels, canary).tolist()
        [0.0, 0.0, 5.0]
        >>> ordinary = canary._replace(leaf=jnp.asarray(-1))
        >>> jax.grad(canary_loss(loss))(weights, pixels, ordinary).tolist()
        [-2.0, -2.0, -2.0]
    """

    def with_canaries(params: Tree, *arguments: Tree, **options: Tree) -> Tree:
        *batch, canary = arguments
        # JAX Privacy may leave an axis of length one.
        leaf, offset, weight = (part.reshape(()) for part in canary)
        value, aux = _pair(loss(params, *batch, **options), has_aux=has_aux)
        linear = weight * _parameter(params, leaf, offset)
        value = jnp.where(leaf >= 0, linear.astype(value.dtype), value)
        return (value, aux) if has_aux else value

    return with_canaries


def _pair(returned: Tree, *, has_aux: bool) -> tuple[jax.Array, Tree]:
    value, aux = returned if has_aux else (returned, None)
    return jnp.asarray(value), aux


def _parameter(params: Tree, leaf: jax.Array, offset: jax.Array) -> jax.Array:
    """Return the value of a canary's parameter."""
    value = jnp.zeros((), jnp.float32)
    floats = holds_floats(params)
    for i, values in enumerate(jax.tree.leaves(params)):
        if floats[i] and values.size:
            here = values.reshape(-1)[jnp.clip(offset, 0, values.size - 1)]
            value = value + jnp.where(leaf == i, here.astype(jnp.float32), 0.0)
    return value


def canary_records(
    data: Tree, layout: Layout, weights: NDArray[np.floating]
) -> tuple[Tree, CanaryRows]:
    """Return the data with the canaries' rows appended, and the ``CanaryRows``.

    Each canary's row repeats the first record, so that the model can be run on it; that
    record's own gradient is multiplied by zero there.
    """
    rows = len(jax.tree.leaves(data)[0])
    count = len(weights)
    ordinary = np.zeros(rows)
    s = count // layout.coordinates
    canary = CanaryRows(
        leaf=jnp.asarray(np.concatenate([ordinary - 1, layout.array.repeat(s)]), int),
        offset=jnp.asarray(np.concatenate([ordinary, layout.offset.repeat(s)]), int),
        weight=jnp.asarray(np.concatenate([ordinary, weights]), jnp.float32),
    )
    longer = jax.tree.map(lambda part: _extended(part, count), data)
    return longer, canary


def _extended(part: Tree, count: int) -> Tree:
    numbers = jnp if isinstance(part, jax.Array) else np
    return numbers.concatenate([part, numbers.repeat(part[:1], count, axis=0)])
