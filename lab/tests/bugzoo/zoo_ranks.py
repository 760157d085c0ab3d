"""Noise of a few steps on two ranks, with and without bugs."""

import torch
from torch import distributed

from dpaudit_lab.bugzoo.distributed import (
    add_noise_after_reduce,
    distributed_run,
    same_noise_in_every_shard,
)
from dpaudit_lab.bugzoo.honest import Setting, train

PLANTS = {
    "honest": lambda run: None,
    "noise-same-in-shards": same_noise_in_every_shard,
    "noise-after-reduce": add_noise_after_reduce,
}


def look_at_all(names, seed):
    """What is seen of each in turn, in the same two processes."""
    return {
        f"{name}: {what}": size
        for name in names.split()
        for what, size in look(name, seed).items()
    }


def look(name, seed):
    """The noise in the first parameter: its size on each rank, and its halves."""
    run = distributed_run(Setting(widths=(40, 200), records=40, steps=3), seed)
    PLANTS[name](run)
    optimizer = run.optimizer
    parameter = optimizer.params[0]
    add_noise = optimizer.add_noise
    clean, seen = [], []

    def note_then_add_noise():
        total = parameter.summed_grad.clone()
        distributed.all_reduce(total)
        clean.append(total.reshape(-1))
        add_noise()

    def read(*_):
        noisy = parameter.grad.reshape(-1) * optimizer.expected_batch_size * 2
        seen.append(noisy.detach() - clean[-1])

    optimizer.add_noise = note_then_add_noise
    optimizer.original_optimizer.register_step_pre_hook(read)
    train(run, run.loader)
    noise = torch.cat(seen)
    each = [torch.zeros_like(noise) for _ in range(2)]
    distributed.all_gather(each, noise)
    halves = each[0].reshape(3, 2, -1)
    return {
        "rank 0": float(each[0].std()),
        "rank 1": float(each[1].std()),
        "halves differ": float((halves[:, 0] - halves[:, 1]).std()),
    }
