"""The JAX Privacy audit: canaries of the right size, nothing else disturbed."""

import dataclasses
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax_privacy import clipped_grad, noise_addition
from jax_privacy.batch_selection import CyclicPoissonSampling, pad_to_multiple_of
from jax_privacy.experimental.accounting import dpsgd_event
from jax_privacy.experimental.execution_plan import BandMFExecutionPlanConfig

from dpaudit import ApproxDP, Coins, Design, Key, OneRun
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.findings import Stage, Status
from dpaudit.game.setting import CanaryInsertion, InsertionPoint, Setting
from dpaudit.game.text.findings import sentence
from dpaudit.game.text.results import not_exercised
from dpaudit.game.verdict import Verdict
from dpaudit.testing import fixed_key
from dpaudit.training.jax_privacy import JaxAudit, Records, Sums, canary_loss
from dpaudit.training.layout import scattered
from dpaudit.training.participation_draws import ParticipationDraws

pytestmark = pytest.mark.filterwarnings(
    "ignore:optax.global_norm is deprecated:DeprecationWarning"  # used by JAX Privacy
)

jax.config.update("jax_disable_most_optimizations", True)  # compiles sooner

KEY = fixed_key(bytes(range(32)))
CANARIES, STEPS, RATE, NOISE = 400, 60, 0.1, 1.5
EVENT = dpsgd_event(NOISE, STEPS, sampling_prob=RATE)
SAMPLING = CyclicPoissonSampling(RATE, STEPS)


def loss(params, pixels, labels):
    scores = jnp.tanh(pixels @ params["in"]) @ params["out"] + params["bias"]
    return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()


def network(dtype=jnp.float32):
    one, two = jax.random.split(jax.random.key(1))
    return {
        "in": jax.random.normal(one, (20, 60)) / 5,
        "out": jax.random.normal(two, (60, 4)) / 8,
        "bias": jnp.zeros(4, dtype),
        "unused": jnp.zeros((0, 3)),
    }


def design(canaries=CANARIES, guesses=80, **setting):
    claim = ApproxDP(epsilon=2.0, delta=1e-5)
    rules = OneRun(guesses=guesses)
    return Design(
        canaries=canaries, rules=rules, claim=claim, setting=Setting(**setting)
    )


def private(*, clip=1.0, normalize_by=1.0, divide_noise_by=1.0, records=False):
    """What a JAX Privacy program makes before it trains."""
    grad_fn = clipped_grad(
        canary_loss(loss) if records else loss,
        l2_clip_norm=clip,
        normalize_by=normalize_by,
        batch_argnums=(1, 2, 3) if records else (1, 2),
    )
    privatizer = noise_addition.gaussian_privatizer(
        stddev=NOISE * grad_fn.sensitivity() / divide_noise_by, prng_key=7
    )
    return grad_fn, privatizer


def train(audit, grad_fn, privatizer, *, params, records=False, steps=STEPS):
    """Train; return the rows of each batch and each noisy sum, flattened by hand."""
    rng = np.random.default_rng(2)
    data = rng.normal(size=(100, 20)).astype(np.float32), rng.integers(4, size=100)
    if records:
        longer, canaries = audit.records(data)
        data = (*longer, canaries)
    privatizer = audit.wrap(privatizer)

    @jax.jit
    def step(params, noise_state, batch, padding):
        grads = grad_fn(params, *batch, is_padding_example=padding)
        noisy, noise_state = privatizer.update(grads, noise_state)
        moved = jax.tree.map(lambda p, g: p - 0.01 * g, params, noisy)
        return moved, noise_state, noisy

    noise_state = privatizer.init(params)
    batches, sums = [], []
    for rows in list(SAMPLING.batch_iterator(len(data[0]), rng=3))[:steps]:
        some = np.full(96, -1)
        some[: len(rows)] = rows
        batch = jax.tree.map(lambda part: part[some], data)  # noqa: B023
        params, noise_state, noisy = step(params, noise_state, batch, some == -1)
        noise_state = audit.observe(noise_state)
        batches.append(rows)
        parts = [np.ravel(noisy[name]) for name in ("bias", "in", "out", "unused")]
        sums.append(np.concatenate(parts).astype(np.float64))
    return batches, np.array(sums)


def check_slope(joined, seen, *, norm):
    """Fixed seeds; four standard errors, passed by all but 1 in 16,000 of them."""
    inside, value = joined.ravel(), seen.ravel()
    slope, rest = np.polyfit(inside, value, 1)
    noise = np.std(value - slope * inside - rest)
    error = noise / (np.std(inside) * np.sqrt(len(value)))
    assert abs(slope - norm) < 4 * error
    assert error < 0.1 * norm
    assert noise == pytest.approx(NOISE * norm, rel=0.05)


@pytest.mark.parametrize(
    ("clip", "normalize_by", "dtype", "size"),
    [(1.0, 1.0, jnp.float32, 1), (0.5, 10.0, jnp.bfloat16, 2)],
)
def test_the_noisy_value_rises_by_the_clipping_norm(clip, normalize_by, dtype, size):
    grad_fn, privatizer = private(clip=clip, normalize_by=normalize_by)
    params = network(dtype)
    audit = JaxAudit(
        params,
        grad_fn,
        SAMPLING,
        EVENT,
        design=design(CANARIES * size, per_coordinate=size),
        key=KEY,
    )
    _, sums = train(audit, grad_fn, privatizer, params=params)
    draws = ParticipationDraws(
        key=KEY, canaries=CANARIES * size, per_coordinate=size, sample_rate=RATE
    )
    joined = np.array([draws.contributions(step) for step in range(STEPS)])
    seen = sums[:, scattered(4 + 1200 + 240, CANARIES, key=KEY)]
    check_slope(joined, seen, norm=clip / normalize_by)
    left = not_exercised(audit.finish())
    assert left[:2] == ("batch sampling", "per-example gradients")


@cache
def audit_of_records(*, clip, claimed_clip):
    """Canaries of fifty clipping norms, as records of a training that clips so."""
    grad_fn, privatizer = private(clip=claimed_clip, records=True)
    if clip != claimed_clip:
        fun = private(clip=clip, records=True)[0].fun
        grad_fn = dataclasses.replace(grad_fn, fun=fun)
    params = network()
    audit = JaxAudit(
        params,
        grad_fn,
        SAMPLING,
        EVENT,
        design=design(),
        key=KEY,
        insertion=Records(norm=50.0 * claimed_clip),
    )
    trained = train(audit, grad_fn, privatizer, params=params, records=True)
    return audit.finish(), *trained


@pytest.mark.nightly
def test_a_canary_that_is_a_record_rises_by_the_clipping_norm_too():
    result, batches, sums = audit_of_records(clip=2.0, claimed_clip=2.0)
    bits = Coins(key=KEY, count=CANARIES).bits()
    joined = np.array(
        [bits * np.isin(np.arange(100, 100 + CANARIES), rows) for rows in batches]
    )
    seen = sums[:, scattered(4 + 1200 + 240, CANARIES, key=KEY)]
    check_slope(joined, seen, norm=2.0)
    assert {"batch sampling", "clipping"}.isdisjoint(not_exercised(result))
    assert result.p_value > 0.1


def test_records_that_are_not_clipped_as_claimed_are_caught():
    result, *_ = audit_of_records(clip=8.0, claimed_clip=2.0)
    assert result.p_value < 0.001


def test_honest_noise_is_not_refuted_and_a_quarter_of_it_is():
    results = {}
    for factor in (1.0, 4.0):
        grad_fn, privatizer = private(divide_noise_by=factor)
        params = network()
        audit = JaxAudit(params, grad_fn, SAMPLING, EVENT, design=design(), key=KEY)
        train(audit, grad_fn, privatizer, params=params)
        results[factor] = audit.finish()
    assert not results[1.0].refuted
    assert results[1.0].p_value > 0.1
    assert results[4.0].refuted
    assert results[4.0].p_value < 0.001
    told = results[1.0].training.accountant.claim.epsilon_at(1e-5)
    assert told == pytest.approx(_accounted(), abs=0.02)


def _accounted():
    from dp_accounting.pld import PLDAccountant  # noqa: PLC0415

    return PLDAccountant().compose(EVENT).get_epsilon(1e-5)


# The rest needs no model: the privatizer is given sums of zeros.
# Arrays of numpy: one of JAX would start it when tests are collected, and no process
# in which it was started can be copied.
PARAMS = {
    name: np.zeros(shape, np.float32)
    for name, shape in (("w", (30, 20)), ("b", 20), ("s", ()))
}


def attach(
    key=KEY,
    insertion=Sums(),  # noqa: B008
    divide=1.0,
    params=PARAMS,
    clip=2.0,
    **clipping,
):
    grad_fn = clipped_grad(loss, l2_clip_norm=clip, batch_argnums=(1, 2), **clipping)
    audit = JaxAudit(
        params,
        grad_fn,
        SAMPLING,
        design=design(),
        key=key,
        insertion=insertion,
    )
    plain = noise_addition.gaussian_privatizer(stddev=2 * NOISE / divide, prng_key=5)
    return audit, plain


def run(audit, privatizer, *, steps, state=None):
    state = privatizer.init(PARAMS) if state is None else state
    for _ in range(steps):
        _, state = privatizer.update(PARAMS, state)
        state = audit.observe(state)
    return state


def scaling(privatizer, factor):
    """A program that multiplies its sums before it adds noise."""

    def update(sums, state, params=None):
        scaled = jax.tree.map(lambda part: factor * part, sums)
        return privatizer.update(scaled, state, params)

    return optax.GradientTransformation(privatizer.init, update)


@pytest.mark.nightly
@pytest.mark.parametrize("factor", [1.0, 0.0, -1.0, 0.01, 0.5, 100.0])
def test_a_run_that_loses_its_canaries_is_not_reassured(factor):
    """The error is about 0.045: each fault lies 11 or more from a slope of 1."""
    audit, plain = attach()
    run(audit, audit.wrap(scaling(plain, factor)), steps=STEPS)
    result = audit.finish()
    assert (result.verdict is Verdict.INVALID_RUN) is (factor != 1.0)
    assert "slope" in result.details()


def test_of_records_the_slope_is_known_from_the_coins():
    result, *_ = audit_of_records(clip=2.0, claimed_clip=2.0)
    signal = result.training.signal
    # 2 * 1.5 / (0.1 * sqrt(400 * 60)) = 0.194: joins are not seen, only expected.
    assert signal.error == pytest.approx(0.194, rel=0.2)
    assert abs(signal.slope - 1) < 4 * signal.error
    assert signal.by_program


@pytest.mark.nightly
def test_compiled_or_not_the_noise_is_that_of_the_plain_privatizer():
    audit, plain = attach()
    wrapped = audit.wrap(plain)
    state, own = wrapped.init(PARAMS), plain.init(PARAMS)
    draws = ParticipationDraws(
        key=KEY, canaries=CANARIES, per_coordinate=1, sample_rate=RATE
    )
    places = scattered(621, CANARIES, key=KEY)
    for step in range(4):
        update = (
            jax.jit(wrapped.update, donate_argnums=1) if step % 2 else wrapped.update
        )
        noisy, state = update(PARAMS, state)
        expected, own = plain.update(PARAMS, own)
        added = np.concatenate([np.ravel(noisy[k] - expected[k]) for k in "bsw"])
        joined = np.zeros(621)
        joined[places] = 2.0 * draws.contributions(step)
        np.testing.assert_allclose(added, joined, atol=1e-5)
        assert joined.any()
        state = audit.observe(state)


def test_a_step_is_compiled_once():
    audit, plain = attach()
    wrapped = audit.wrap(plain)
    update, state = jax.jit(wrapped.update), wrapped.init(PARAMS)
    for _ in range(4):
        _, state = update(PARAMS, state)
        state = audit.observe(state)
    assert update._cache_size() == 1


def test_canaries_that_are_records_leave_the_privatizer_alone():
    audit, plain = attach(insertion=Records(norm=2.0))
    wrapped = audit.wrap(plain)
    noisy, _ = wrapped.update(PARAMS, wrapped.init(PARAMS))
    expected, _ = plain.update(PARAMS, plain.init(PARAMS))
    assert jax.tree.all(
        jax.tree.map(lambda a, b: bool((a == b).all()), noisy, expected)
    )


@pytest.mark.parametrize(
    ("clipping", "said"),
    [
        ({"clip": 5.0}, "none is above the norm"),
        ({"clip": 5.0, "normalize_by": 20.0}, "none is above the norm"),
        ({"clip": 2.5}, "at 2 times the clipping norm"),
        ({"clip": 2.5, "rescale_to_unit_norm": True}, "at 2 times the clipping norm"),
        (
            {"clip": 2.5, "pre_clipping_transform": lambda grads: grads},
            "the clipping norm could not be read",
        ),
    ],
)
def test_clipping_is_tested_only_by_records_above_its_norm(clipping, said):
    audit, plain = attach(insertion=Records(norm=5.0), **clipping)
    run(audit, audit.wrap(plain), steps=2)
    checks = audit.finish().training.coverage.checks
    (check,) = (each for each in checks if each.stage is Stage.CLIPPING)
    assert said in " ".join(map(sentence, check.findings))
    tested = said.startswith("at 2 times")
    assert check.status is (Status.TESTED if tested else Status.NOT_CHECKED)


@pytest.mark.parametrize(("clip", "smaller"), [(5.0, False), (5.5, True)])
def test_power_is_not_foretold_of_records_below_the_clipping_norm(clip, smaller):
    audit, _ = attach(insertion=Records(norm=5.0), clip=clip)
    assert (audit._unmodelled() is not None) is smaller


def test_the_same_key_and_seeds_give_the_same_result():
    def once(key):
        audit, plain = attach(key)
        run(audit, audit.wrap(plain), steps=10)
        return audit.finish()

    assert once(KEY) == once(KEY)
    assert once(KEY).transcript != once(fixed_key(bytes(32))).transcript


def test_a_resumed_run_gives_the_same_result(tmp_path):
    audit, plain = attach()
    run(audit, audit.wrap(plain), steps=9)
    whole = audit.finish()

    audit, plain = attach()
    state = run(audit, audit.wrap(plain), steps=4)
    audit.save(tmp_path / "audit.npz")
    again, plain = attach()
    again.resume(tmp_path / "audit.npz")
    run(again, again.wrap(plain), steps=5, state=state)
    assert again.finish() == whole
    assert KEY.secret not in (tmp_path / "audit.npz").read_bytes()


def test_a_fresh_noise_state_after_resuming_joins_the_right_step(tmp_path):
    audit, plain = attach()
    state = run(audit, audit.wrap(plain), steps=3)
    audit.save(tmp_path / "audit.npz")
    again, plain = attach()
    again.resume(tmp_path / "audit.npz")
    fresh = again.wrap(plain).init(PARAMS)
    assert fresh.step == state.step == 3
    assert fresh.joining.tolist() == state.joining.tolist()


def test_the_state_is_found_in_a_chain():
    audit, plain = attach()
    chain = optax.chain(audit.wrap(plain), optax.adam(0.1))
    run(audit, chain, steps=2)
    assert audit.finish().training.steps == 2


@pytest.mark.parametrize("steps", [0, 2])
def test_steps_that_were_not_observed_are_reported_in_finish(steps):
    audit, plain = attach()
    wrapped = audit.wrap(plain)
    state = wrapped.init(PARAMS)
    for _ in range(steps):
        _, state = wrapped.update(PARAMS, state)
    state = audit.observe(state)  # the loop goes on
    assert not np.any(state.joining)  # and no canary joins it any more
    assert not np.any(wrapped.init(PARAMS).joining)
    said = f"taken {steps} steps and 0 were observed"
    with pytest.raises(InvalidRunError, match=said):
        audit.finish()


def test_a_state_of_the_plain_privatizer_is_reported_in_finish():
    for number in (0, 2):
        audit, plain = attach()
        state = (
            plain.init(PARAMS) if not number else [audit.wrap(plain).init(PARAMS)] * 2
        )
        audit.observe(state)
        with pytest.raises(InvalidRunError, match=f"and found {number}"):
            audit.finish()


def test_a_loop_that_leaves_out_a_step_is_void_and_goes_on():
    audit, plain = attach()
    wrapped = audit.wrap(plain)
    state = wrapped.init(PARAMS)
    for step in range(4):
        _, state = wrapped.update(PARAMS, state)
        if step != 2:
            state = audit.observe(state)
    result = audit.finish()
    assert result.verdict is Verdict.INVALID_RUN
    assert result.training.steps == 2
    said = map(sentence, result.sanity_checks)
    assert any("4 steps and 2 were observed" in each for each in said)


def test_what_joined_is_gone_from_the_state_after_the_step():
    audit, plain = attach()
    wrapped = audit.wrap(plain)
    before = wrapped.init(PARAMS)
    _, after = wrapped.update(PARAMS, before)
    assert before.joining.any()
    assert not after.joining.any()


def test_no_coin_can_be_reached_from_what_the_guesser_holds(reached):
    audit, plain = attach()
    run(audit, audit.wrap(plain), steps=2)
    found = reached(audit._audit.likelihood)
    assert not any(isinstance(each, Key | Coins | ParticipationDraws) for each in found)
    assert len(found) > 20


def test_without_an_event_only_the_claim_of_the_design_is_tested():
    audit, plain = attach(divide=20.0)
    run(audit, audit.wrap(plain), steps=STEPS)
    result = audit.finish()
    assert result.training.accountant is None
    assert result.refuted
    assert result.claim_test.claim == ApproxDP(epsilon=2.0, delta=1e-5)


def test_the_design_states_what_was_read():
    audit, plain = attach()
    run(audit, audit.wrap(plain), steps=1)
    result = audit.finish()
    assert result.design.setting == Setting(
        framework="JAX Privacy",
        per_coordinate=1,
        dimension=621,
        rate=RATE,
        norm_in_sum=2.0,
        insertion=CanaryInsertion(point=InsertionPoint.GRADIENT_SUM),
    )
    assert audit.commitment.holds_for(KEY, result.design)


def test_a_plan_of_jax_privacy_says_all_that_is_asked():
    config = BandMFExecutionPlanConfig(
        iterations=STEPS,
        strategy=np.ones(1),
        epsilon=None,
        delta=None,
        noise_multiplier=NOISE,
        sampling_prob=RATE,
        l2_clip_norm=3.0,
        normalize_by=10.0,
        noise_seed=0,
    )
    plan = config.plan
    audit = JaxAudit(
        PARAMS,
        plan.clipped_grad(loss, batch_argnums=(1, 2)),
        plan.batch_selection_strategy,
        plan.dp_event,
        design=design(),
        key=KEY,
    )
    run(audit, audit.wrap(plan.noise_addition_transform), steps=STEPS)
    result = audit.finish()
    assert result.design.setting.norm_in_sum == 0.1  # unit norm by default
    assert result.training.accountant.claim.epsilon_at(1e-5) == pytest.approx(
        _accounted(), abs=0.02
    )
    assert not result.refuted


def test_records_are_only_for_audits_of_records():
    audit, _ = attach()
    with pytest.raises(InvalidInputError, match=r"insertion=Records\(norm="):
        audit.records(jnp.zeros(3))


def test_more_canaries_than_parameters_are_refused():
    with pytest.raises(InvalidInputError, match="there are only 399"):
        attach(params=jnp.zeros(399))


# Batches


def picked(batches, sampling=SAMPLING, event=EVENT, records=500):
    grad_fn = clipped_grad(loss, l2_clip_norm=2.0, batch_argnums=(1, 2))
    audit = JaxAudit(
        PARAMS, grad_fn, sampling, event, design=design(), key=KEY, records=records
    )
    plain = noise_addition.gaussian_privatizer(stddev=2 * NOISE, prng_key=5)
    wrapped = audit.wrap(plain)
    state = wrapped.init(PARAMS)
    for rows in batches:
        _, state = wrapped.update(PARAMS, state)
        state = audit.observe(state, batch=rows)
    return audit


def padded(rows):
    return pad_to_multiple_of(rows, 32)


def test_batches_of_jax_privacy_pass_and_those_of_a_fixed_size_do_not():
    batches = [*map(padded, SAMPLING.batch_iterator(500, rng=1))]
    result = picked(batches).finish()
    assert not result.faults
    checks = {check.stage: check for check in result.training.coverage.checks}
    assert checks[Stage.SAMPLING].status is Status.INSPECTED
    rng = np.random.default_rng(0)
    fixed = [rng.choice(500, 50, replace=False) for _ in range(STEPS)]
    (fault,) = picked(fixed).finish().faults
    assert fault.code == "sampling.not_poisson"


def test_cycles_of_jax_privacy_pass_and_rows_out_of_turn_do_not():
    cycles = CyclicPoissonSampling(0.4, STEPS, cycle_length=4)
    batches = [*cycles.batch_iterator(500, rng=1)]
    assert not picked(batches, cycles, event=None).finish().faults
    batches[9] = batches[8]
    codes = {f.code for f in picked(batches, cycles, event=None).finish().faults}
    assert "sampling.too_soon" in codes


def test_a_step_without_its_batch_is_reported_in_finish():
    result = picked([None]).finish
    with pytest.raises(InvalidRunError, match="opened with records"):
        result()
