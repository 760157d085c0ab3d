"""Canaries as records: their gradients are what they should be, others' as before."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_privacy import clipped_grad

from dpaudit.training.jax_privacy import CanaryRows, canary_loss
from dpaudit.training.jax_privacy.records import canary_records
from dpaudit.training.layout import Layout

jax.config.update("jax_disable_most_optimizations", True)  # compiles sooner
pytestmark = pytest.mark.filterwarnings(
    "ignore:optax.global_norm is deprecated:DeprecationWarning"  # used by JAX Privacy
)

PARAMS = {  # of JAX they would start it at once
    "b": np.ones(3, jnp.bfloat16),
    "empty": np.zeros(0, np.float32),
    "w": np.ones((2, 3), np.float32),
}


def loss(params, inputs):
    return jnp.mean(jnp.square(inputs @ params["w"] - params["b"]))


def rows(data, canaries):
    """The data with canaries at flat coordinates 1 (in b) and 3 + 4 (in w)."""
    shapes = [leaf.shape for leaf in jax.tree.leaves(PARAMS)]
    layout = Layout.at(np.array([1, 7]), shapes)
    return canary_records(data, layout, np.array(canaries))


def summed(loss, *batch, **options):
    """The clipped sum of JAX Privacy."""
    over = tuple(range(1, 1 + len(batch)))
    return jax.jit(clipped_grad(loss, batch_argnums=over, **options))(PARAMS, *batch)


@pytest.mark.parametrize(
    ("microbatch", "keep"),
    [pytest.param(None, True, marks=pytest.mark.nightly), (2, False)],
)
def test_a_sum_is_that_of_the_records_plus_the_clipped_canaries(microbatch, keep):
    data = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    options = {
        "l2_clip_norm": 1.5,
        "keep_batch_dim": keep,
        "microbatch_size": microbatch,
    }
    plain = summed(loss, data, **options)
    longer, canaries = rows(data, [1.5, 100.0])
    both = summed(canary_loss(loss), longer, canaries, **options)
    change = jax.tree.map(lambda new, old: new - old, both, plain)
    np.testing.assert_allclose(change["b"].astype(float), [0, 1.5, 0], atol=0.05)
    np.testing.assert_allclose(change["w"], [[0, 0, 0], [0, 1.5, 0]], atol=1e-6)


def test_a_canary_of_weight_zero_adds_nothing():
    data = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    longer, canaries = rows(data, [0.0, 0.0])
    one = summed(canary_loss(loss), longer, canaries, l2_clip_norm=1.0)
    two = summed(loss, data, l2_clip_norm=1.0)
    for new, old in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(new.astype(float), old.astype(float), atol=1e-6)


def test_what_a_loss_says_beside_is_kept():
    def talkative(params, inputs):
        return loss(params, inputs), {"inputs": inputs}

    canary = CanaryRows(*map(jnp.asarray, (2, 5, 7.0)))
    grad_fn = jax.grad(canary_loss(talkative, has_aux=True), has_aux=True)
    grads, aux = grad_fn(PARAMS, jnp.ones((1, 2)), canary)
    assert grads["w"].tolist() == [[0, 0, 0], [0, 0, 7]]
    assert aux["inputs"].shape == (1, 2)


def test_data_of_any_tree_get_a_row_for_each_canary():
    data = {"x": np.arange(6.0).reshape(3, 2), "y": (jnp.arange(3),)}
    longer, canaries = rows(data, [5.0, 0.0])
    assert longer["x"].tolist() == [[0, 1], [2, 3], [4, 5], [0, 1], [0, 1]]
    assert isinstance(longer["x"], np.ndarray)
    assert longer["y"][0].tolist() == [0, 1, 2, 0, 0]
    assert canaries.leaf.tolist() == [-1, -1, -1, 0, 2]
    assert canaries.offset.tolist() == [0, 0, 0, 1, 4]
    assert canaries.weight.tolist() == [0, 0, 0, 5, 0]
