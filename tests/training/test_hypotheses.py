"""Each hypothesis of the accountant's proof, broken in a plain loop, and its stage.

A batch is a fresh Poisson sample; one record changes the sum by at most C; the noise is
what was accounted for; what follows depends on records only through the noisy sum; the
accountant was told of all steps; the released model is the trained one.
"""

from hashlib import sha256

import numpy as np
import pytest

from dpaudit import ApproxDP, Design, OneRun, Verdict, weights_digest
from dpaudit.game.findings import Stage, Status
from dpaudit.testing import fixed_key
from dpaudit.training.any_loop import SumsAudit

WIDE, RECORDS, STEPS, RATE, NOISE, CLIP = 400, 300, 40, 0.1, 2.26, 0.5
RNG = np.random.default_rng(0)
INPUTS, TARGETS = RNG.normal(size=(RECORDS, WIDE)), RNG.normal(size=RECORDS)


def train(broken=""):
    """Train with one hypothesis broken; return the audit's result."""
    rng = np.random.default_rng(1)
    weights = np.zeros(WIDE)

    def clipped_sum(batch, scale=1.0):
        inputs, targets = batch
        gradients = scale * (inputs @ weights - targets)[:, None] * inputs
        norms = np.linalg.norm(gradients, axis=1, keepdims=True)
        if broken == "sensitivity":
            norms = norms / 3
        return (gradients * np.minimum(1, CLIP / np.maximum(norms, 1e-12))).sum(0)

    def update(batch, noisy):
        rate = 0.01
        if broken == "interference":
            rate /= 1 + np.mean((batch[0] @ weights - batch[1]) ** 2)
        return weights - rate * noisy / (RATE * RECORDS)

    claim = ApproxDP(epsilon=2.0, delta=1e-5)
    audit = SumsAudit(
        design=Design(canaries=WIDE, rules=OneRun(guesses=40), claim=claim),
        key=fixed_key(bytes(range(32))),
        dimension=WIDE,
        sample_rate=RATE,
        noise=NOISE,
        knows_real_sums=True,
        records=RECORDS,
    )
    some = INPUTS[:12], TARGETS[:12]
    audit.probe(clipped_sum, some, norm=CLIP)
    audit.probe_update(update, some)
    added = NOISE / 2 if broken == "noise" else NOISE
    best, released = np.inf, weights
    for _ in range(STEPS):
        rows = np.flatnonzero(rng.random(RECORDS) < RATE)
        if broken == "sampling":
            rows = rng.permutation(RECORDS)[: int(RATE * RECORDS)]
        batch = INPUTS[rows], TARGETS[rows]
        real = clipped_sum(batch)
        total = real.copy()
        total[audit.coordinates] += CLIP * audit.contributions()
        noisy = total + CLIP * added * rng.normal(size=WIDE)
        audit.observe(
            noisy[audit.coordinates] / CLIP,
            real_sums=real[audit.coordinates] / CLIP,
            batch=rows,
        )
        weights = update(batch, noisy)
        audit.after_step(weights)
        loss = np.mean((INPUTS @ weights - TARGETS) ** 2)
        if broken != "release" or loss < best:  # the best on the training data
            best, released = loss, weights
    told = STEPS // 2 if broken == "accounting" else STEPS
    return audit.finish(accounted=[(NOISE, RATE, told)], released=released)


def test_a_loop_that_breaks_none_passes_and_all_six_were_checked():
    result = train()
    assert not result.faults
    assert result.verdict is Verdict.NO_VIOLATION_DETECTED
    missing = result.training.coverage.stages(Status.NOT_CHECKED)
    assert missing == (Stage.AGGREGATION,)  # one process adds up, by itself


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
    result = train(broken)
    assert {fault.stage for fault in result.faults} == {stage}


def test_weights_are_named_by_a_digest_of_names_types_shapes_and_bits():
    """A digest of its own: SHA-256 over the JSON of SHA-256 by name."""
    array = np.arange(3, dtype=np.float32)
    leaf = sha256(b"<f4 (3,) " + array.tobytes()).hexdigest()
    whole = sha256(f'{{"weights":"{leaf}"}}'.encode()).hexdigest()
    assert weights_digest({"weights": array}) == whole
    other = {"b": array + 1, "a": array}
    assert weights_digest(other) == weights_digest({"a": array, "b": array + 1})
    assert weights_digest(other) != weights_digest({"a": array + 1, "b": array})


def test_another_model_than_the_last_step_left_makes_it_inconclusive():
    """Of what was done to it nothing is known, so it is no fault."""
    result = train("release")
    assert result.verdict is Verdict.INCONCLUSIVE
    assert not result.faults
    (reason,) = (s for s in result.sanity_checks if s.code == "released.not_as_left")
    assert reason.status is Status.INCONCLUSIVE
    checks = result.training.coverage.checks
    (check,) = (each for each in checks if each.stage is Stage.RELEASED_MODEL)
    assert check.status is Status.NOT_CHECKED
    assert check.findings[0].code == "released.differs"
