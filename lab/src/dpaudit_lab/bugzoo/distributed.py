"""Bugs that need two ranks: noise that ranks share, or do not share.

Opacus lets rank 0 alone add noise before gradients are summed over ranks, which is
right. Dividing that work is natural, and goes wrong in two ways. Both are planted in
Opacus' distributed optimizer on two gloo processes.
"""

from typing import Any

import torch
from opacus import PrivacyEngine
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from opacus.optimizers.optimizer import _generate_noise
from torch.utils.data import DataLoader, TensorDataset

from dpaudit.game.coins import Key
from dpaudit.game.design import Design
from dpaudit.training.any_loop import SumsAudit
from dpaudit.training.opacus.setup import divisor
from dpaudit_lab.bugzoo.honest import CLASSES, Run, Setting, network

__all__ = [
    "add_noise_after_reduce",
    "distributed_run",
    "paired_audit",
    "same_noise_in_every_shard",
]


def distributed_run(setting: Setting, seed: int) -> Run:
    """Return this rank's part of a run that Opacus made private."""
    torch.manual_seed(seed)
    features = torch.randn(setting.records, setting.widths[0])
    labels = torch.randint(CLASSES, (setting.records,))
    data = TensorDataset(features, labels)
    model = DifferentiallyPrivateDistributedDataParallel(network(setting))
    engine = PrivacyEngine()
    private, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(data, batch_size=-(-len(data) // setting.batches)),
        noise_multiplier=setting.noise,
        max_grad_norm=setting.clip,
    )
    # Ranks draw their own batches.
    torch.manual_seed(2 * seed + torch.distributed.get_rank())
    return Run(
        setting=setting,
        model=private,
        optimizer=optimizer,
        loader=loader,
        engine=engine,
    )


def same_noise_in_every_shard(run: Run) -> None:
    """Let each rank add noise to its half of every parameter, all from one seed."""
    optimizer: Any = run.optimizer
    generator = torch.Generator().manual_seed(1)  # the same on every rank

    def add_noise_to_own_half() -> None:
        for parameter in optimizer.params:
            total = parameter.summed_grad.reshape(-1).clone()
            half = -(-len(total) // 2)
            own = total[:half] if optimizer.rank == 0 else total[half:]
            noise = _generate_noise(
                std=optimizer.noise_multiplier * optimizer.max_grad_norm,
                reference=total[:half],
                generator=generator,
            )
            own += noise[: len(own)]
            parameter.grad = total.view_as(parameter)

    optimizer.add_noise = add_noise_to_own_half


def add_noise_after_reduce(run: Run) -> None:
    """Sum clipped gradients over ranks first, and add noise on rank 0 only."""
    optimizer: Any = run.optimizer
    reduce = optimizer.reduce_gradients

    def add_none() -> None:
        for parameter in optimizer.params:
            parameter.grad = parameter.summed_grad.view_as(parameter).clone()

    def reduce_then_add_noise() -> None:
        reduce()
        if optimizer.rank == 0:
            std = optimizer.noise_multiplier * optimizer.max_grad_norm
            for parameter in optimizer.params:
                noise = _generate_noise(std=std, reference=parameter.grad)
                parameter.grad += noise / divisor(optimizer)

    optimizer.add_noise = add_none
    optimizer.reduce_gradients = reduce_then_add_noise


def paired_audit(run: Run, *, design: Design, key: Key) -> SumsAudit:
    """Attach an audit of the first parameter that compares its halves.

    Canaries live in the first half, and rank 0 puts them into its sums. What the noisy
    sum shows there is read less what it shows at the same place of the second half: a
    reading for noise that shards share.
    """
    optimizer: Any = run.optimizer
    parameter = optimizer.params[0]
    half = parameter.numel() // 2
    audit = SumsAudit(
        design=design, key=key, dimension=half, sample_rate=run.setting.rate
    )
    places = torch.from_numpy(audit.coordinates)
    add_noise = optimizer.add_noise

    def insert_then_add_noise() -> None:
        joining = torch.from_numpy(optimizer.max_grad_norm * audit.contributions())
        if optimizer.rank == 0:
            total = parameter.summed_grad.view(-1)
            total.index_add_(0, places, joining.to(total))
        add_noise()

    def read(*_: object) -> None:
        noisy = parameter.grad.detach().reshape(-1).double()
        seen = noisy[places] - noisy[places + half]
        unit = optimizer.max_grad_norm / divisor(optimizer)
        audit.observe((seen / unit).numpy())

    optimizer.add_noise = insert_then_add_noise
    optimizer.original_optimizer.register_step_pre_hook(read)
    return audit
