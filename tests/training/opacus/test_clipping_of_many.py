"""How much the record changes the sum of which clipping leaves most."""

import pytest
import torch
from private_runs import private_run, step_of

from dpaudit.training.opacus.clipping_of_many import left_of_many

pytestmark = pytest.mark.filterwarnings("ignore")


def seen(change):
    run = private_run()
    optimizer = run.optimizer
    clip = optimizer.clip_and_accumulate
    optimizer.clip_and_accumulate = lambda: change(optimizer, clip)
    batch = run.loader.dataset[:120]
    count, most = left_of_many(step_of(run), optimizer, [batch])
    assert count == 120
    return most


def scaled(optimizer, factor):
    for parameter in optimizer.params:
        parameter.summed_grad = factor * parameter.summed_grad


def correct(_, clip):
    clip()


def shortened(optimizer, clip):
    clip()
    norm = torch.stack([p.summed_grad.norm() for p in optimizer.params]).norm()
    scaled(optimizer, min(1.0, float(5 * optimizer.max_grad_norm / norm)))


def in_a_half_space(optimizer, clip):
    """Nothing of the sum opposes a direction that is public."""
    clip()
    flat = torch.cat([p.summed_grad.flatten() for p in optimizer.params])
    along = torch.where(torch.arange(len(flat)) % 3 == 0, 1.0, -1.0)
    inner = flat @ along
    if inner < 0:
        sizes = [p.numel() for p in optimizer.params]
        parts = (flat - inner / len(flat) * along).split(sizes)
        for parameter, part in zip(optimizer.params, parts, strict=True):
            parameter.summed_grad = part.view_as(parameter)


@pytest.mark.parametrize("change", [correct, shortened, in_a_half_space])
def test_a_record_changes_the_sum_by_no_more_than_the_clipping_norm(change):
    assert seen(change) <= 1 + 1e-6


def test_records_beyond_the_size_of_every_parameter_are_not_counted():
    run = private_run()
    most = max(each.numel() for each in run.optimizer.params)
    rows = torch.arange(most + 10) % len(run.loader.dataset)
    batch = run.loader.dataset[rows]
    count, _ = left_of_many(step_of(run), run.optimizer, [batch])
    assert count == most


def test_correct_clipping_leaves_the_clipping_norm():
    assert seen(correct) == pytest.approx(1, rel=1e-6)


def last_is_not_clipped(optimizer, clip):
    last = [p.grad_sample[-1].clone() for p in optimizer.params]
    clip()
    for parameter, grad in zip(optimizer.params, last, strict=True):
        parameter.summed_grad = parameter.summed_grad + grad


def twice(optimizer, clip):
    clip()
    scaled(optimizer, 2)


def test_a_record_that_is_clipped_otherwise_is_seen():
    assert seen(last_is_not_clipped) > 100
    assert seen(twice) == pytest.approx(2, rel=1e-6)


def test_records_may_come_in_several_batches():
    run = private_run()
    optimizer, data, calls = run.optimizer, run.loader.dataset, []
    clip = optimizer.clip_and_accumulate

    def third_is_doubled():
        calls.append(len(optimizer.params[0].grad_sample))
        clip()
        if calls[-1] == 50:
            scaled(optimizer, 2)

    optimizer.clip_and_accumulate = third_is_doubled
    batches = data[:40], data[40:80], data[80:130]
    count, most = left_of_many(step_of(run), optimizer, iter(batches))
    assert (count, most) == (130, pytest.approx(2, rel=1e-6))
