"""JAX Privacy's own BandMF plans: read, refused where nothing is known, audited."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_privacy import clipped_grad, noise_addition
from jax_privacy.batch_selection import CyclicPoissonSampling
from jax_privacy.experimental.accounting import dpsgd_event
from jax_privacy.experimental.execution_plan import BandMFExecutionPlanConfig
from jax_privacy.matrix_factorization import toeplitz

from dpaudit import ApproxDP, Design, OneRun, Verdict, explain
from dpaudit.dpsgd.participation import Participation
from dpaudit.dpsgd.strategy import Matrix, Toeplitz
from dpaudit.errors import InvalidInputError
from dpaudit.game.text.findings import fault_parts
from dpaudit.testing import fixed_key
from dpaudit.training.jax_privacy import JaxAudit, Records
from dpaudit.training.jax_privacy.setup import noise_of, strategy_of

pytestmark = pytest.mark.filterwarnings(
    "ignore:optax.global_norm is deprecated:DeprecationWarning",  # used by JAX Privacy
    "ignore:Explicitly requested dtype:UserWarning",  # likewise
)

jax.config.update("jax_disable_most_optimizations", True)  # compiles sooner

KEY = fixed_key(bytes(range(32)))
CANARIES, STEPS, BANDS = 4000, 24, 4
PARAMS = np.zeros(CANARIES, np.float32)  # of JAX it would start it at once
COEFFICIENTS = (1.0, 0.5, 0.375, 0.3125)


def loss(params, x):
    return jnp.vdot(params, x[0])


def plan(*, columns=False, sampling=1.0):
    return BandMFExecutionPlanConfig(
        strategy=np.array(COEFFICIENTS),
        iterations=STEPS,
        epsilon=2.0,
        delta=1e-5,
        l2_clip_norm=0.5,
        normalize_by=10.0,
        sampling_prob=sampling,
        column_normalize=columns,
        noise_seed=1,
    )


def design(canaries=CANARIES, guesses=160):
    claim = ApproxDP(epsilon=2.0, delta=1e-5)
    return Design(canaries=canaries, rules=OneRun(guesses=guesses), claim=claim)


def attached(config, **told):
    grad_fn = config.plan.clipped_grad(loss, batch_argnums=1)
    unchecked = ("sampling", "gradients", "clipping", "interference")
    told = {"design": design(), "key": KEY, "unchecked": unchecked, **told}
    return JaxAudit.of_plan(config, PARAMS, grad_fn, **told)


def louder(config, factor):
    """The plan's privatizer with noise divided by a factor."""
    sensitivity = config.plan.clipped_grad(loss, batch_argnums=1).sensitivity()
    return noise_addition.matrix_factorization_privatizer(
        toeplitz.inverse_as_streaming_matrix(
            config.strategy, STEPS if config.column_normalize else None
        ),
        stddev=float(noise_of(config) * sensitivity / factor),
        prng_key=2,
    )


def trained(audit, privatizer):
    wrapped = audit.wrap(privatizer)
    update, state = jax.jit(wrapped.update), wrapped.init(PARAMS)
    for _ in range(STEPS):
        _, state = update(jnp.zeros(CANARIES), state)
        state = audit.observe(state)
    return audit.finish()


@pytest.mark.parametrize("columns", [False, True])
def test_the_strategy_is_the_inverse_of_what_the_privatizer_multiplies_by(columns):
    config = plan(columns=columns)
    noising = toeplitz.inverse_as_streaming_matrix(
        config.strategy, STEPS if columns else None
    ).materialize(STEPS)
    strategy, told = strategy_of(config), np.linalg.inv(np.asarray(noising))
    for step in range(STEPS):
        column = strategy.column(step)
        assert column == pytest.approx(told[step : step + len(column), step], abs=1e-4)


def test_the_noise_is_that_of_the_accountant_times_the_column():
    config = plan()
    multiplier = config.plan.dp_event.event.event.noise_multiplier
    assert noise_of(config) == pytest.approx(multiplier * np.linalg.norm(COEFFICIENTS))


@cache
def honest_run(*, columns):
    config = plan(columns=columns)
    return trained(attached(config), config.plan.noise_addition_transform)


@pytest.mark.parametrize(
    "columns", [False, pytest.param(True, marks=pytest.mark.nightly)]
)
def test_an_honest_plan_is_not_refuted_and_its_noise_is_as_stated(columns):
    """With p < 0.001 in one run of a thousand at most, and the seed is fixed."""
    result = honest_run(columns=columns)
    assert result.verdict is Verdict.NO_VIOLATION_DETECTED
    assert result.p_value > 0.001
    said = " ".join(result.details().split())
    assert "4 cohorts in turn, each every 4 steps" in said
    assert "Toeplitz strategy of 24 steps, 4 bands" in said


@pytest.mark.nightly
@pytest.mark.parametrize("sampling", [1.0, 0.5])
def test_half_of_the_noise_is_refuted_and_named(sampling):
    config = plan(sampling=sampling)
    result = trained(attached(config), louder(config, 3.0))
    assert result.verdict is Verdict.CLAIM_REFUTED
    (fault,) = result.faults
    assert fault_parts(fault)[0].startswith("noise is 0.33")


@pytest.mark.nightly
def test_the_explanation_knows_what_turns_and_strategy_come_to():
    result = honest_run(columns=False)
    told = result.design.setting
    joins = np.isin(np.arange(STEPS), np.arange(0, STEPS, BANDS)).astype(float)
    matrix = sum(np.diag(np.full(STEPS - k, c), -k) for k, c in enumerate(COEFFICIENTS))
    signal = np.linalg.norm(matrix @ joins)
    assert told.equivalent_noise == pytest.approx(noise_of(plan()) / signal)
    steps = {step.name for step in explain(result).steps}
    assert {"outputs", "elements"} <= steps  # known only with a model of the training


def test_correlated_noise_without_a_strategy_is_refused():
    config = plan()
    grad_fn = clipped_grad(loss, l2_clip_norm=1.0, batch_argnums=1)
    audit = JaxAudit(
        PARAMS,
        grad_fn,
        CyclicPoissonSampling(0.5, STEPS),
        dpsgd_event(1.0, STEPS, sampling_prob=0.5),
        design=design(),
        key=KEY,
    )
    with pytest.raises(InvalidInputError, match="correlates its noise"):
        audit.wrap(config.plan.noise_addition_transform)
    dense = noise_addition.matrix_factorization_privatizer(
        np.tril(np.ones((STEPS, STEPS), np.float32)), stddev=1.0, prng_key=0
    )
    with pytest.raises(InvalidInputError, match="correlates its noise"):
        audit.wrap(dense)
    audit.wrap(noise_addition.gaussian_privatizer(stddev=1.0, prng_key=0))


def test_another_strategy_than_the_privatizer_has_is_refused():
    audit = attached(plan())
    other = toeplitz.inverse_as_streaming_matrix(np.array([1.0, 0.9, 0.1, 0.1]))
    with pytest.raises(InvalidInputError, match="does not multiply noise"):
        audit.wrap(noise_addition.matrix_factorization_privatizer(other, stddev=1.0))


def test_a_dense_matrix_is_audited_by_its_inverse():
    rows = np.tril(np.random.default_rng(0).uniform(0.1, 1, (STEPS, STEPS)))
    rows += np.eye(STEPS)
    grad_fn = clipped_grad(loss, l2_clip_norm=1.0, batch_argnums=1)
    audit = JaxAudit(
        PARAMS,
        grad_fn,
        CyclicPoissonSampling(1.0, STEPS, cycle_length=STEPS),
        design=design(),
        key=KEY,
        noise=2.0,
        strategy=Matrix(rows=rows),
        participation=Participation(every=STEPS),
    )
    privatizer = noise_addition.matrix_factorization_privatizer(
        np.float32(np.linalg.inv(rows)), stddev=2.0, prng_key=0
    )
    result = trained(audit, privatizer)
    assert not result.faults


def test_records_in_cycles_are_refused():
    grad_fn = clipped_grad(loss, l2_clip_norm=1.0, batch_argnums=1)
    for told in (
        {"batch_selection": CyclicPoissonSampling(1.0, 8, cycle_length=4)},
        {
            "batch_selection": CyclicPoissonSampling(1.0, 8),
            "strategy": Toeplitz(coefficients=(1.0, 0.5), steps=8),
        },
    ):
        with pytest.raises(InvalidInputError, match=r"use insertion=Sums\(\)"):
            JaxAudit(
                PARAMS,
                grad_fn,
                design=design(),
                key=KEY,
                insertion=Records(norm=1.0),
                **told,
            )


def test_turns_that_come_more_often_than_cycles_are_refused():
    with pytest.raises(InvalidInputError, match="more often than the cycles"):
        attached(plan(), participation=Participation(every=2))


def test_a_strategy_that_is_too_long_for_its_noise_is_named():
    """Noise for unit columns, columns of 1.5: found without any statistics."""
    coefficients = tuple(1.5 * c / np.linalg.norm(COEFFICIENTS) for c in COEFFICIENTS)
    joins, multiplier = STEPS // BANDS, 5.0
    audit = JaxAudit(
        PARAMS,
        clipped_grad(loss, l2_clip_norm=1.0, batch_argnums=1),
        CyclicPoissonSampling(1.0, STEPS, cycle_length=BANDS),
        dpsgd_event(multiplier, joins, sampling_prob=1.0),
        design=design(),
        key=KEY,
        noise=multiplier,
        strategy=Toeplitz(coefficients=coefficients, steps=STEPS),
    )
    privatizer = noise_addition.matrix_factorization_privatizer(
        toeplitz.inverse_as_streaming_matrix(np.array(coefficients)),
        stddev=multiplier,
        prng_key=0,
    )
    result = trained(audit, privatizer)
    (fault,) = result.faults
    what, *_ = fault_parts(fault)
    assert what == "noise is too small by the strategy's largest column norm, 1.5"
