"""What a step leaves beside the noisy sum: correct updates pass, leaks are named."""

import random
from typing import NamedTuple

import numpy as np
import pytest

from dpaudit import ApproxDP, Design, OneRun, Verdict
from dpaudit.errors import InvalidInputError
from dpaudit.game.findings import Stage, Status
from dpaudit.game.text.findings import fault_parts, sentence
from dpaudit.testing import fixed_key
from dpaudit.training.any_loop import SumsAudit

N, WIDE = 12, 40
RNG = np.random.default_rng(0)
BATCH = RNG.normal(size=(N, WIDE)), RNG.normal(size=N)
WEIGHTS, MOMENTUM = RNG.normal(size=WIDE), RNG.normal(size=WIDE)
RATE, EXPECTED = 0.1, 6.0


class Adam(NamedTuple):
    """An optimizer's state."""

    first: np.ndarray
    second: np.ndarray
    count: int


def losses(batch):
    inputs, targets = batch
    return (inputs @ WEIGHTS - targets) ** 2


def momentum(_, noisy):
    moved = 0.9 * MOMENTUM + noisy / EXPECTED
    return {"weights": WEIGHTS - RATE * moved, "momentum": moved, "rate": RATE}


def adam(_, noisy):
    state = Adam(0.1 * noisy, 0.01 * noisy**2, 1)
    rate = RATE / np.sqrt(state.second + 1e-8)
    return [WEIGHTS - rate * state.first, state, {"clip": 0.5, "metrics": None}]


def noisy_clipping_norm(_, noisy):
    """What is decided by the noisy sum has been noised."""
    return WEIGHTS - RATE * noisy, float(np.linalg.norm(noisy))


def with_dropout(_, noisy):
    """Random numbers are the same whatever the records."""
    kept = np.random.random(WIDE) < 0.9  # noqa: NPY002
    return WEIGHTS - RATE * noisy * kept * random.random()


def in_place(_, noisy):
    noisy *= RATE
    return WEIGHTS - noisy


def masked(batch, noisy, keep):
    assert len(batch[0]) == len(keep)
    return WEIGHTS - RATE * noisy


def rate_by_loss(batch, noisy):
    rate = RATE / (1 + losses(batch).mean())
    return {"weights": WEIGHTS - rate * noisy, "rate": rate, "count": 1}


def halved_once_the_loss_is_small(batch, noisy):
    rate = RATE / 2 if losses(batch).mean() < 1 else RATE
    return {"weights": WEIGHTS - RATE * noisy, "rate": rate}


def blended(batch, noisy):
    inputs, _ = batch
    return {
        "weights": WEIGHTS - RATE * noisy,
        "norm": {"mean": 0.99 * np.zeros(WIDE) + 0.01 * inputs.mean(axis=0)},
    }


def sees_labels(batch, noisy):
    _, targets = batch
    return {"weights": WEIGHTS - RATE * noisy, "seen": np.sort(targets)}


def divided_by_size(batch, noisy):
    return {"weights": WEIGHTS - RATE * noisy / len(batch[0]), "rate": RATE}


def divided_by_kept(_, noisy, keep):
    return {"weights": WEIGHTS - RATE * noisy / keep.sum(), "rate": RATE}


def audit(**options):
    claim = ApproxDP(epsilon=2.0, delta=1e-5)
    return SumsAudit(
        design=Design(canaries=WIDE, rules=OneRun(guesses=8), claim=claim),
        key=fixed_key(bytes(range(32))),
        dimension=WIDE,
        sample_rate=0.5,
        **options,
    )


def finished(running, steps=3):
    for _ in range(steps):
        running.observe(running.contributions() + RNG.normal(size=WIDE))
    return running.finish()


def side_paths(result):
    checks = result.training.coverage.checks
    return next(check for check in checks if check.stage is Stage.SIDE_PATHS)


CORRECT = [momentum, adam, noisy_clipping_norm, with_dropout, in_place, masked]


@pytest.mark.parametrize("update", CORRECT)
def test_correct_updates_pass(update):
    running = audit()
    found = running.probe_update(update, BATCH)
    assert not found.faults
    (check,) = found.findings
    assert check.status is Status.INSPECTED
    assert check.numbers["batches"] == 6
    assert side_paths(finished(running)).status is Status.INSPECTED


FAULTY = {
    rate_by_loss: ("exchanged", ("rate", "weights")),
    halved_once_the_loss_is_small: ("mixed", ("rate",)),
    blended: ("exchanged", ("norm.mean",)),
    sees_labels: ("exchanged", ("seen",)),
    divided_by_size: ("fewer", ("weights",)),
    divided_by_kept: ("fewer", ("weights",)),
}


@pytest.mark.parametrize("update", FAULTY)
def test_what_depends_on_records_is_a_fault_that_names_it(update):
    running, (kind, names) = audit(), FAULTY[update]
    (fault,) = running.probe_update(update, BATCH).faults
    assert (fault.stage, fault.subject) == (Stage.SIDE_PATHS, names)
    assert fault.numbers["kind"] == kind
    result = finished(running)
    assert result.verdict is Verdict.FAULT_FOUND
    assert result.faults == (fault,)


def test_a_fault_says_what_is_likely_behind_it():
    (size,) = audit().probe_update(divided_by_size, BATCH).faults
    what, measured, _, cause = fault_parts(size)
    assert what == "weights depends on records past the noise"
    assert "with one record fewer" in measured
    assert "divided by" in cause
    (mean,) = audit().probe_update(blended, BATCH).faults
    assert "not given noise" in fault_parts(mean)[-1]


def test_two_leaks_are_told_apart():
    def both(batch, noisy):
        left = divided_by_size(batch, noisy)
        return {**left, "rate": float(losses(batch).mean())}

    found = audit().probe_update(both, BATCH).faults
    assert [(each.numbers["kind"], *each.subject) for each in found] == [
        ("exchanged", "rate"),
        ("fewer", "weights"),
    ]


def test_what_differs_by_itself_is_not_blamed_on_records():
    drawn = np.random.default_rng(1)

    def random_rate(_, noisy):
        return {"weights": WEIGHTS - RATE * noisy, "rate": drawn.random()}

    running = audit()
    (found,) = running.probe_update(random_rate, BATCH).findings
    assert found.code == "interference.update_varies"
    assert found.subject == ("rate",)
    assert side_paths(finished(running)).status is Status.NOT_CHECKED

    def leaks_too(batch, noisy):
        return {**random_rate(batch, noisy), "loss": losses(batch).mean()}

    (fault,) = audit().probe_update(leaks_too, BATCH).faults
    assert fault.subject == ("loss",)


def test_a_state_that_is_changed_in_place_is_not_blamed_on_records():
    """Even if it takes some calls until what steers training is another."""
    calls = []

    def scheduled(_, noisy):
        calls.append(1)
        rate = RATE * 0.5 ** (len(calls) // 4)
        return {"weights": WEIGHTS - RATE * noisy, "rate": rate}

    (found,) = audit().probe_update(scheduled, BATCH).findings
    assert found.code == "interference.update_varies"


def test_what_does_not_depend_on_the_noisy_sum_was_not_the_step():
    running = audit()
    (found,) = running.probe_update(lambda *_: WEIGHTS, BATCH).findings
    assert found.code == "interference.update_ignores"
    assert side_paths(finished(running)).status is Status.NOT_CHECKED


def test_the_noisy_sum_may_be_that_of_the_loop():
    parts = {"w": np.ones(WIDE - 1, np.float32), "b": np.ones((), np.float32)}
    seen = []

    def update(_, noisy):
        seen.append(noisy)
        return {name: 0.1 * part for name, part in noisy.items()}

    assert not audit().probe_update(update, BATCH, noisy_sum=parts).faults
    assert {each["w"].dtype for each in seen} == {np.dtype(np.float32)}
    *same, other = [each["w"][0] for each in seen]
    assert (set(same), other) == ({1}, 3)
    with pytest.raises(InvalidInputError, match=r"has 39 numbers.*dimension=40"):
        audit().probe_update(update, BATCH, noisy_sum={"w": np.ones(39)})


def test_random_numbers_go_on_from_where_they_stood():
    before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    audit().probe_update(with_dropout, BATCH)
    after = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    assert before == after


def test_without_a_probe_the_result_says_what_would_look():
    said = sentence(side_paths(finished(audit())).findings[0])
    assert "audit.probe_update(...) checks it" in said


def test_what_a_probe_found_outlives_a_checkpoint(tmp_path):
    running = audit()
    running.probe_update(divided_by_size, BATCH)
    running.save(tmp_path / "state.npz")
    again = audit()
    again.resume(tmp_path / "state.npz")
    assert finished(again).verdict is Verdict.FAULT_FOUND


def test_too_few_records_and_leaves_that_are_no_numbers_are_refused():
    with pytest.raises(InvalidInputError, match="needs 4 records or more, got 3"):
        audit().probe_update(momentum, np.ones((3, 2)))
    for left, match in (
        ({"w": object()}, "'w' is"),
        ({}, "must return what the step leaves behind"),
        ({"w": {1, 2}}, "'w' is"),
    ):
        with pytest.raises(InvalidInputError, match=match):
            audit().probe_update(lambda *_, left=left: left, BATCH)
