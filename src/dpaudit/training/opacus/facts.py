"""What is read from Opacus' optimizer and loader, so that nobody is asked for it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import torch
from opacus.optimizers import DPOptimizer
from opacus.optimizers.fsdpoptimizer_fast_gradient_clipping import (
    FSDPOptimizerFastGradientClipping,
)
from opacus.utils.uniform_sampler import (
    DistributedUniformWithReplacementSampler,
    UniformWithReplacementSampler,
)
from torch.utils.data import BatchSampler, DataLoader

from dpaudit.dpsgd.joining import Poisson
from dpaudit.dpsgd.shuffling import Shuffling
from dpaudit.errors import InvalidInputError
from dpaudit.training.opacus.places import local
from dpaudit.training.reading import Sampling

__all__ = [
    "Facts",
    "clip_factors",
    "divisor",
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


def _hooked_rate(optimizer: DPOptimizer) -> float | None:
    """Return the rate that Opacus' hook hands to its accountant, if it can be read."""
    hook = getattr(optimizer, "step_hook", None)
    names = getattr(getattr(hook, "__code__", None), "co_freevars", ())
    cells = getattr(hook, "__closure__", None) or ()
    kept = {name: cell.cell_contents for name, cell in zip(names, cells, strict=True)}
    rate = kept.get("sample_rate")
    return rate if isinstance(rate, float) and 0 < rate <= 1 else None


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
