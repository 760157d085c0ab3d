"""Every patch does what it says, and no more: seen on real Opacus optimizers."""

from collections import Counter

import numpy as np
import pytest
import torch

from dpaudit_lab.bugzoo.accounting import (
    account_for_more_records,
    lose_accountant_on_resume,
)
from dpaudit_lab.bugzoo.clipping import (
    account_per_layer_as_flat,
    clip_accumulated_sum,
    clip_before_unscaling,
    clip_half_precision,
    clip_whole_batch,
)
from dpaudit_lab.bugzoo.ghost import forget_embedding_norm, token_run
from dpaudit_lab.bugzoo.honest import Setting, private_run, train
from dpaudit_lab.bugzoo.noise import (
    divide_noise_twice,
    forget_clip_in_noise,
    leave_last_layer_without_noise,
    repeat_noise,
    take_variance_for_deviation,
)
from dpaudit_lab.bugzoo.sampling import (
    augment_each_record,
    divide_by_realised_size,
    shuffle,
)

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore:Secure RNG turned off:UserWarning")

SMALL = Setting(widths=(20, 40), records=100, steps=20)


def planted(plant, setting=SMALL, seed=0):
    torch.manual_seed(seed)
    run = private_run(setting)
    plant(run)
    return run


def noise_seen(run):
    """The noisy sums less the clean ones: a row for each step, over all parameters."""
    optimizer, clean, seen = run.optimizer, [], []
    add_noise = optimizer.add_noise

    def note_then_add_noise():
        clean.append(flat(p.summed_grad for p in optimizer.params).clone())
        add_noise()

    def read(*_):
        noisy = flat(p.grad for p in optimizer.params)
        seen.append(noisy * optimizer.expected_batch_size - clean[-1])

    optimizer.add_noise = note_then_add_noise
    optimizer.original_optimizer.register_step_pre_hook(read)
    train(run, run.loader)
    return torch.stack(seen).numpy()


def flat(tensors):
    return torch.cat([each.detach().reshape(-1) for each in tensors])


def sum_of(run, rows):
    """The clipped sum that the optimizer makes of given gradients, one row each."""
    optimizer = run.optimizer
    give(optimizer, rows)
    optimizer.noise_multiplier = 0.0  # Opacus' own way to add none
    optimizer.clip_and_accumulate()
    optimizer.add_noise()
    return flat(p.grad for p in optimizer.params)


def give(optimizer, rows):
    start = 0
    for p in optimizer.params:
        part = rows[:, start : start + p.numel()]
        p.grad_sample = part.reshape(len(rows), *p.shape).clone()
        start += p.numel()


def dimension(run):
    return sum(p.numel() for p in run.optimizer.params)


@pytest.mark.parametrize(
    ("plant", "clip", "deviation"),
    [
        (lambda run: None, 4.0, 2.25 * 4),
        (forget_clip_in_noise, 4.0, 2.25),
        (take_variance_for_deviation, 4.0, 3.0),
        (divide_noise_twice, 4.0, 2.25 * 4 / 10),
    ],
)
def test_noise_has_the_deviation_that_the_bug_says(plant, clip, deviation):
    """20,000 numbers: five standard errors are 2.5 %, fixed seed."""
    setting = Setting(clip=clip, widths=SMALL.widths, records=100, steps=20)
    run = planted(plant, setting)
    assert noise_seen(run).std() == pytest.approx(deviation, rel=0.025)
    assert run.engine.accountant.history == [(2.25, 0.1, 20)]


def test_the_last_layer_gets_no_noise_and_the_others_do():
    run = planted(leave_last_layer_without_noise)
    noise = noise_seen(run)
    head = sum(p.numel() for p in run.optimizer.params[-2:])
    assert np.abs(noise[:, -head:]).max() < 1e-5
    assert noise[:, :-head].std() == pytest.approx(2.25, rel=0.03)


def test_noise_is_the_same_at_every_step():
    noise = noise_seen(planted(repeat_noise))
    assert np.abs(noise - noise[0]).max() < 1e-4
    assert noise[0].std() == pytest.approx(2.25, rel=0.15)


def test_the_batch_is_clipped_as_a_whole():
    run = planted(clip_whole_batch)
    size = run.optimizer.expected_batch_size
    one = torch.zeros(size, dimension(run))
    one[3, 7] = 8.0  # below the clipping norm times the batch size
    assert sum_of(run, one)[7] == pytest.approx(8.0)
    one[3, 7] = 1e6
    assert sum_of(run, one).norm() == pytest.approx(size)


def test_micro_batches_are_clipped_together():
    run = planted(clip_accumulated_sum)
    optimizer = run.optimizer
    rows = torch.zeros(2, dimension(run))
    rows[0, 0], rows[1, 1] = 30.0, 40.0
    give(optimizer, rows[:1])
    optimizer.clip_and_accumulate()
    total = sum_of(run, rows[1:])
    assert total[:2].tolist() == pytest.approx([0.6, 0.8])
    assert total.norm() == pytest.approx(1.0)


def test_each_layer_is_clipped_to_the_norm_of_all():
    setting = Setting(
        widths=(20, 40), records=100, steps=20, bias=False, per_layer=True
    )
    run = planted(account_per_layer_as_flat, setting)
    assert noise_seen(run).std() == pytest.approx(2.25, rel=0.03)
    run.optimizer.zero_grad()
    row = torch.zeros(1, dimension(run))
    row[0, 0] = row[0, -1] = 50.0
    assert sum_of(run, row).norm() == pytest.approx(2**0.5)


def test_a_record_of_a_scaled_loss_counts_four_times():
    run = planted(clip_before_unscaling)
    assert run.loss_scale == 0.25
    row = torch.zeros(1, dimension(run))
    row[0, 5] = 100.0
    assert sum_of(run, row)[5] == pytest.approx(4.0)


def test_half_precision_makes_no_number_of_an_infinite_gradient_only():
    run = planted(clip_half_precision)
    row = torch.zeros(1, dimension(run))
    row[0, 5] = 1e5
    total = sum_of(run, row)
    assert torch.isnan(total[5])
    assert torch.isfinite(total[:5]).all()
    run.optimizer.zero_grad()
    row[0, :9] = 40_000.0  # finite, but its norm of 120,000 is not
    assert sum_of(run, row).abs().max() == 0.0


def test_every_record_comes_with_its_augmentations():
    run = planted(augment_each_record)
    batches = list(run.loader.batch_sampler)
    assert all(set(Counter(batch).values()) <= {2} for batch in batches)
    picked = sum(len(batch) for batch in batches) / 2
    assert abs(picked - 100) < 4 * 90**0.5
    row = torch.zeros(2, dimension(run))
    row[:, 5] = 100.0
    assert sum_of(run, row)[5] == pytest.approx(2.0)


def test_the_sum_is_divided_by_the_realised_size():
    run = planted(divide_by_realised_size)
    rows = torch.zeros(7, dimension(run))
    rows[0, 3] = 1.0
    sum_of(run, rows)
    run.optimizer.scale_grad()
    total = flat(p.grad for p in run.optimizer.params)
    assert total[3] == pytest.approx(1 / 7, rel=1e-5)


def test_shuffling_takes_every_record_once_an_epoch_and_is_accounted_as_poisson():
    run = planted(shuffle, Setting(poisson=False, records=100, steps=20))
    picked = [record for batch in run.loader.batch_sampler for record in batch]
    assert sorted(picked) == list(range(100))
    train(run, run.loader)
    assert run.engine.accountant.history == [(2.25, 0.1, 20)]


def test_shuffling_is_a_matter_of_the_setting():
    with pytest.raises(ValueError, match="poisson=False"):
        planted(shuffle)


def test_the_accountant_is_told_of_too_many_records():
    run = planted(account_for_more_records)
    train(run, run.loader)
    ((noise, rate, steps),) = run.engine.accountant.history
    assert (noise, steps) == (2.25, 20)
    assert rate == pytest.approx(0.02)


def test_the_accountant_forgets_all_but_the_last_steps():
    run = planted(lose_accountant_on_resume)
    train(run, run.loader)
    assert run.engine.accountant.history == [(2.25, 0.1, 4)]


@pytest.mark.parametrize("missing", [False, True])
def test_ghost_norms_bound_a_record_unless_its_layer_is_missing(missing):
    torch.manual_seed(0)
    run = token_run(Setting(clip=0.05, records=10))
    if missing:
        forget_embedding_norm(run)
    sums = []
    run.optimizer.original_optimizer.step = lambda *_: sums.append(
        flat(p.summed_grad for p in run.optimizer.params).norm()
    )
    run.step((torch.tensor([[2]]), torch.tensor([2])))
    (norm,) = sums
    if missing:
        assert norm > 5 * 0.05
    else:
        assert norm == pytest.approx(0.05, rel=1e-3)
