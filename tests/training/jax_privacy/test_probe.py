"""The probe of a JAX Privacy sum: what the privatizer is given, before it is."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax_privacy import clipped_grad, noise_addition
from jax_privacy.batch_selection import CyclicPoissonSampling

from dpaudit import ApproxDP, Design, OneRun, Verdict
from dpaudit.errors import InvalidInputError
from dpaudit.game.findings import Stage, Status
from dpaudit.game.text.findings import fault_parts
from dpaudit.testing import fixed_key
from dpaudit.training.jax_privacy import JaxAudit

pytestmark = pytest.mark.filterwarnings(
    "ignore:optax.global_norm is deprecated:DeprecationWarning"  # used by JAX Privacy
)

jax.config.update("jax_disable_most_optimizations", True)  # compiles sooner

N, C = 12, 0.1
RNG = np.random.default_rng(0)
BATCH = RNG.normal(size=(N, 6)).astype(np.float32), RNG.integers(3, size=N)


def network(dtype=jnp.float32):
    one, two = jax.random.split(jax.random.key(1))
    return {
        "in": {"weights": jax.random.normal(one, (6, 8)).astype(dtype) / 3},
        "out": jax.random.normal(two, (8, 3)).astype(dtype) / 3,
    }


def loss(params, inputs, labels, scale=1.0):
    scores = jnp.tanh(inputs @ params["in"]["weights"]) @ params["out"]
    losses = optax.softmax_cross_entropy_with_integer_labels(scores, labels)
    return (scale * losses.mean()).astype(scores.dtype)


def with_dropout(params, inputs, labels, scale, key):
    kept = jax.random.bernoulli(key, 0.7, inputs.shape)
    return loss(params, inputs * kept, labels, scale)


def audit(grad_fn, dtype=jnp.float32):
    claim = ApproxDP(epsilon=2.0, delta=1e-5)
    return JaxAudit(
        network(dtype),
        grad_fn,
        CyclicPoissonSampling(0.5, 5),
        design=Design(canaries=40, rules=OneRun(guesses=10), claim=claim),
        key=fixed_key(bytes(range(32))),
    )


def probed(
    before=lambda inputs: inputs,
    after=lambda grads, _: grads,
    /,
    batch=BATCH,
    **options,
):
    """Probe a program, and return its audit and what was found."""
    dtype = options.pop("network", jnp.float32)
    told = {"l2_clip_norm": C, "batch_argnums": (1, 2)}
    running = audit(clipped_grad(loss, **{**told, **options, "nan_safe": True}), dtype)
    grad_fn = clipped_grad(loss, **{**told, **options})
    params = network(dtype)

    @jax.jit
    def clipped_sum(batch, keep, scale=1.0):
        inputs, labels = batch
        inputs = before(inputs.astype(dtype))
        grads = grad_fn(params, inputs, labels, scale, is_padding_example=~keep)
        return after(grads, keep)

    return running, running.probe(clipped_sum, batch)


HONEST = {
    "plain": {},
    "microbatches": {"microbatch_size": 4},
    "normalize_by": {"normalize_by": 32.0},
    "unit norm": {"rescale_to_unit_norm": True},
    "float16": {"network": jnp.float16},
    "bfloat16": {"network": jnp.bfloat16},
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=[pytest.mark.nightly] * (name in ("float16", "bfloat16"))
        )
        for name in HONEST
    ],
)
def test_an_honest_program_has_no_fault(name):
    _, found = probed(**HONEST[name])
    assert not found.unseen
    assert found.faults == ()
    assert found.change == pytest.approx(1, abs=0.02 if "float16" in name else 1e-5)
    assert found.clipped == 1
    assert found.layers.keys() == {"in.weights", "out"}


@pytest.mark.nightly
def test_dropout_that_goes_by_row_is_seen_with_padding():
    grad_fn = clipped_grad(
        with_dropout, l2_clip_norm=C, batch_argnums=(1, 2), prng_argnum=4
    )
    params, key = network(), jax.random.key(2)

    @jax.jit
    def padded(batch, keep):
        return grad_fn(params, *batch, 1.0, key, is_padding_example=~keep)

    @jax.jit
    def unpadded(batch):
        return grad_fn(params, *batch, 1.0, key)

    running = audit(grad_fn)
    found = running.probe(padded, BATCH)
    assert not found.faults
    assert found.change == pytest.approx(1, abs=1e-5)
    assert "let clipped_sum take keep" in str(running.probe(unpadded, BATCH))


def test_records_may_be_any_tree():
    grad_fn = clipped_grad(
        lambda params, batch: loss(params, *batch.get_arrays()), l2_clip_norm=C
    )

    @jax.tree_util.register_pytree_node_class
    class Own:
        def __init__(self, *arrays):
            self.arrays = arrays

        def get_arrays(self):
            return self.arrays

        def tree_flatten(self):
            return self.arrays, None

        @classmethod
        def tree_unflatten(cls, _, arrays):
            return cls(*arrays)

    params = network()
    function = jax.jit(lambda batch: grad_fn(params, batch))
    found = audit(grad_fn).probe(function, Own(*BATCH))
    assert found.change == pytest.approx(1, abs=1e-5)
    assert not found.faults


def standardised(inputs):
    return (inputs - inputs.mean(0)) / (inputs.std(0) + 1e-5)


def halved_norms(grads, _):
    return jax.tree.map(lambda grad: 2 * grad, grads)


def by_count(grads, keep):
    return jax.tree.map(lambda grad: grad * N / keep.sum(), grads)


MISSING = (np.where(np.arange(N)[:, None] == 4, np.float32(np.nan), BATCH[0]), BATCH[1])
FAULTY = {
    "twice": ((lambda x: x, halved_norms), {}, Stage.CLIPPING, "clipping to 2 C"),
    "statistics": ((standardised,), {}, Stage.GRADIENTS, "its statistics"),
    "by count": (
        (lambda x: x, by_count),
        {},
        Stage.AGGREGATION,
        "divided by the number of records",
    ),
    "no number": (
        (),
        {"nan_safe": False, "batch": MISSING},
        Stage.CLIPPING,
        "must be set to zero",
    ),
}


@pytest.mark.parametrize("name", FAULTY)
def test_a_fault_is_found_on_its_road_with_its_cause(name):
    changes, options, stage, cause = FAULTY[name]
    _, found = probed(*changes, **options)
    assert [fault.stage for fault in found.faults] == [stage]
    assert cause in fault_parts(found.faults[0])[3]


def test_records_that_are_no_numbers_are_set_to_zero_by_jax_privacy():
    _, found = probed(batch=MISSING)
    assert found.faults == ()
    assert found.change == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    ("wrong", "cause"),
    [
        ("none", "no clipping of records"),
        pytest.param("a leaf", "computed without 'out'", marks=pytest.mark.nightly),
    ],
)
def test_clipping_by_hand_is_told_from_that_of_jax_privacy(wrong, cause):
    params = network()
    each = jax.vmap(jax.grad(loss), (None, 0, 0, None))

    @jax.jit
    def clipped_sum(batch, scale=1.0):
        inputs, labels = batch
        grads = each(params, inputs[:, None], labels[:, None], scale)
        norms = jax.vmap(jnp.linalg.norm)(grads["in"]["weights"])
        factors = jnp.minimum(1, C / norms) if wrong != "none" else jnp.ones(len(norms))
        return jax.tree.map(lambda grad: jnp.tensordot(factors, grad, 1), grads)

    running = audit(clipped_grad(loss, l2_clip_norm=C, batch_argnums=(1, 2)))
    found = running.probe(clipped_sum, BATCH)
    assert [fault.stage for fault in found.faults] == [Stage.CLIPPING]
    assert cause in fault_parts(found.faults[0])[3]


def trained(running):
    params = network()
    privatizer = running.wrap(noise_addition.gaussian_privatizer(stddev=C, prng_key=1))
    state = privatizer.init(params)
    for _ in range(5):
        _, state = privatizer.update(jax.tree.map(jnp.zeros_like, params), state)
        state = running.observe(state)
    return running.finish()


@pytest.mark.nightly
def test_the_result_has_what_a_probe_saw_over_a_checkpoint(tmp_path):
    running, found = probed(standardised)
    running.save(tmp_path / "state.npz")
    again = audit(clipped_grad(loss, l2_clip_norm=C, batch_argnums=(1, 2)))
    again.resume(tmp_path / "state.npz")
    result, plain = trained(again), trained(probed()[0])
    assert result.verdict is Verdict.FAULT_FOUND
    assert result.training.coverage.faults == found.faults
    assert plain.verdict is not Verdict.FAULT_FOUND
    ways = {check.stage: check.status for check in plain.training.coverage.checks}
    assert ways[Stage.CLIPPING] is ways[Stage.GRADIENTS] is Status.INSPECTED
    assert ways[Stage.AGGREGATION] is Status.NOT_CHECKED


@pytest.mark.nightly
def test_more_than_the_sum_is_refused():
    grad_fn = clipped_grad(
        loss, l2_clip_norm=C, batch_argnums=(1, 2), return_values=True
    )
    with pytest.raises(InvalidInputError, match="do not have the structure of params"):
        audit(grad_fn).probe(lambda batch: grad_fn(network(), *batch), BATCH)
