"""TensorBoard with torch's writer, read back by TensorBoard itself."""

from math import inf

import numpy as np
import pytest
from key_traces import STRETCH, traces, written
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from dpaudit import PureDP
from dpaudit.reporting.loggers.plain import as_metrics
from dpaudit.reporting.loggers.tensorboard import log_to_tensorboard
from dpaudit.testing import fixed_key

KEY = fixed_key(bytes(range(32)))  # of the results


def read_back(folder, *logged):
    """Log results, each at its step, and return what TensorBoard reads."""
    with SummaryWriter(log_dir=str(folder)) as writer:
        for step, result in logged:
            log_to_tensorboard(result, writer, step)
    log = EventAccumulator(str(folder))
    log.Reload()
    return log


def text(log):
    (event,) = log.Tensors("dpaudit/result/text_summary")
    return event.tensor_proto.string_val[0].decode()


def test_every_number_is_a_scalar_at_its_step(tmp_path, counted):
    result = counted()
    log = read_back(tmp_path, (7, result))
    numbers = {k: v for k, v in as_metrics(result).items() if not isinstance(v, str)}
    assert set(log.Tags()["scalars"]) == set(numbers)
    for name, value in numbers.items():
        (event,) = log.Scalars(name)
        assert event.step == 7
        assert event.value == pytest.approx(float(value), rel=1e-6)


def test_two_audits_are_two_points(tmp_path, counted):
    log = read_back(tmp_path, (1, counted(1400)), (2, counted(1439)))
    events = log.Scalars("dpaudit/right")
    assert [(e.step, e.value) for e in events] == [(1, 1400), (2, 1439)]


def test_what_is_drawn_never_says_more_than_was_shown(tmp_path, counted):
    """In single precision some bounds would be rounded up, and p-values down."""
    results = [counted(correct) for correct in range(1430, 1445)]
    log = read_back(tmp_path, *enumerate(results))
    bounds, p_values = (
        log.Scalars(f"dpaudit/{x}") for x in ("epsilon_lower", "p_value")
    )
    up = down = 0
    for result, bound, p_value in zip(results, bounds, p_values, strict=True):
        assert bound.value <= result.bound.epsilon_lower
        assert p_value.value >= result.claim_test.p_value
        up += float(np.float32(result.bound.epsilon_lower)) > result.bound.epsilon_lower
        down += float(np.float32(result.claim_test.p_value)) < result.claim_test.p_value
    assert up > 0  # else nothing was tested
    assert down > 0


def test_a_p_value_too_small_for_single_precision_is_not_zero(tmp_path, counted):
    result = counted(1510, claim=PureDP(epsilon=1.0))
    least = float(np.finfo(np.float32).smallest_subnormal)
    assert 0 < result.claim_test.p_value < least
    (event,) = read_back(tmp_path, (0, result)).Scalars("dpaudit/p_value")
    assert event.value == least


def test_the_table_has_every_number_in_full_and_every_text(tmp_path, trained):
    said = text(read_back(tmp_path, (3, trained)))
    for name, value in as_metrics(trained).items():
        assert f"| {name} | {value} |" in said


def test_an_infinite_number_is_told_and_not_drawn(tmp_path, without_epsilon):
    assert as_metrics(without_epsilon)["dpaudit/claimed_epsilon"] == inf
    log = read_back(tmp_path, (0, without_epsilon))
    assert "dpaudit/claimed_epsilon" not in log.Tags()["scalars"]
    assert "| dpaudit/claimed_epsilon | inf |" in text(log)


def test_no_log_holds_a_trace_of_the_key_or_its_coins(tmp_path, trained):
    """In the file as it is; what the result itself writes has the coins it guessed."""
    read_back(tmp_path, (0, trained))
    count = trained.design.canaries
    assert count >= STRETCH
    for name, content in written(tmp_path).items():
        assert not traces(KEY, count, content), name
