"""What an onlooker sees of a run of Opacus: each step's sum, before and after noise.

It knows nothing of an audit that may ride on the same run, and shares no code with it.
Attach it first: then an audit that wraps ``add_noise`` as well wraps this, and the sum
is read when it is complete.
"""

from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, distributed

__all__ = ["Watch", "slope"]


@final
class Watch:
    """Keeps all noisy sums of a run, over the clipping norm, and all noise.

    Attributes:
        noisy: In row of the step, what the wrapped optimizer is about to apply, as the
            sum over the records of all ranks, all parameters one after the other.
        noise: That less the sum as it was before noise.
    """

    def __init__(self, optimizer: Any) -> None:  # noqa: ANN401 (five classes of Opacus)
        self.noisy: list[NDArray[np.float32]] = []
        self.noise: list[NDArray[np.float32]] = []
        self._optimizer, self._add_noise = optimizer, optimizer.add_noise
        self._sharded = hasattr(optimizer, "grad_state")
        self._ranks = int(getattr(optimizer, "world_size", 1))
        optimizer.add_noise = self._before_noise
        optimizer.original_optimizer.register_step_pre_hook(self._before_step)

    def _before_noise(self) -> None:
        state = self._optimizer.grad_state if self._sharded else None
        sums = [
            p.summed_grad if state is None else state[p]["summed_grad"]
            for p in self._optimizer.params
        ]
        self._sum = _flat(sums)
        if self._sharded:
            self._sum *= self._ranks  # a mean over ranks
        elif self._ranks > 1:
            distributed.all_reduce(self._sum)
        self._add_noise()

    def _before_step(self, *_: object) -> None:
        opt = self._optimizer
        noisy = _flat([p.grad for p in opt.params]) * self._ranks
        if opt.loss_reduction == "mean":
            noisy *= opt.expected_batch_size * opt.accumulated_iterations
        self.noisy.append((noisy / opt.max_grad_norm).numpy())
        self.noise.append(((noisy - self._sum) / opt.max_grad_norm).numpy())


def _flat(parts: list[Any]) -> Tensor:
    """Return all parts as one vector of its own; those of all ranks, if sharded."""
    whole = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in parts]
    return torch.cat([part.detach().reshape(-1).clone() for part in whole])


def slope(values: NDArray[Any], present: NDArray[Any]) -> tuple[float, float]:
    """Return the least-squares slope of values on presence, and its standard error."""
    x = present - np.mean(present)
    found = np.sum(x * values) / np.sum(x * x)
    rest = values - np.mean(values) - found * x
    variance = np.sum(rest * rest) / (rest.size - 2)
    return float(found), float(np.sqrt(variance / np.sum(x * x)))
