"""A function on two gloo processes, and what its first rank returns.

The processes are forked from a server that has imported torch and Opacus once, which
takes seconds, and has done nothing else.
"""

import json
import tempfile
import warnings
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path
from typing import TypeAlias

import torch
from torch import distributed
from torch.multiprocessing.spawn import start_processes

__all__ = ["Plain", "on_two_ranks"]

Plain: TypeAlias = dict[str, str | int | float]

_WORLD = 2
_PRELOADED = "dpaudit.training.opacus"


def on_two_ranks(function: Callable[[str, int], Plain], name: str, seed: int) -> Plain:
    """Return what rank 0 makes of a name and a seed, with another rank beside it.

    Args:
        function: Importable by name, as each process is a new one.
        name: Its first argument.
        seed: Its second.
    """
    forkserver.set_forkserver_preload([_PRELOADED])
    with tempfile.TemporaryDirectory() as folder:
        start_processes(  # type: ignore[no-untyped-call]
            _rank,
            args=(folder, function, name, seed),
            nprocs=_WORLD,
            start_method="forkserver",
        )
        found: Plain = json.loads((Path(folder) / "found").read_text(encoding="utf-8"))
    return found


def _rank(
    rank: int,
    folder: str,
    function: Callable[[str, int], Plain],
    name: str,
    seed: int,
) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=_WORLD,
    )
    try:
        found = function(name, seed)
        if rank == 0:
            (Path(folder) / "found").write_text(json.dumps(found), encoding="utf-8")
        distributed.barrier()
    finally:
        distributed.destroy_process_group()
