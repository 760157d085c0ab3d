"""Each hypothesis of the accountant's proof, broken in JAX Privacy, and its stage.

The same six as in ``tests/training/test_hypotheses.py``; the step is compiled.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax_privacy import batch_selection, clipped_grad, noise_addition
from jax_privacy.experimental.accounting import dpsgd_event

from dpaudit import ApproxDP, Design, OneRun, Verdict
from dpaudit.game.findings import Stage, Status
from dpaudit.testing import fixed_key
from dpaudit.training.jax_privacy import JaxAudit

pytestmark = pytest.mark.filterwarnings(
    "ignore:optax.global_norm is deprecated:DeprecationWarning"  # used by JAX Privacy
)

jax.config.update("jax_disable_most_optimizations", True)  # compiles sooner

WIDE, RECORDS, STEPS, RATE, NOISE, CLIP = 400, 300, 40, 0.1, 2.26, 0.5
RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(RECORDS, WIDE)).astype(np.float32)
LABELS = np.sign(RNG.normal(size=RECORDS)).astype(np.float32)
SAMPLING = batch_selection.CyclicPoissonSampling(RATE, STEPS)
PADDED = 64
TRACES = ("1.1.0.trace.bias", "1.1.0.trace.weights")


def losses(params, inputs, labels, scale=1.0):
    margins = labels * (inputs @ params["weights"] + params["bias"])
    return scale * jnp.mean(jax.nn.softplus(-margins))


class Program:
    """A JAX Privacy program, with one hypothesis broken."""

    def __init__(self, broken=""):
        self.broken = broken
        weights = jax.random.normal(jax.random.key(1), WIDE) / 10
        self.params = {"weights": weights, "bias": jnp.zeros(())}
        self.optimizer = optax.sgd(0.01, momentum=0.9)
        stated = clipped_grad(losses, l2_clip_norm=CLIP, batch_argnums=(1, 2))
        wrong = clipped_grad(losses, l2_clip_norm=3 * CLIP, batch_argnums=(1, 2))
        self.grad_fn = wrong if broken == "sensitivity" else stated
        told = STEPS // 2 if broken == "accounting" else STEPS
        claim = ApproxDP(epsilon=2.0, delta=1e-5)
        self.audit = JaxAudit(
            self.params,
            stated,
            SAMPLING,
            dpsgd_event(NOISE, told, sampling_prob=RATE),
            design=Design(canaries=WIDE, rules=OneRun(guesses=40), claim=claim),
            key=fixed_key(bytes(range(32))),
            noise=NOISE,
            records=RECORDS,
        )
        added = NOISE / 2 if broken == "noise" else NOISE
        privatizer = noise_addition.gaussian_privatizer(
            stddev=added * stated.sensitivity(), prng_key=7
        )
        self.privatizer = self.audit.wrap(privatizer)
        self.states = (
            self.privatizer.init(self.params),
            self.optimizer.init(self.params),
            jax.random.key(3),
        )
        self.step = jax.jit(self._step)

    def _step(self, params, states, batch, padding):
        inputs, labels = batch
        grads = self.grad_fn(params, *batch, is_padding_example=padding)
        noisy, noise_state = self.privatizer.update(grads, states[0])
        if self.broken == "size":
            noisy = jax.tree.map(lambda g: g / (~padding).sum(), noisy)
        if self.broken == "blend":
            noisy = {**noisy, "bias": noisy["bias"] + inputs.mean()}
        updates, state = self.optimizer.update(noisy, states[1])
        if self.broken == "interference":
            rate = 1 / (1 + losses(params, inputs, labels))
            updates = jax.tree.map(lambda u: u * rate, updates)
        key, _ = jax.random.split(states[2])
        return optax.apply_updates(params, updates), (noise_state, state, key)

    def probe_step(self):
        return self.audit.probe_step(
            lambda batch, keep: self.step(self.params, self.states, batch, ~keep),
            (INPUTS[:12], LABELS[:12]),
        )

    def probe(self):
        @jax.jit
        def clipped_sum(batch, keep, scale=1.0):
            inputs, labels = batch
            return self.grad_fn(
                self.params, inputs, labels, scale, is_padding_example=~keep
            )

        self.audit.probe(clipped_sum, (INPUTS[:12], LABELS[:12]))

    def train(self):
        rng, params, states = np.random.default_rng(2), self.params, self.states
        best, released = np.inf, params
        for rows in SAMPLING.batch_iterator(RECORDS, rng=3):
            if self.broken == "sampling":
                rows = rng.permutation(RECORDS)[: int(RATE * RECORDS)]  # noqa: PLW2901
            padded = batch_selection.pad_to_multiple_of(rows, PADDED)
            batch = INPUTS[padded], LABELS[padded]
            params, states = self.step(params, states, batch, padded == -1)
            states = self.audit.observe(states, batch=rows)
            self.audit.after_step(params)
            loss = float(losses(params, INPUTS, LABELS))
            if self.broken != "release" or loss < best:  # the best on training data
                best, released = loss, params
        return self.audit.finish(released=released)


def audited(broken=""):
    program = Program(broken)
    program.probe()
    program.probe_step()
    return program.train()


def test_a_program_that_breaks_none_passes_and_all_six_were_checked():
    result = audited()
    assert not result.faults
    assert result.verdict is Verdict.NO_VIOLATION_DETECTED
    missing = result.training.coverage.stages(Status.NOT_CHECKED)
    assert missing == (Stage.AGGREGATION,)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("broken", "stage"),
    [
        ("sampling", Stage.SAMPLING),
        ("sensitivity", Stage.CLIPPING),
        ("noise", Stage.NOISE_SCALE),
        ("interference", Stage.SIDE_PATHS),
        ("accounting", Stage.ACCOUNTING),
    ],
)
def test_each_that_is_broken_is_a_fault_of_its_stage(broken, stage):
    assert {fault.stage for fault in audited(broken).faults} == {stage}


@pytest.mark.nightly
def test_another_model_than_the_last_step_left_makes_it_inconclusive():
    result = audited("release")
    assert result.verdict is Verdict.INCONCLUSIVE
    assert not result.faults
    assert "released.not_as_left" in {each.code for each in result.sanity_checks}


# What comes after the noise, looked at more closely


@pytest.mark.parametrize(
    ("broken", "kind", "names"),
    [
        ("interference", "exchanged", ("0.bias", "0.weights")),
        ("blend", "exchanged", ("0.bias", "1.1.0.trace.bias")),
        ("size", "fewer", ("0.bias", "0.weights", *TRACES)),
    ],
)
def test_what_depends_on_records_past_the_noise_is_named(broken, kind, names):
    (fault,) = Program(broken).probe_step().faults
    assert (fault.numbers["kind"], fault.subject) == (kind, names)


def test_a_correct_step_leaves_the_same_whatever_its_records():
    program = Program()
    (found,) = program.probe_step().findings
    assert found.status is Status.INSPECTED
    # Parameters, Adam's state, the privatizer's and a key.
    assert found.numbers["compared"] == len(jax.tree.leaves(program.states)) + 2
    assert found.numbers["batches"] == 6


@pytest.mark.nightly
def test_a_probe_changes_nothing_of_the_run():
    plain, probed = Program(), Program()
    probed.probe_step()
    one, other = (each.train() for each in (plain, probed))
    assert one.transcript == other.transcript


@pytest.mark.nightly
def test_records_are_taken_out_where_the_step_takes_no_keep():
    program = Program("size")

    def step(batch):
        none = np.zeros(len(batch[0]), bool)
        return program.step(program.params, program.states, batch, none)

    (fault,) = program.audit.probe_step(step, (INPUTS[:12], LABELS[:12])).faults
    assert fault.numbers["kind"] == "fewer"


def test_a_step_that_does_not_call_the_wrapped_privatizer_is_not_judged():
    """Its noisy sums are not made equal, so what it leaves differs rightly."""
    program = Program()
    program.privatizer = noise_addition.gaussian_privatizer(stddev=1.0, prng_key=7)
    state = program.privatizer.init(program.params), *program.states[1:]
    (found,) = program.audit.probe_step(
        lambda batch, keep: program.step(program.params, state, batch, ~keep),
        (INPUTS[:12], LABELS[:12]),
    ).findings
    assert found.code == "interference.update_not_reached"
    assert found.status is Status.NOT_CHECKED


def test_a_step_that_was_compiled_before_is_refused():
    """By JAX itself: it could not be given another sum."""
    program = Program()
    some, none = (INPUTS[:6], LABELS[:6]), np.zeros(6, bool)
    compiled = program.step.lower(program.params, program.states, some, none).compile()
    with pytest.raises(ValueError, match="not supported in the AOT path"):
        program.audit.probe_step(
            lambda batch, keep: compiled(program.params, program.states, batch, ~keep),
            (INPUTS[:12], LABELS[:12]),
        )


def test_a_step_that_is_skipped_for_its_records_is_a_fault():
    program = Program()

    @jax.jit
    def step(params, states, batch, padding):
        def made():
            return program.step(params, states, batch, padding)

        large = losses(params, *batch) > 0.7
        return jax.lax.cond(large, made, lambda: (params, states))

    found = program.audit.probe_step(
        lambda batch, keep: step(program.params, program.states, batch, ~keep),
        (INPUTS[:12], LABELS[:12]),
    )
    assert "0.weights" in {name for each in found.faults for name in each.subject}
