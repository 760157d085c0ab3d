"""Reads the configuration of an Opacus run from its own objects.

From optimizer and loader: clipping, noise, sampling, mode. From the accountant: its
claim for the run, and any evident mismatch.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
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
from torch.distributed.tensor import DTensor
from torch.utils.data import BatchSampler, DataLoader

from dpaudit.accounting import accountant_curve
from dpaudit.accounting.curves import HasHistory
from dpaudit.dpsgd.sampling import Poisson
from dpaudit.dpsgd.shuffling import Shuffling
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.findings import Finding, inconclusive, noted
from dpaudit.privacy.guarantees import PrivacyCurve
from dpaudit.training.layout import Layout
from dpaudit.training.likelihoods import Sampling
from dpaudit.training.opacus.ranks import rank_and_world
from dpaudit.training.opacus.sampler import SampledBatches
from dpaudit.training.opacus.transfers import local

__all__ = [
    "Facts",
    "accountant_of",
    "batch_size",
    "claim_and_remarks",
    "clip_factors",
    "clipped_size",
    "counted_steps",
    "divisor",
    "held_here",
    "hooked_accountant",
    "is_sharded",
    "read_facts",
    "reported_epsilon",
    "steps_unseen",
    "summed_grad",
]


Loader: TypeAlias = DataLoader[Any]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The configuration of a run.

    Attributes:
        noise: The noise multiplier.
        sampling: How the loader samples.
        accounted_rate: The sampling rate given to the accountant: that of the
            optimizer's hook, or else one over the number of batches of an epoch.
        dimension: How many parameters are trained.
    """

    noise: float
    sampling: Sampling
    accounted_rate: float
    dimension: int

    @property
    def rate(self) -> float:
        """Probability that a record is sampled in a step."""
        match self.sampling:
            case Poisson(rate=rate):
                return rate
            case Shuffling(batches=batches):
                return 1 / batches


def read_facts(optimizer: DPOptimizer, data_loader: Loader) -> Facts:
    """Return the configuration of an optimizer and a loader made by Opacus."""
    if not isinstance(optimizer, DPOptimizer):
        raise InvalidInputError(
            "optimizer must be the one that make_private returned, got "
            f"{type(optimizer).__name__}"
        )
    if any(parameter.is_meta for parameter in optimizer.params):
        raise InvalidInputError(
            "the model is on the meta device, which holds no weights, so that nothing "
            "can be trained or audited; move it to a real device and give it weights "
            "before make_private (model.to_empty(device=...), then load or initialise)"
        )
    _check_not_split(optimizer)
    return Facts(
        noise=float(optimizer.noise_multiplier),
        sampling=_sampling(data_loader),
        accounted_rate=_hooked_rate(optimizer) or 1 / len(data_loader),
        dimension=sum(parameter.numel() for parameter in optimizer.params),
    )


def _check_not_split(optimizer: DPOptimizer) -> None:
    """Refuse parameters that tensor parallelism splits over ranks.

    Opacus' hooks for such models mark the parameters.
    """
    split = [each for each in optimizer.params if isinstance(each, DTensor)]
    marked = any(hasattr(each, "merge_flag") for each in split)
    if split and (marked or not is_sharded(optimizer)):
        raise InvalidInputError(
            "the model is tensor parallel (parallelize_module), so that no rank holds "
            "a sum, and what noise it should have on each rank is not known; audit the "
            "same training in one process, or shard the model with FSDP and "
            "grad_sample_mode='ghost_fsdp'"
        )


def batch_size(data_loader: Loader) -> int:
    """Return how many records a batch has, on average."""
    records: int = len(data_loader.dataset)  # type: ignore[arg-type]
    match _sampling(data_loader):
        case Poisson(rate=rate):
            return max(1, round(rate * records))
        case Shuffling(batches=batches):
            return max(1, records // batches)


def divisor(optimizer: DPOptimizer) -> float:
    """Return the number by which the noisy sum over all ranks was divided."""
    if optimizer.loss_reduction == "sum":
        return 1.0
    _, world = rank_and_world(optimizer)
    each = optimizer.expected_batch_size * optimizer.accumulated_iterations
    return float(each * world)


def is_sharded(optimizer: DPOptimizer) -> bool:
    """Return whether each rank holds a part of every parameter (FSDP)."""
    return isinstance(optimizer, FSDPOptimizerFastGradientClipping)


def held_here(layout: Layout, parameters: Sequence[torch.Tensor]) -> Layout:
    """Return this rank's part of a layout, with offsets in this rank's tensors.

    A sharded parameter (FSDP) is split by rows, some on each rank.
    """
    parts = []
    for part in layout.parts:
        parameter = parameters[part.array]
        if isinstance(parameter, DTensor):
            start, stop = _rows_held(parameter)
            here = (part.offsets >= start) & (part.offsets < stop)
            part = replace(  # noqa: PLW2901 (its part on this rank)
                part, which=part.which[here], offsets=part.offsets[here] - start
            )
        parts.append(part)
    return replace(layout, parts=tuple(parts))


def _rows_held(parameter: DTensor) -> tuple[int, int]:
    """Return which flat coordinates of a parameter this rank holds."""
    mesh, held = parameter.device_mesh, local(parameter)
    rows = parameter.shape[0] if parameter.dim() else 1
    size = parameter.numel() // max(rows, 1)
    each = -(-rows // mesh.size())  # as torch.chunk divides them
    start = min(mesh.get_local_rank() * each, rows) * size
    by_rows = all(placement.is_shard(0) for placement in parameter.placements)
    expected = (min((mesh.get_local_rank() + 1) * each, rows) * size) - start
    if mesh.ndim != 1 or not by_rows or held.numel() != expected:
        raise InvalidInputError(
            "canaries can be put into parameters that are sharded by rows over one "
            f"dimension of ranks, as fully_shard does; got {parameter.placements} on "
            f"{mesh}"
        )
    return start, start + expected


def summed_grad(optimizer: DPOptimizer, parameter: Any) -> Any:  # noqa: ANN401 (torch)
    """Return the clipped sum before noise, as a flat view to write into."""
    if is_sharded(optimizer):
        return local(optimizer.grad_state[parameter]["summed_grad"]).view(-1)
    if not parameter.summed_grad.is_contiguous():
        parameter.summed_grad = parameter.summed_grad.contiguous()
    return parameter.summed_grad.view(-1)


def clip_factors(
    optimizer: DPOptimizer, grads: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Return the factor that clips each record's gradient of each parameter."""
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
    optimizer: DPOptimizer, layout: Layout, norms: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the norm of a canary record after clipping, at each coordinate.

    Args:
        optimizer: Opacus' optimizer.
        layout: Positions of the canaries.
        norms: The norm of each before clipping; both are over the clipping norm.
    """
    limits = getattr(optimizer, "max_grad_norms", None)
    if limits is None:
        return np.minimum(norms, 1.0)
    left = np.zeros(layout.coordinates)
    for part in layout.parts:
        limit = float(limits[part.array]) / float(optimizer.max_grad_norm)
        here = norms[part.which] * layout.weight
        left[part.which] += layout.weight * np.minimum(here, limit)
    return left


def accountant_of(given: object) -> HasHistory | None:
    """Return an accountant, given it or the engine that holds it.

    Raises if it is neither, before training rather than after it.
    """
    accountant: Any = getattr(given, "accountant", given)
    if accountant is None or hasattr(accountant, "history"):
        return accountant  # type: ignore[no-any-return]
    raise InvalidInputError(
        "accountant must be the privacy engine or its accountant "
        f"(engine.accountant), got {type(given).__name__}"
    )


def hooked_accountant(optimizer: DPOptimizer) -> HasHistory | None:
    """Return the accountant that Opacus' hook updates in each step, if readable."""
    accountant = _hooked(optimizer).get("self")
    return accountant if isinstance(accountant, IAccountant) else None


def _hooked_rate(optimizer: DPOptimizer) -> float | None:
    """Return the rate that Opacus' hook passes to its accountant, if readable."""
    rate = _hooked(optimizer).get("sample_rate")
    return rate if isinstance(rate, float) and 0 < rate <= 1 else None


def _hooked(optimizer: DPOptimizer) -> dict[str, Any]:
    """Return the closure variables of Opacus' hook after each step."""
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
        case SampledBatches():
            raise InvalidRunError(
                "this loader already has an audit attached; call finish() or detach() "
                "of that audit first, or make the loader anew"
            )
        case _:
            raise InvalidInputError(
                "data_loader must be the loader that make_private returned, got "
                f"{type(data_loader).__name__} with {type(sampler).__name__}, of which "
                "it is not known how it samples"
            )


def counted_steps(accountant: HasHistory | None) -> int:
    """Return how many steps an accountant has counted; 0 without one."""
    if accountant is None:
        return 0
    return sum(int(each) for _, _, each in accountant.history)


def steps_unseen(accountant: HasHistory | None, *, steps: int) -> tuple[Finding, ...]:
    """Return a finding if an accountant counted more steps than the audit observed.

    Its claim covers all of them; the others were not checked.
    """
    counted = counted_steps(accountant)
    if counted <= steps:
        return ()
    return (inconclusive("steps_unseen", unseen=counted - steps, counted=counted),)


def reported_epsilon(accountant: HasHistory | None, delta: float) -> float | None:
    """Return the epsilon that an accountant itself reports; None if it has none.

    Its errors and warnings are ignored, as the tested claim does not rest on it.
    """
    report = getattr(accountant, "get_epsilon", None)
    if report is None or not delta or not counted_steps(accountant):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            epsilon = float(report(delta=delta))
    except Exception:
        return None
    return epsilon if isfinite(epsilon) and epsilon >= 0 else None


def claim_and_remarks(
    accountant: HasHistory | None, *, rate: float
) -> tuple[PrivacyCurve | None, tuple[Finding, ...]]:
    """Return the accountant's whole privacy curve, and remarks on it.

    Args:
        accountant: The privacy engine's accountant; None if it was not given.
        rate: The rate at which the loader samples.
    """
    if accountant is None:
        return None, ()
    history, remarks = accountant.history, list[Finding]()
    rates = sorted(float(each) for _, each, _ in history)
    if rates and rates[-1] > rate * (1 + 1e-3):
        remarks.append(noted("accounting.higher_rate", accounted=rates[-1], rate=rate))
    try:
        return (accountant_curve(history) if history else None), tuple(remarks)
    except InvalidInputError as error:
        remarks.append(noted("accounting.not_a_claim", error=str(error)))
        return None, tuple(remarks)
