"""Two processes that train together on one machine, over gloo.

``FSDP2Wrapper`` of Opacus 1.6 has no argument for the devices and so takes
accelerators; ``sharded`` hands it a mesh of processors instead.
"""

import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import distributed, nn

__all__ = ["RANKS", "on_ranks", "sharded"]

RANKS = 2


def on_ranks(function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401
    """Run a function of a script here on every rank, and return what rank 0 returns.

    Arguments and result are plain values, which JSON can carry. The ranks are processes
    of their own, so that it does not matter what kind of process asks for them.
    """
    call = json.dumps([function.__module__, function.__name__, arguments])
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen([sys.executable, __file__, folder, str(rank), call])
            for rank in range(RANKS)
        ]
        try:
            if any([rank.wait() for rank in ranks]):  # a list: wait for all
                raise RuntimeError(f"a rank failed in {function.__name__}{arguments}")
        finally:
            for rank in ranks:
                rank.kill()
        return json.loads((Path(folder) / "result").read_text(encoding="utf-8"))


def _one_rank(folder: str, rank: int, call: str) -> None:
    module, name, arguments = json.loads(call)
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS
    )
    result = getattr(importlib.import_module(module), name)(*arguments)
    if rank == 0:
        (Path(folder) / "result").write_text(json.dumps(result), encoding="utf-8")
    distributed.barrier()
    distributed.destroy_process_group()


def sharded(model: nn.Module) -> nn.Module:
    """Shard a model's parameters over the ranks with Opacus' FSDP2 wrapper."""
    from opacus.utils import fsdp_utils  # noqa: PLC0415 (needs a torch with FSDP2)
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415

    mesh = init_device_mesh("cpu", (RANKS,))
    shard = partial(fsdp_utils.fully_shard, mesh=mesh)
    with mock.patch.object(fsdp_utils, "fully_shard", shard):
        return fsdp_utils.FSDP2Wrapper(model)


if __name__ == "__main__":
    _one_rank(sys.argv[1], int(sys.argv[2]), sys.argv[3])
