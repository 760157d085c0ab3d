"""What each of two ranks does in the tests of distributed training, as a program.

python ranks.py RANK WORLD INIT_FILE OUT

It trains under audit in each mode and writes what this rank found.
"""

import json
import sys
import warnings
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from opacus import distributed as opacus_distributed
from opacus.utils import fsdp_utils
from private_runs import CANARIES, Eye, Fetched, attach, private_run
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from dpaudit.game.text.findings import sentence, sentences
from dpaudit.training.opacus import shared_key
from dpaudit.training.participation_draws import ParticipationDraws

STEPS = 30
MODES = {
    "ddp": "hooks",
    "ddp-ghost": "ghost",
    "ddp-records": "hooks",
    "fsdp": "ghost_fsdp",
}


def replicated(model):
    return opacus_distributed.DifferentiallyPrivateDistributedDataParallel(model)


def sharded(model):
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    # Opacus' wrapper takes no mesh, and would look for an accelerator.
    fsdp_utils.fully_shard = partial(fully_shard, mesh=mesh)
    return fsdp_utils.FSDP2Wrapper(model)


def train(mode, rank):
    key = shared_key()
    records = CANARIES if mode == "ddp-records" else 0
    run = private_run(
        mode=MODES[mode],
        wrap=sharded if mode == "fsdp" else replicated,
        canaries=records,
    )
    torch.manual_seed(1000 + rank)  # ranks draw their own batches and noise
    audit = attach(run, key=key)
    divisor = (200 + records) // 10
    eye = Eye(run.optimizer, coordinates=CANARIES, divisor=divisor, key=key)
    with pytest.MonkeyPatch.context() as patch:
        fetched = Fetched(run, patch)
        run.train(audit.data_loader, steps=STEPS)
    result = audit.finish()
    draws = ParticipationDraws(
        key=key, canaries=CANARIES, per_coordinate=1, sample_rate=0.1
    )
    joined = (
        fetched.joined if records else [draws.contributions(t) for t in range(STEPS)]
    )
    return {
        "seen": np.array(eye.seen).tolist(),
        "held": eye.layout.held().tolist(),
        "included": draws.included.tolist(),
        "joined": np.array(joined).tolist(),
        "transcript": result.transcript.to_json(),
        "signal": asdict(result.training.signal),
        "faults": [sentence(fault) for fault in result.faults],
        "checks": [
            sentences(each.findings) for each in result.training.coverage.checks
        ],
        "epsilon": run.engine.get_epsilon(1e-5),
    }


def main(rank, world, init, out):
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{init}", rank=int(rank), world_size=int(world)
    )
    found = {mode: train(mode, int(rank)) for mode in MODES}
    Path(out).write_text(json.dumps(found), encoding="utf-8")
    distributed.destroy_process_group()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*sys.argv[1:])
