"""Noise of a tensor-parallel model under Opacus' hooks and sharded optimizer.

    python lab/findings/opacus_tensor_parallel.py

Each of two gloo processes prints the deviation of the noise on its part of a weight,
over noise multiplier times clipping norm, for both loss reductions.
"""

import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from opacus.grad_sample.utils import prepare_module
from opacus.optimizers import FSDPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import distributed, multiprocessing, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

NOISE, CLIP, BATCH, RANKS = 1.5, 1.0, 20, 2


def measured(reduction: str) -> float:
    """Return the noise's deviation in one step, over what it should be."""
    torch.manual_seed(0)
    layers = nn.Linear(300, 400, bias=False), nn.ReLU(), nn.Linear(400, 4, bias=False)
    whole = ColwiseParallel(output_layouts=Replicate())
    mesh = init_device_mesh("cpu", (RANKS,))
    model = parallelize_module(nn.Sequential(*layers), mesh, {"0": whole, "2": whole})
    named: dict[str, Any] = {"max_grad_norm": CLIP, "loss_reduction": reduction}
    hooks = prepare_module(model, "ghost_tp", wrap_model=False, **named)
    optimizer = FSDPOptimizerFastGradientClipping(
        torch.optim.SGD(model.parameters(), lr=0.01),
        noise_multiplier=NOISE,
        expected_batch_size=BATCH,
        **named,
    )
    own = nn.CrossEntropyLoss(reduction=reduction)
    criterion = DPLossFastGradientClipping(hooks, optimizer, own, reduction)
    optimizer.zero_grad()
    loss = criterion(model(torch.randn(BATCH, 300)), torch.randint(4, (BATCH,)))
    loss.backward()
    optimizer.step()
    weight = optimizer.params[0]
    before = optimizer.grad_state[weight]["summed_grad"].to_local()
    times = BATCH if reduction == "mean" else 1
    return float((times * weight.grad.to_local() - before).std() / (NOISE * CLIP))


def main(rank: int, init: Path) -> None:
    """Measure on one rank."""
    warnings.simplefilter("ignore")
    distributed.init_process_group(
        "gloo", init_method=f"file://{init}", rank=rank, world_size=RANKS
    )
    for reduction in ("mean", "sum"):
        print(f"rank {rank}, {reduction}: {measured(reduction):.3f}")
    distributed.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(main, (Path(folder) / "init",), nprocs=RANKS)
