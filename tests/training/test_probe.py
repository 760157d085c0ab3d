"""The probe of any clipped sum: honest ones are quiet, faults are found and named."""

from typing import NamedTuple

import numpy as np
import pytest

from dpaudit import ApproxDP, Design, OneRun, Verdict
from dpaudit.errors import InvalidInputError
from dpaudit.game.findings import Stage, Status
from dpaudit.game.text.findings import fault_parts, sentence, sentences
from dpaudit.testing import fixed_key
from dpaudit.training.any_loop import SumsAudit
from dpaudit.training.probe import probe_sum

N, WIDE, C = 12, 9, 0.5
RNG = np.random.default_rng(0)
INPUTS, TARGETS = RNG.normal(size=(N, WIDE)), RNG.normal(size=N)
WEIGHTS = RNG.normal(size=WIDE)


def gradients(batch, scale=1.0):
    """Each record's gradients of linear regression, weights and bias."""
    inputs, targets = batch
    errors = np.asarray(scale, inputs.dtype) * (
        inputs @ WEIGHTS.astype(inputs.dtype) + targets
    )
    return errors[:, None] * inputs, errors[:, None]


def lengths(*parts):
    return np.linalg.norm(np.concatenate(parts, axis=1), axis=1)


def summed(parts, norms, keep=True):  # noqa: FBT002 (one Boolean for all rows)
    factors = keep * np.minimum(1, C / np.maximum(norms, 1e-12))
    weights, bias = ((factors[:, None] * part).sum(0) for part in parts)
    return {"weights": weights, "bias": bias}


def honest(batch, scale=1.0):
    parts = gradients(batch, scale)
    return summed(parts, lengths(*parts))


def masked(batch, keep, scale=1.0):
    parts = gradients(batch, scale)
    return summed(parts, lengths(*parts), keep)


def unscaled(batch):
    return honest(batch)


def flat(batch):
    return np.concatenate([*honest((batch["x"], batch["y"])).values()])


def in_parts(batch, scale=1.0):
    """Micro-batches of five, each record clipped."""
    inputs, targets = batch
    found = [
        honest((inputs[k : k + 5], targets[k : k + 5]), scale)
        for k in range(0, len(inputs), 5)
    ]
    return [sum(each[name] for each in found) for name in ("weights", "bias")]


def dropped(batch, keep, scale=1.0):
    """Dropout that goes by row, from a seed."""
    inputs, targets = batch
    rows = np.random.default_rng(1).random(inputs.shape) < 0.7
    return masked((inputs * rows, targets), keep, scale)


class Pair(NamedTuple):
    inputs: np.ndarray
    targets: np.ndarray


def lowered(dtype):
    return INPUTS.astype(dtype), TARGETS.astype(dtype)


BATCH = INPUTS, TARGETS
HONEST = {
    "clipped": (honest, BATCH),
    "no scale": (unscaled, BATCH),
    "masked": (masked, BATCH),
    "a flat array of a dict": (flat, {"x": INPUTS, "y": TARGETS, "none": None}),
    "a named tuple": (honest, Pair(*BATCH)),
    "a list": (honest, [*BATCH]),
    "micro-batches": (in_parts, BATCH),
    "dropout by row": (dropped, BATCH),
    "float32": (honest, lowered(np.float32)),
    "float16": (honest, lowered(np.float16)),
    "a record without a gradient": (
        unscaled,
        (INPUTS, np.where(np.arange(N) == 2, -INPUTS @ WEIGHTS, TARGETS)),
    ),
}


@pytest.mark.parametrize("name", HONEST)
@pytest.mark.parametrize("seed", [0, 1])
def test_an_honest_sum_has_no_fault(name, seed):
    function, batch = HONEST[name]
    found = probe_sum(function, batch, norm=C, seed=seed)
    assert not found.unseen
    assert found.faults == ()
    assert found.change == pytest.approx(1, abs=0.01 if name == "float16" else 1e-5)
    assert found.coupling <= found.tolerance
    assert found.tolerance == 1e-3 or name == "float16"
    assert {look.stage for look in found.checks} == {Stage.GRADIENTS, Stage.CLIPPING}
    assert {look.status for look in found.checks} == {Status.INSPECTED}


def test_the_change_that_is_said_is_that_of_the_largest_record():
    """By hand: without clipping a record puts in its own gradient."""
    norms = lengths(*gradients(BATCH))
    found = probe_sum(unscaled, BATCH, norm=C, records=N)
    assert found.clipped == np.mean(norms > C)
    small = [part * 0.9 * C / norms.max() for part in BATCH]  # of a linear function
    quiet = probe_sum(lambda b: (b[1][:, None] * b[0]).sum(0), small, norm=C, records=N)
    alone = np.linalg.norm(small[1][:, None] * small[0], axis=1).max()
    assert quiet.change == pytest.approx(alone / C)
    assert quiet.removal == quiet.change


def test_records_that_are_too_small_do_not_show_clipping():
    found = probe_sum(unscaled, (INPUTS * 1e-3, TARGETS * 1e-3), norm=C)
    assert not found.faults
    gradients_, clipping = found.checks
    assert gradients_.status is Status.INSPECTED
    assert clipping.status is Status.NOT_CHECKED
    assert "was large enough" in sentence(clipping)
    larger = probe_sum(honest, (INPUTS * 1e-3, TARGETS * 1e-3), norm=C)
    assert larger.checks[1].status is Status.INSPECTED
    assert "100% of them made large enough" in sentence(larger.checks[1])

    def ignores(batch, scale):  # noqa: ARG001
        return honest(batch)

    found = probe_sum(ignores, (INPUTS * 1e-3, TARGETS * 1e-3), norm=C)
    assert found.checks[1].status is Status.NOT_CHECKED


def not_clipped(batch, scale=1.0):
    return [part.sum(0) for part in gradients(batch, scale)]


def without_bias(batch, scale=1.0):
    parts = gradients(batch, scale)
    return summed(parts, lengths(parts[0]))


def as_one(batch, scale=1.0):
    total = np.concatenate(not_clipped(batch, scale))
    return total * min(1, C / np.linalg.norm(total))


def mean(batch, scale=1.0):
    return [part / len(batch[0]) for part in honest(batch, scale).values()]


def mean_of_kept(batch, keep, scale=1.0):
    return [part / keep.sum() for part in masked(batch, keep, scale).values()]


def standardised(batch, scale=1.0):
    inputs, targets = batch
    inputs = (inputs - inputs.mean(0)) / (inputs.std(0) + 1e-5)
    return honest((inputs, targets), scale)


def standardised_and_masked(batch, keep):
    inputs, targets = batch
    inputs = (inputs - inputs.mean(0)) / (inputs.std(0) + 1e-5)
    return masked((inputs, targets), keep)


def mixed(batch):
    inputs, targets = batch
    return honest((0.6 * inputs + 0.4 * np.roll(inputs, 1, axis=0), targets))


def twice(batch, scale=1.0):
    parts = gradients(batch, scale)
    return summed(parts, lengths(*parts) / 2)


def norms_in_half(batch, scale=1.0):
    parts = gradients(batch, scale)
    with np.errstate(over="ignore"):
        squares = np.square(parts[0].astype(np.float16)).sum(1).astype(np.float64)
    factors = np.where(np.isinf(squares), np.nan, C / np.sqrt(squares))
    return (np.minimum(1, factors)[:, None] * parts[0]).sum(0)


NAN = (np.where(np.arange(N)[:, None] == 7, np.nan, INPUTS), TARGETS)
FAULTY = {
    "no clipping": (not_clipped, BATCH, C, Stage.CLIPPING, "no clipping of records"),
    "no clipping, no scale": (
        lambda batch: not_clipped(batch),  # noqa: PLW0108 (it takes no scale)
        BATCH,
        C,
        Stage.CLIPPING,
        "no clipping of records",
    ),
    "norms without the bias": (
        without_bias,
        BATCH,
        C,
        Stage.CLIPPING,
        "computed without 'bias'",
    ),
    "twice the norm": (twice, BATCH, C, Stage.CLIPPING, "clipping to 2 C instead of C"),
    "the batch as one": (
        as_one,
        BATCH,
        C,
        Stage.CLIPPING,
        "batch is clipped, and not each record",
    ),
    "a mean": (
        mean,
        BATCH,
        C / N,
        Stage.AGGREGATION,
        "divided by the number of records",
    ),
    "a mean of kept rows": (
        mean_of_kept,
        BATCH,
        C / N,
        Stage.AGGREGATION,
        "divided by the number of records",
    ),
    "statistics": (standardised, BATCH, C, Stage.GRADIENTS, "its statistics"),
    "statistics, masked": (
        standardised_and_masked,
        BATCH,
        C,
        Stage.GRADIENTS,
        "its statistics",
    ),
    "mixed": (mixed, BATCH, C, Stage.GRADIENTS, "records that are mixed"),
    "no number": (unscaled, NAN, C, Stage.CLIPPING, "must be set to zero"),
    "no number, masked": (masked, NAN, C, Stage.CLIPPING, "must be set to zero"),
    "norms in half precision": (
        norms_in_half,
        BATCH,
        C,
        Stage.CLIPPING,
        "in half precision",
    ),
}


@pytest.mark.parametrize("name", FAULTY)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_fault_is_found_on_its_road_with_its_cause(name, seed):
    function, batch, norm, stage, cause = FAULTY[name]
    found = probe_sum(function, batch, norm=norm, seed=seed)
    assert [fault.stage for fault in found.faults] == [stage]
    assert cause in fault_parts(found.faults[0])[3]
    assert str(found).startswith("Fault found: ")


def test_a_mean_that_keeps_the_norm_it_is_told_is_no_fault():
    """If all put in at most C, a mean over any number changes by at most C."""
    found = probe_sum(mean, BATCH, norm=C)
    assert not found.faults
    assert found.change <= 2 / N


def test_what_does_not_repeat_itself_is_unseen():
    rng = np.random.default_rng(0)
    found = probe_sum(lambda b: honest((b[0] * rng.random(WIDE), b[1])), BATCH, norm=C)
    assert "does not repeat itself" in str(found)
    assert str(found).startswith("Not examined: ")


def test_random_numbers_that_go_by_row_are_unseen_without_keep():
    def by_row(batch):
        return dropped(batch, np.ones(len(batch[0]), bool))

    assert "let clipped_sum take keep" in str(probe_sum(by_row, BATCH, norm=C))


def test_sums_of_nothing_and_of_no_numbers_are_unseen():
    found = probe_sum(honest, (INPUTS, -INPUTS @ WEIGHTS * 0), norm=C)
    assert not found.unseen
    nothing = probe_sum(honest, (INPUTS * 0, TARGETS * 0), norm=C)
    assert "nothing into the sum" in str(nothing)
    nothing = probe_sum(honest, (INPUTS * np.nan, TARGETS), norm=C)
    assert "not finite" in str(nothing)


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        ((INPUTS, TARGETS[:5]), r"each with one row for each record"),
        ((INPUTS, 3.0), "each with one row"),
        ({"texts": ["a", "b", "c"]}, "each with one row"),
        (None, "each with one row"),
        ((INPUTS[:2], TARGETS[:2]), "3 records or more in its batch, got 2"),
    ],
)
def test_a_batch_that_is_none_is_refused(batch, said):
    with pytest.raises(InvalidInputError, match=said):
        probe_sum(honest, batch, norm=C)


def test_what_is_no_sum_is_refused():
    with pytest.raises(InvalidInputError, match="and nothing else"):
        probe_sum(lambda batch: gradients(batch)[0], BATCH, norm=C)
    with pytest.raises(InvalidInputError, match="that numpy can read"):
        probe_sum(lambda _: "a sum", BATCH, norm=C)
    with pytest.raises(InvalidInputError, match="and nothing else"):
        probe_sum(lambda _: None, BATCH, norm=C)
    for wrong in ({"norm": 0.0}, {"norm": C, "records": 0}, {"norm": C, "seed": -1}):
        with pytest.raises(InvalidInputError, match="must be a"):
            probe_sum(honest, BATCH, **wrong)


# In an audit of a loop


def audit():
    claim = ApproxDP(epsilon=2.0, delta=1e-5)
    design = Design(canaries=WIDE, rules=OneRun(guesses=4), claim=claim)
    return SumsAudit(
        design=design,
        key=fixed_key(bytes(range(32))),
        dimension=WIDE + 1,
        sample_rate=0.5,
        knows_real_sums=True,
    )


def trained(running, steps=30):
    rng = np.random.default_rng(3)
    for _ in range(steps):
        joined = running.contributions()
        noisy = joined + rng.normal(size=WIDE)
        running.observe(noisy, real_sums=np.zeros(WIDE))
    return running.finish()


def checks(result):
    return {check.stage: check for check in result.training.coverage.checks}


def test_the_result_says_what_a_probe_saw():
    running = audit()
    running.probe(honest, BATCH, norm=C)
    seen, plain = checks(trained(running)), checks(trained(audit()))
    for stage in (Stage.GRADIENTS, Stage.CLIPPING):
        assert seen[stage].status is Status.INSPECTED
        assert plain[stage].status is Status.NOT_CHECKED
        assert "audit.probe(...) checks it" in sentences(plain[stage].findings)
    for stage in (Stage.SAMPLING, Stage.AGGREGATION, Stage.SIDE_PATHS):
        assert seen[stage].status is Status.NOT_CHECKED


def test_the_result_says_why_a_probe_could_not_look():
    running, rng = audit(), np.random.default_rng(0)
    running.probe(lambda b: honest((b[0] * rng.random(WIDE), b[1])), BATCH, norm=C)
    clipping = checks(trained(running))[Stage.CLIPPING]
    assert clipping.status is Status.NOT_CHECKED
    assert (
        "the sensitivity probe could not run: it does not repeat itself"
        in sentences(clipping.findings)
    )


def test_a_fault_that_a_probe_found_outlives_a_checkpoint(tmp_path):
    running = audit()
    running.probe(not_clipped, BATCH, norm=C)
    running.save(tmp_path / "state.npz")
    again = audit()
    again.resume(tmp_path / "state.npz")
    result = trained(again)
    assert result.verdict is Verdict.FAULT_FOUND
    assert [fault.stage for fault in result.training.coverage.faults] == [
        Stage.CLIPPING
    ]
    assert checks(result)[Stage.GRADIENTS].status is Status.INSPECTED
    assert result.to_json() == trained(running).to_json()


def test_another_sum_than_the_audited_one_is_refused():
    with pytest.raises(InvalidInputError, match=r"has 9 numbers.*dimension=10"):
        audit().probe(lambda batch: honest(batch)["weights"], BATCH, norm=C)
