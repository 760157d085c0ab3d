"""The audit of any loop: honest noise stands, too little falls, nobody peeks."""

from dataclasses import replace
from math import ceil

import numpy as np
import pytest

from dpaudit import (
    AdaptiveCount,
    ApproxDP,
    Coins,
    Design,
    GaussianDP,
    OneRun,
    PureDP,
    Verdict,
)
from dpaudit.dpsgd.participation import Participation
from dpaudit.dpsgd.planning import TrainingSetup, plan_audit
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.configuration import StepSegment
from dpaudit.game.findings import Stage, Status, inconclusive
from dpaudit.game.result import Result
from dpaudit.game.setting import Setting
from dpaudit.game.text.findings import sentence, sentences
from dpaudit.testing import fixed_key
from dpaudit.training.any_loop import SumsAudit
from dpaudit.training.layout import scattered

KEY = fixed_key(bytes(range(32)))
CLAIM = ApproxDP(epsilon=2.0, delta=1e-5)
DESIGN = Design(canaries=1000, rules=OneRun(guesses=100), claim=CLAIM)
CLIP, DIMENSION = 3.0, 1500


def loop(audit, *, noise, steps, seed=0, dimension=DIMENSION):
    """A loop in plain numpy, with a little of real gradients everywhere."""
    rng = np.random.default_rng(seed)
    background = 0.02 * rng.normal(size=dimension)
    for _ in range(steps):
        total = CLIP * background
        total[audit.coordinates] += CLIP * audit.contributions()
        noisy = total + CLIP * noise * rng.normal(size=dimension)
        audit.observe(noisy[audit.coordinates] / CLIP)


def started(design=DESIGN, key=KEY, rate=0.1, noise=None, **options):
    return SumsAudit(
        design=design,
        key=key,
        dimension=DIMENSION,
        sample_rate=rate,
        noise=noise,
        **options,
    )


@pytest.mark.parametrize(("noise", "refuted"), [(2.26, False), (0.2, True)])
def test_the_noise_decides(noise, refuted):
    audit = started()
    loop(audit, noise=noise, steps=100)
    result = audit.finish()
    assert result.refuted is refuted
    assert result.training.accountant is None
    assert result.training.steps == 100
    assert "batch sampling" in result.details()


@pytest.mark.parametrize(
    ("noise", "verdict"), [(2.26, Verdict.INCONCLUSIVE), (0.2, Verdict.CLAIM_REFUTED)]
)
def test_steps_made_without_the_audit_spoil_what_is_not_refuted(noise, verdict):
    audit = started()
    loop(audit, noise=noise, steps=100)
    assert audit.steps == 100
    unseen = inconclusive("custom", text="3 steps were not seen")
    audit.add(unseen)
    result = audit.finish()
    assert result.verdict is verdict
    assert unseen in result.sanity_checks


def test_a_curve_is_what_counts_if_it_is_given():
    audit = started()
    loop(audit, noise=0.2, steps=100)
    result = audit.finish(claim=GaussianDP(mu=0.44))
    assert result.claim_test is result.training.accountant
    assert result.refuted
    assert result.p_value < result.design_test.p_value
    assert "what the accountant proves of the steps made" in " ".join(
        result.details().split()
    )


def test_the_result_for_a_pure_claim_can_be_written():
    """At delta = 0 every Gaussian mechanism has an infinite epsilon."""
    design = Design(canaries=1000, rules=OneRun(guesses=100), claim=PureDP(epsilon=2.0))
    audit = started(design)
    loop(audit, noise=0.2, steps=20)
    result = audit.finish()
    assert result.training.family.model_epsilon == np.inf
    assert Result.from_json(result.to_json()) == result


@pytest.mark.nightly
def test_a_plan_in_rounds_can_be_played():
    training = TrainingSetup(steps=40, rate=1.0, noise=12.0)
    plan = plan_audit(training, claim=CLAIM, coordinates=1000, per_coordinate=4)
    audit = started(plan.design(), rate=1.0)
    loop(audit, noise=12.0, steps=40)
    result = audit.finish()
    assert not result.refuted
    assert result.bound.epsilon_lower > 0
    assert f"the plan's forecast was {int(100 * plan.expected.mean) / 100}" in " ".join(
        result.details().split()
    )


PLAN = Setting(
    expected_epsilon=0.9, detectable_factor=2.08, steps=20, rate=0.2, noise=2.26
)


def test_a_run_of_other_steps_than_planned_has_a_forecast_of_its_own():
    """What a plan of 20 steps detects, an audit of 5 does not."""
    audit = started(replace(DESIGN, setting=PLAN), rate=0.2, noise=2.26)
    loop(audit, noise=2.26, steps=5)
    result = audit.finish()
    said = " ".join(result.details().split())
    assert "20 steps were planned and 5 made" in said
    assert "forecast was 0.9" not in said
    assert result.training.configuration.steps == 5
    factor = result.training.detectable.factor
    assert factor > 3
    assert f"detect noise {ceil(100 * factor) / 100:.2f}x too small" in said


@pytest.mark.parametrize("change", [{"rate": 0.05}, {"noise": 4.0}])
def test_what_a_plan_forecasts_is_not_said_of_another_run(change):
    run = {"rate": 0.2, "noise": 2.26, **change}
    audit = started(replace(DESIGN, setting=PLAN), **run)
    loop(audit, noise=run["noise"], steps=20)
    said = str(audit.finish())
    assert "expected 0.9" not in said
    assert "2.08" not in said


def test_a_forecast_that_lacks_an_input_names_it():
    unchecked = ("sampling", "gradients", "clipping", "interference")
    audit = started(replace(DESIGN, setting=PLAN), rate=0.2, unchecked=unchecked)
    loop(audit, noise=2.26, steps=20)
    said = str(audit.finish())
    assert "not known: the noise multiplier that was configured was not stated" in said
    assert "2.08" not in said


def test_the_claim_that_is_judged_decides_the_forecast():
    found = []
    for curve in (None, GaussianDP(mu=0.5), GaussianDP(mu=1.0)):
        audit = started(rate=0.2, noise=2.26)
        loop(audit, noise=2.26, steps=20)
        found.append(audit.finish(claim=curve).training.detectable.factor)
    assert found[1] < found[2]
    assert found[0] != found[1]


@pytest.mark.nightly
def test_a_fault_that_is_printed_is_detected():
    """Of 20 audits each, 14 or more: 0.9 gives fewer once in 400 times."""
    for rate, steps in ((0.2, 20), (0.08, 20), (0.2, 8)):
        audit = started(rate=rate, noise=2.26)
        loop(audit, noise=2.26, steps=steps)
        factor = audit.finish().training.detectable.factor
        detected = 0
        for seed in range(20):
            faulty = started(rate=rate, noise=2.26, key=fixed_key(bytes([seed] * 32)))
            loop(faulty, noise=2.26 / factor, steps=steps, seed=seed)
            detected += faulty.finish().claim_test.refuted
        assert detected >= 14


def test_a_refuted_claim_has_no_forecast():
    audit = started(rate=0.2, noise=2.26)
    loop(audit, noise=0.3, steps=20)
    result = audit.finish()
    assert result.refuted
    assert result.training.detectable is None


def test_a_resumed_run_has_the_configuration_of_all_its_steps(tmp_path):
    whole = started(rate=0.2, noise=2.26)
    loop(whole, noise=2.26, steps=4)
    whole.save(tmp_path / "state.npz")
    again = started(rate=0.2, noise=2.26)
    again.resume(tmp_path / "state.npz")
    for audit in (whole, again):
        loop(audit, noise=2.26, steps=3)
    one, other = (each.finish().training.configuration for each in (whole, again))
    assert one == other
    assert one.schedule == (StepSegment(steps=7, noise=2.26, clip=None, rate=0.2),)


def test_a_resumed_loop_gives_the_same_transcript(tmp_path):
    rng = np.random.default_rng(5)
    noise = rng.normal(size=(20, 1000))

    def steps(audit, which):
        for step in which:
            audit.observe(audit.contributions() + 2 * noise[step])

    whole = started()
    steps(whole, range(10))
    whole.save(tmp_path / "state.npz")
    steps(whole, range(10, 20))
    again = started()
    again.resume(tmp_path / "state.npz")
    steps(again, range(10, 20))
    one, other = whole.finish(), again.finish()
    assert one.transcript.to_json() == other.transcript.to_json()
    assert KEY.secret not in (tmp_path / "state.npz").read_bytes()
    with pytest.raises(InvalidRunError, match="belongs to another audit"):
        started(key=fixed_key(bytes(32))).resume(tmp_path / "state.npz")
    (tmp_path / "state.npz").write_bytes(b"PK\x03\x04 broken")
    with pytest.raises(InvalidInputError, match="holds no state"):
        started().resume(tmp_path / "state.npz")


def test_what_joins_follows_the_coins():
    audit = started(rate=1.0)
    np.testing.assert_array_equal(
        audit.contributions(), Coins(key=KEY, count=1000).bits()
    )


def test_a_sum_without_canaries_is_refused():
    audit = started()
    with pytest.raises(InvalidRunError, match=r"contributions\(\) was not asked"):
        audit.observe(np.zeros(1000))
    audit.contributions()
    audit.observe(np.zeros(1000))
    with pytest.raises(InvalidRunError, match=r"contributions\(\) was not asked"):
        audit.observe(np.zeros(1000))


def test_what_cannot_be_played_is_refused():
    with pytest.raises(InvalidInputError, match="there are only 1500"):
        started(Design(canaries=1501, rules=OneRun(guesses=1), claim=CLAIM))
    counted = Design(canaries=1000, rules=AdaptiveCount(guesses=10), claim=CLAIM)
    with pytest.raises(InvalidInputError, match="training is audited by OneRun"):
        started(counted)


def test_coordinates_are_different_and_public():
    one, other = scattered(10**10, 1000, key=KEY), scattered(10**10, 1000, key=KEY)
    np.testing.assert_array_equal(one, other)
    assert len(np.unique(one)) == 1000
    assert one.max() > 5 * 10**9


@pytest.mark.parametrize("curve", [None, GaussianDP(mu=0.44)])
def test_a_result_is_the_same_after_it_was_written_and_read(curve):
    audit = started()
    loop(audit, noise=2.26, steps=20)
    result = audit.finish(claim=curve)
    again = Result.from_json(result.to_json())
    assert again == result
    assert str(again) == str(result)
    assert sum(again.scores.included) == Coins(key=KEY, count=1000).bits().sum()
    with pytest.raises(InvalidInputError, match="remarks"):
        Result.from_json(result.to_json().replace('"remarks":[]', '"remarks":1'))


# What the loop says of its batches and of its accountant


RECORDS = 300


def sampled(rate=0.1, steps=30):
    rng = np.random.default_rng(0)
    return [np.flatnonzero(rng.random(RECORDS) < rate) for _ in range(steps)]


def shuffled(epochs=3):
    rng = np.random.default_rng(0)
    return [b for _ in range(epochs) for b in rng.permutation(RECORDS).reshape(10, -1)]


def told(batches, *, seed=0, **options):
    """An audit that was told of batches, with next to no noise read."""
    audit = started(
        records=RECORDS,
        noise=2.26,
        unchecked=("gradients", "clipping", "interference"),
        **options,
    )
    rng = np.random.default_rng(seed)
    for batch in batches:
        seen = audit.contributions() + 2.26 * rng.normal(size=1000)
        audit.observe(seen, batch=batch)
    return audit


def check_of(result, stage):
    checks = result.training.coverage.checks
    return next(check for check in checks if check.stage is stage)


def test_batches_that_are_poisson_samples_pass():
    result = told(sampled()).finish()
    assert result.verdict is Verdict.NO_VIOLATION_DETECTED
    check = check_of(result, Stage.SAMPLING)
    assert check.status is Status.INSPECTED
    assert "30 batches as they come" in sentences(check.findings)


def test_a_loop_that_does_not_tell_of_batches_hears_what_would():
    audit = started()
    loop(audit, noise=2.26, steps=2)
    (said,) = check_of(audit.finish(), Stage.SAMPLING).findings
    assert "SumsAudit(..., records=...) and observe(..., batch=...)" in sentence(said)


@pytest.mark.parametrize(
    ("batches", "code"),
    [
        (sampled(0.16), "sampling.too_often"),
        (shuffled(), "sampling.not_poisson"),
        ([batch for batch in sampled() for _ in range(2)], "sampling.batch_repeated"),
        ([np.tile(batch, 2) for batch in sampled()], "sampling.several_times"),
    ],
)
def test_batches_that_are_no_poisson_samples_are_a_fault(batches, code):
    result = told(batches).finish()
    assert [fault.code for fault in result.faults] == [code]
    assert result.verdict is Verdict.FAULT_FOUND


def test_records_that_come_out_of_turn_are_a_fault():
    cycle = Participation(every=3, cohorts=3)
    parts = [np.arange(start, RECORDS, 3) for start in range(3)]
    right = told(parts * 4, rate=1.0, participation=cycle).finish()
    assert not right.faults
    wrong = told([*parts * 3, *reversed(parts)], rate=1.0, participation=cycle)
    assert [fault.code for fault in wrong.finish().faults] == ["sampling.too_soon"]


def test_each_sum_has_a_batch_if_it_was_said_so():
    for audit, given in ((started(), {"batch": [1]}), (started(records=9), {})):
        audit.contributions()
        with pytest.raises(InvalidRunError, match="opened with records"):
            audit.observe(np.zeros(1000), **given)


def test_batches_outlive_a_restart(tmp_path):
    batches = sampled()
    first = told(batches[:15])
    first.save(tmp_path / "state.npz")
    again = started(
        records=RECORDS, noise=2.26, unchecked=("gradients", "clipping", "interference")
    )
    again.resume(tmp_path / "state.npz")
    again.contributions()
    again.observe(np.zeros(1000), batch=batches[0])
    (fault,) = again.finish().faults
    assert fault.code == "sampling.batch_repeated"
    assert fault.numbers["later"] == 16


@pytest.mark.parametrize(
    ("history", "code"),
    [
        ([(2.26, 0.1, 30)], None),
        pytest.param(
            [(2.26, 0.1, 10), (2.0, 0.2, 20)], None, marks=pytest.mark.nightly
        ),
        ([(2.26, 0.1, 20)], "accounting.steps_missing"),
        ([(3.0, 0.1, 30)], "accounting.noise_differs"),
        ([(2.26, 0.05, 30)], "accounting.rate_differs"),
    ],
)
def test_steps_are_compared_with_what_was_accounted_for(history, code):
    result = told(sampled()).finish(accounted=history)
    assert result.claim_test is result.training.accountant
    found = {fault.code for fault in result.faults}
    assert code in found if code else not found
    assert check_of(result, Stage.ACCOUNTING).status is not Status.NOT_CHECKED


def test_noise_is_held_against_what_was_accounted_for():
    """As configured, and less than the accountant was told of."""
    audit = started(knows_real_sums=True, noise=1.0)
    rng = np.random.default_rng(0)
    for _ in range(40):
        joined = audit.contributions()
        audit.observe(joined + rng.normal(size=1000), real_sums=np.zeros(1000))
    codes = {fault.code for fault in audit.finish(accounted=[(2.0, 0.1, 40)]).faults}
    assert codes == {"accounting.noise_differs", "noise.scale"}
