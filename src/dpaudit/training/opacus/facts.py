"""What is read from Opacus' optimizer and loader, so that nobody is asked for it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.accountants import IAccountant
from opacus.optimizers import DPOptimizer
from opacus.optimizers.fsdpoptimizer_fast_gradient_clipping import (
    FSDPOptimizerFastGradientClipping,
)
from opacus.utils.uniform_sampler import (
    DistributedUniformWithReplacementSampler,
    UniformWithReplacementSampler,
)
from torch.utils.data import BatchSampler, DataLoader

from dpaudit.accounting.curves import HasHistory
from dpaudit.dpsgd.joining import Poisson
from dpaudit.dpsgd.shuffling import Shuffling
from dpaudit.errors import InvalidInputError
from dpaudit.training.opacus.places import Places, local
from dpaudit.training.reading import Sampling

__all__ = [
    "Facts",
    "clip_factors",
    "clipped_size",
    "divisor",
    "hooked_accountant",
    "is_sharded",
    "rank_and_world",
    "read_facts",
    "summed_grad",
]

Loader: TypeAlias = DataLoader[Any]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a run is set up to do.

    Attributes:
        noise: The noise multiplier.
        sampling: How the loader samples.
        accounted_rate: The rate that the accountant is told of: what the optimizer's
            hook says, or else one over the number of batches of an epoch.
        dimension: How many parameters are trained.
    """

    noise: float
    sampling: Sampling
    accounted_rate: float
    dimension: int

    @property
    def rate(self) -> float:
        """Chance of a record to join a step."""
        match self.sampling:
            case Poisson(rate=rate):
                return rate
            case Shuffling(batches=batches):
                return 1 / batches


def read_facts(optimizer: DPOptimizer, data_loader: Loader) -> Facts:
    """Return what an optimizer and a loader that Opacus made are set up to do."""
    if not isinstance(optimizer, DPOptimizer):
        raise InvalidInputError(
            "optimizer must be the one that make_private returned, got "
            f"{type(optimizer).__name__}"
        )
    return Facts(
        noise=float(optimizer.noise_multiplier),
        sampling=_sampling(data_loader),
        accounted_rate=_hooked_rate(optimizer) or 1 / len(data_loader),
        dimension=sum(parameter.numel() for parameter in optimizer.params),
    )


def divisor(optimizer: DPOptimizer) -> float:
    """Return what the noisy sum over all ranks was divided by."""
    if optimizer.loss_reduction == "sum":
        return 1.0
    _, world = rank_and_world(optimizer)
    each = optimizer.expected_batch_size * optimizer.accumulated_iterations
    return float(each * world)


def rank_and_world(optimizer: DPOptimizer) -> tuple[int, int]:
    """Return the number of this rank, and how many there are: 0 of 1 without others."""
    return int(getattr(optimizer, "rank", 0)), int(getattr(optimizer, "world_size", 1))


def is_sharded(optimizer: DPOptimizer) -> bool:
    """Return whether each rank holds a part of every parameter (FSDP)."""
    return isinstance(optimizer, FSDPOptimizerFastGradientClipping)


def summed_grad(optimizer: DPOptimizer, parameter: Any) -> Any:  # noqa: ANN401 (torch)
    """Return the clipped sum before noise, flat, to be written into."""
    if is_sharded(optimizer):
        return local(optimizer.grad_state[parameter]["summed_grad"]).view(-1)
    if not parameter.summed_grad.is_contiguous():
        parameter.summed_grad = parameter.summed_grad.contiguous()
    return parameter.summed_grad.view(-1)


def clip_factors(
    optimizer: DPOptimizer, grads: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Return by what each record's gradient of each parameter is to be multiplied."""
    norms = [grad.reshape(len(grad), -1).norm(2, dim=-1) for grad in grads]
    limits = getattr(optimizer, "max_grad_norms", None)
    if limits is None:
        whole = torch.stack(norms, dim=1).norm(2, dim=1)
        limits, norms = [optimizer.max_grad_norm] * len(grads), [whole] * len(grads)
    return [
        (limit / (norm + 1e-6)).clamp(max=1.0).to(grad.dtype)
        for limit, norm, grad in zip(limits, norms, grads, strict=True)
    ]


def clipped_size(
    optimizer: DPOptimizer, places: Places, norm: float
) -> NDArray[np.float64]:
    """Return what clipping leaves of a canary record at each coordinate.

    Args:
        optimizer: Opacus' optimizer.
        places: Where the canaries are.
        norm: Their norm before clipping, over the clipping norm, as is what is left.
    """
    limits = getattr(optimizer, "max_grad_norms", None)
    if limits is None:
        return np.full(places.coordinates, min(norm, 1.0))
    of_parameter = dict(zip(optimizer.params, limits, strict=True))
    left = np.zeros(places.coordinates)
    for place in places.places:
        limit = float(of_parameter[place.parameter]) / float(optimizer.max_grad_norm)
        left[place.which] += places.weight * min(norm * places.weight, limit)
    return left


def hooked_accountant(optimizer: DPOptimizer) -> HasHistory | None:
    """Return the accountant that Opacus' hook tells of each step, if it can be read."""
    found = _hooked(optimizer).get("self")
    return found if isinstance(found, IAccountant) else None


def _hooked_rate(optimizer: DPOptimizer) -> float | None:
    """Return the rate that Opacus' hook hands to its accountant, if it can be read."""
    rate = _hooked(optimizer).get("sample_rate")
    return rate if isinstance(rate, float) and 0 < rate <= 1 else None


def _hooked(optimizer: DPOptimizer) -> dict[str, Any]:
    """Return what Opacus' hook after each step holds on to."""
    hook = getattr(optimizer, "step_hook", None)
    names = getattr(getattr(hook, "__code__", None), "co_freevars", ())
    cells = getattr(hook, "__closure__", None) or ()
    return {name: cell.cell_contents for name, cell in zip(names, cells, strict=True)}


def _sampling(data_loader: Loader) -> Sampling:
    sampler: Any = getattr(data_loader, "batch_sampler", None)
    match sampler:
        case (
            UniformWithReplacementSampler() | DistributedUniformWithReplacementSampler()
        ):
            return Poisson(rate=float(sampler.sample_rate))
        case BatchSampler():
            size = int(sampler.batch_size)
            return Shuffling(batches=len(data_loader), records_per_batch=size)
        case _:
            raise InvalidInputError(
                "data_loader must be the loader that make_private returned, got "
                f"{type(data_loader).__name__} with {type(sampler).__name__}, of which "
                "it is not known how it samples"
            )
