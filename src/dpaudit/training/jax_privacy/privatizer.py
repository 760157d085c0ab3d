"""A privatizer that adds canaries before the noise and reads them after it.

JAX Privacy's privatizers are Optax transformations: a function from the clipped sum and
a state to the noisy sum and the next state. The audited one is another such function,
and a pure one: the values to add come in with the state, and the observed sums go out
with it. So it may be compiled, alone or within a whole training step, without callbacks
from compiled code to Python. Between two steps the audit reads the observations from
the state and writes the next step's contributions.

The state is as secret as that of the plain privatizer, which holds the key of all
future noise: this one also holds the contributions of the next step.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from dpaudit.errors import InvalidRunError
from dpaudit.training.jax_privacy.layout import Tree, TreeLayout

__all__ = [
    "AuditedState",
    "ForcedSum",
    "audited_privatizer",
    "cleared",
    "exchange",
    "find",
]


class AuditedState(NamedTuple):
    """The state of an audited privatizer, a tuple like Optax's own states.

    Attributes:
        inner: The state of the privatizer itself.
        joining: The values to add at each coordinate in the next step.
        seen: The last noisy sum at each coordinate.
        real: The real records' part of it, if that is known; 0 if not.
        step: Number of steps taken.
    """

    inner: Tree
    joining: jax.Array
    seen: jax.Array
    real: jax.Array
    step: jax.Array


def audited_privatizer(
    privatizer: optax.GradientTransformation,
    layout: TreeLayout,
    forced: "ForcedSum",
    first: Callable[[], tuple[NDArray[np.float64], int]],
    *,
    knows_real_sums: bool,
) -> optax.GradientTransformation:
    """Return a privatizer that adds the values in its state, and reads noisy sums.

    Args:
        privatizer: The one that adds noise.
        layout: The coordinates to add to and to read.
        forced: Replaces sums while a step is probed.
        first: Returns the values to add in the next step, and the number of steps taken
            before.
        knows_real_sums: Whether to read the sum before canaries too.
    """

    def init(params: Tree) -> AuditedState:
        joining, step = first()
        return AuditedState(
            inner=privatizer.init(params),
            joining=jnp.asarray(joining, jnp.float32),
            seen=jnp.zeros(len(joining), jnp.float32),
            real=jnp.zeros(len(joining), jnp.float32),
            step=jnp.asarray(step, jnp.int32),
        )

    def update(
        sum_of_clipped_grads: Tree, noise_state: AuditedState, params: Tree = None
    ) -> tuple[Tree, AuditedState]:
        sum_of_clipped_grads = forced.instead_of(sum_of_clipped_grads)
        total = layout.add(sum_of_clipped_grads, noise_state.joining)
        noisy, inner = privatizer.update(total, noise_state.inner, params)
        real = (
            layout.read(sum_of_clipped_grads) if knows_real_sums else noise_state.real
        )
        state = AuditedState(
            inner=inner,
            joining=jnp.zeros_like(noise_state.joining),
            seen=layout.read(noisy),
            real=real,
            step=noise_state.step + 1,
        )
        return noisy, state

    return optax.GradientTransformation(init, update)


@final
class ForcedSum:
    """Makes the sums of a step equal, whatever its records, while it is probed.

    The noise is determined by the state, so noisy sums are then equal too. Code runs
    uncompiled meanwhile, because compiled code would not use the replaced sum.

    Args:
        scale: Standard deviation of the sums.

    Attributes:
        taken: Number of sums replaced so far.
    """

    def __init__(self, scale: float) -> None:
        self._scale = scale
        self._rng: np.random.Generator | None = None
        self.taken = 0

    @contextmanager
    def begin(self, seed: int) -> Iterator[None]:
        """Replace sums by random ones drawn from a seed."""
        self._rng = np.random.default_rng(seed)
        try:
            with jax.disable_jit():
                yield
        finally:
            self._rng = None

    def instead_of(self, sums: Tree) -> Tree:
        """Return the replacement of sums, or the sums themselves if there is none."""
        rng = self._rng
        if rng is None:
            return sums
        self.taken += 1
        return jax.tree.map(
            lambda leaf: (
                jnp.asarray(rng.normal(0, self._scale, leaf.shape), leaf.dtype)
                if jnp.issubdtype(leaf.dtype, jnp.floating)
                else jnp.zeros_like(leaf)
            ),
            sums,
        )


def exchange(state: Tree, joining: NDArray[np.float64]) -> Tree:
    """Return the state, or a tree that holds it, with the next step's contributions."""

    def renewed(part: Tree) -> Tree:
        if not isinstance(part, AuditedState):
            return part
        # Adding to the zeros that the step left keeps their devices; an array of
        # another kind would cause the user's step to be recompiled.
        fresh = jnp.asarray(joining, jnp.float32)
        return part._replace(joining=part.joining + fresh)

    return jax.tree.map(renewed, state, is_leaf=_is_ours)


def cleared(state: Tree) -> Tree:
    """Return the state, or a tree that holds it, without any contributions."""

    def emptied(part: Tree) -> Tree:
        if not isinstance(part, AuditedState):
            return part
        return part._replace(joining=jnp.zeros_like(part.joining))

    return jax.tree.map(emptied, state, is_leaf=_is_ours)


def find(state: Tree) -> tuple[int, NDArray[np.float64], NDArray[np.float64]]:
    """Return the number of steps taken, and the last step's noisy and real sums."""
    states = [
        part for part in jax.tree.leaves(state, is_leaf=_is_ours) if _is_ours(part)
    ]
    if len(states) != 1:
        raise InvalidRunError(
            "expected the state of one audited privatizer, or a tree that holds it, "
            f"and found {len(states)}; make the state with the privatizer that "
            "audit.wrap returned"
        )
    seen, real = (np.asarray(part, np.float64) for part in states[0][2:4])
    return int(states[0].step), seen, real


def _is_ours(part: object) -> bool:
    return isinstance(part, AuditedState)
