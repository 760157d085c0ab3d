"""What the ranks of a distributed run share: the key, sums, and guesses."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.optimizers import DPOptimizer
from torch import distributed
from torch.distributed.tensor import DTensor

from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.coins import Key
from dpaudit.game.design import Commitment
from dpaudit.training.audit import Gather

__all__ = [
    "check_commitments",
    "check_shares",
    "gathered",
    "local",
    "rank_and_world",
    "shared_key",
    "summed_over_ranks",
]


def rank_and_world(optimizer: DPOptimizer) -> tuple[int, int]:
    """Return this rank's number and the number of ranks: 0 and 1 without others."""
    return int(getattr(optimizer, "rank", 0)), int(getattr(optimizer, "world_size", 1))


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a tensor, which is all of it if not sharded."""
    if isinstance(tensor, DTensor):
        held: torch.Tensor = tensor.to_local()
        return held
    return tensor


def shared_key(device: str | torch.device = "cpu") -> Key:
    """Return a new key, the same on every rank; without ranks, just a new key.

    Args:
        device: A device from which the process group can send: ``"cuda"`` for nccl.
    """
    key = Key.generate()
    if not distributed.is_initialized():
        return key
    sent = torch.frombuffer(bytearray(key.secret), dtype=torch.uint8).to(device)
    distributed.broadcast(sent, src=0)
    return Key(bytes(sent.cpu().tolist()))


def check_shares(coordinates: int, gather: Gather) -> None:
    """Raise if some rank has no coordinate to read.

    All ranks raise together, so that none waits for another.

    Args:
        coordinates: How many coordinates this rank reads.
        gather: Gathers numbers from all ranks.
    """
    if gather(np.array([coordinates])).min() == 0:
        raise InvalidInputError(
            "some rank would have no canary coordinate to read; use more canaries"
        )


def check_commitments(commitment: Commitment, gather: Gather) -> None:
    """Raise on all ranks if their keys or designs differ."""
    own = np.frombuffer(bytes.fromhex(commitment.sha256), np.uint8)
    if len(np.unique(gather(own).reshape(-1, len(own)), axis=0)) > 1:
        raise InvalidRunError(
            "ranks have different keys or designs; make one key for all of them with "
            "shared_key()"
        )


def summed_over_ranks(
    values: NDArray[np.float64], device: torch.device
) -> NDArray[np.float64]:
    """Return the sum of all ranks' values."""
    sent = torch.from_numpy(values).to(device)
    distributed.all_reduce(sent)
    return np.array(sent.cpu().numpy())


def gathered(values: NDArray[Any], device: torch.device) -> NDArray[Any]:
    """Return the values of all ranks, one rank after the other."""
    world = distributed.get_world_size()
    size = torch.tensor([len(values)], device=device)
    sizes = [torch.zeros_like(size) for _ in range(world)]
    distributed.all_gather(sizes, size)
    most = max(int(each) for each in sizes)
    padded = np.zeros(most, values.dtype)
    padded[: len(values)] = values
    mine = torch.from_numpy(padded).to(device)
    parts = [torch.zeros_like(mine) for _ in range(world)]
    distributed.all_gather(parts, mine)
    return np.concatenate(
        [part.cpu().numpy()[: int(n)] for part, n in zip(parts, sizes, strict=True)]
    )
