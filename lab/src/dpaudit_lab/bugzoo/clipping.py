"""Bugs in the clipping: what is clipped, to which norm, and when.

All of them replace ``clip_and_accumulate`` of one optimizer, or tell it wrong things.
"""

from collections.abc import Collection
from math import sqrt
from typing import Any

import torch

from dpaudit_lab.bugzoo.honest import Run
from dpaudit_lab.bugzoo.noise import last_layer

__all__ = [
    "account_per_layer_as_flat",
    "add_last_layer_unclipped",
    "clip_accumulated_sum",
    "clip_before_unscaling",
    "clip_half_precision",
    "clip_to_larger_norm",
    "clip_whole_batch",
    "forget_norm_of_last_layer",
    "leave_unclipped",
]


def clip_whole_batch(run: Run) -> None:
    """Clip the mean of the batch to C instead of each record's gradient."""
    optimizer: Any = run.optimizer

    def sum_then_clip() -> None:
        _accumulate_raw(optimizer)
        most = optimizer.max_grad_norm * optimizer.expected_batch_size
        _shrink_sum(optimizer, most)

    optimizer.clip_and_accumulate = sum_then_clip


def clip_accumulated_sum(run: Run) -> None:
    """Accumulate micro-batches as they are, and clip their sum to C before noise."""
    optimizer: Any = run.optimizer
    add_noise = optimizer.add_noise

    def clip_then_add_noise() -> None:
        _shrink_sum(optimizer, optimizer.max_grad_norm)
        add_noise()

    optimizer.clip_and_accumulate = lambda: _accumulate_raw(optimizer)
    optimizer.add_noise = clip_then_add_noise


def account_per_layer_as_flat(run: Run) -> None:
    """Clip every parameter's gradient to C, and add noise as if all of it were C.

    Opacus' own per-layer optimizer knows better: its ``max_grad_norm`` is the root of
    the number of parameters times C. Here it is told C.
    """
    run.optimizer.max_grad_norm = run.setting.clip


def clip_before_unscaling(run: Run, *, scale: float = 0.25) -> None:
    """Clip gradients of a scaled loss, and divide their sum by the scale before noise.

    The loss is multiplied by the scale: a loss scaler that has backed off below one, or
    a loss divided by the number of accumulation steps.
    """
    optimizer: Any = run.optimizer
    run.loss_scale = scale
    clip = optimizer.clip_and_accumulate

    def clip_then_unscale() -> None:
        clip()
        for parameter in optimizer.params:
            parameter.summed_grad /= scale

    optimizer.clip_and_accumulate = clip_then_unscale


def clip_half_precision(run: Run) -> None:
    """Hand gradients to the clipping in half precision, as a mixed backward does.

    What is beyond 65504 is infinite there, and so is its norm. The clipping then
    multiplies infinity by zero.
    """
    optimizer: Any = run.optimizer
    clip = optimizer.clip_and_accumulate

    def clip_halves() -> None:
        for parameter in optimizer.params:
            parameter.grad_sample = parameter.grad_sample.half()
        clip()

    optimizer.clip_and_accumulate = clip_halves


def leave_unclipped(run: Run) -> None:
    """Add up records' gradients as they are."""
    optimizer: Any = run.optimizer
    optimizer.clip_and_accumulate = lambda: _accumulate_raw(optimizer)


def clip_to_larger_norm(run: Run) -> None:
    """Clip to C for each parameter together, sqrt(L) C, and scale noise by C."""
    optimizer: Any = run.optimizer
    times = sqrt(len(optimizer.params))

    def clip_to_all() -> None:
        norms = _norms(optimizer.params)
        _accumulate(optimizer.params, _factors(optimizer, norms, times))

    optimizer.clip_and_accumulate = clip_to_all


def forget_norm_of_last_layer(run: Run) -> None:
    """Clip all layers by norms that the last one is not part of."""
    optimizer: Any = run.optimizer
    inside = _without(optimizer.params, last_layer(run))

    def clip_by_the_others() -> None:
        factors = _factors(optimizer, _norms(inside))
        _accumulate(optimizer.params, factors)

    optimizer.clip_and_accumulate = clip_by_the_others


def add_last_layer_unclipped(run: Run) -> None:
    """Clip all layers but the last, whose gradients are added as they are."""
    optimizer: Any = run.optimizer
    head = last_layer(run)
    inside = _without(optimizer.params, head)

    def clip_the_others() -> None:
        _accumulate(inside, _factors(optimizer, _norms(inside)))
        _accumulate(head, torch.ones(len(head[0].grad_sample)))

    optimizer.clip_and_accumulate = clip_the_others


def _without(parameters: Collection[Any], left_out: Collection[Any]) -> list[Any]:
    return [each for each in parameters if all(each is not other for other in left_out)]


def _norms(parameters: Collection[Any]) -> torch.Tensor:
    """Return the norm of each record's gradient in some parameters."""
    each = [p.grad_sample.flatten(start_dim=1).norm(dim=1) for p in parameters]
    norms: torch.Tensor = torch.stack(each, dim=1).norm(dim=1)
    return norms


def _factors(
    optimizer: Any,  # noqa: ANN401 (Opacus is untyped)
    norms: torch.Tensor,
    times: float = 1.0,
) -> torch.Tensor:
    most = times * optimizer.max_grad_norm
    factors: torch.Tensor = (most / (norms + 1e-6)).clamp(max=1.0)
    return factors


def _accumulate(parameters: Collection[Any], factors: torch.Tensor) -> None:
    """Add the records' gradients to the sums of some parameters, each by a factor."""
    for parameter in parameters:
        total = torch.einsum("i,i...", factors, parameter.grad_sample)
        if parameter.summed_grad is not None:
            total += parameter.summed_grad
        parameter.summed_grad = total


def _accumulate_raw(optimizer: Any) -> None:  # noqa: ANN401 (Opacus is untyped)
    """Add the records' gradients to the sums as they are."""
    _accumulate(optimizer.params, torch.ones(len(optimizer.params[0].grad_sample)))


def _shrink_sum(optimizer: Any, most: float) -> None:  # noqa: ANN401
    """Shrink the sum over all records to a norm, as ``clip_grad_norm_`` does."""
    sums = [parameter.summed_grad for parameter in optimizer.params]
    norm = torch.stack([each.norm() for each in sums]).norm()
    factor = (most / (norm + 1e-6)).clamp(max=1.0)
    for each in sums:
        each.mul_(factor)
