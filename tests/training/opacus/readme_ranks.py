"""What each rank does in the tests of README's code under DDP, as a program.

python readme_ranks.py RANK WORLD INIT_FILE OUT CASE

With a world of 1 there is no process group and no DDP.
"""

import json
import os
import signal
import sys
import warnings
from datetime import timedelta
from pathlib import Path

import torch
from opacus import PrivacyEngine
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from dpaudit import audit_opacus
from dpaudit.testing import fixed_key
from dpaudit.training.opacus import ranks

STEPS, EPOCHS = 60, 3


def private(rank, world, case):
    """README's model, optimizer and loader, with noise from a seed."""
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(
        torch.randn(2000, 20), torch.randint(2, (2000,))
    )
    layers = torch.nn.Linear(20, 100), torch.nn.ReLU(), torch.nn.Linear(100, 2)
    model = torch.nn.Sequential(*layers)
    if world > 1:
        native = DistributedDataParallel
        wrap = DifferentiallyPrivateDistributedDataParallel
        model = (native if case == "native" else wrap)(model)
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=torch.utils.data.DataLoader(data, batch_size=100),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        noise_generator=torch.Generator().manual_seed(7 + rank),
    )
    torch.manual_seed(100 + rank)  # of the batches that this rank draws
    return engine, model, optimizer, loader


def plant(case, rank, model, optimizer):
    """A fault of one kind, on one rank where that is possible."""
    own = optimizer.add_noise, optimizer.clip_and_accumulate
    if case == "less noise" and rank == 0:

        def less():
            optimizer.noise_multiplier /= 2
            own[0]()
            optimizer.noise_multiplier *= 2

        optimizer.add_noise = less
    elif case == "clipping" and rank == 1:

        def wide():
            optimizer.max_grad_norm *= 3
            own[1]()
            optimizer.max_grad_norm /= 3

        optimizer.clip_and_accumulate = wide
    elif case == "buffer" and rank == 1:
        model.register_buffer("seen", torch.zeros(1))


def groups():
    """The default process group, and all that there are."""
    world = distributed.distributed_c10d._world
    return world.default_pg, [*world.pg_map], [*world.pg_names.values()]


def main(rank, world, init, out, case):
    torch.set_num_threads(1)
    rank, world = int(rank), int(world)
    if world > 1:
        distributed.init_process_group(
            "gloo",
            init_method=f"file://{init}",
            rank=rank,
            world_size=world,
            timeout=timedelta(seconds=60),
        )
        ranks._LONGEST_WAIT = timedelta(seconds=20)
    before, found = groups(), None
    engine, model, optimizer, loader = private(rank, world, case)
    plant(case, rank, model, optimizer)
    if case == "every rank draws from all":
        sampler = loader.batch_sampler
        sampler.num_replicas, sampler.rank = 1, 0
        sampler.num_samples = sampler.total_size

    def step(batch):
        x, y = batch
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        if case == "buffer" and rank == 1:
            model.seen += x.sum()
        if case == "logged" and world > 1:
            distributed.all_reduce(loss.detach())
        if case == "reworked":
            if optimizer.pre_step():
                if world > 1:
                    optimizer.reduce_gradients()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
                optimizer.original_optimizer.step()
            return
        optimizer.step()

    said = []
    audit = audit_opacus(
        engine,
        model,
        optimizer,
        loader,
        epochs=EPOCHS,
        delta=1e-5,
        step=step,
        key=fixed_key(bytes(range(32))),
        announce=said.append,
    )
    made = 0
    try:
        for batch in (batch for _ in range(EPOCHS) for batch in loader):
            step(batch)
            made += 1
            if case == "killed" and made == 10 and rank == world - 1:
                os.kill(os.getpid(), signal.SIGKILL)
            if case == "killed late" and made == STEPS and rank == world - 1:
                os.kill(os.getpid(), signal.SIGKILL)
    except RuntimeError as error:  # of the loop's own exchange
        found = str(error)
    result = audit.finish()
    written = {
        "verdict": str(result.verdict),
        "bound": float(result.bound.epsilon_lower),
        "reason": result.reason,
        "details": result.details(),
        "faults": [fault.code for fault in result.faults],
        "transcript": result.transcript.to_json(),
        "said": said,
        "steps": made,
        "error": found,
        "groups": before == groups(),
    }
    Path(out).write_text(json.dumps(written), encoding="utf-8")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*sys.argv[1:])
