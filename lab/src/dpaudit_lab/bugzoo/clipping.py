"""Bugs in the clipping: what is clipped, to which norm, and when.

All of them replace ``clip_and_accumulate`` of one optimizer, or tell it wrong things.
"""

from typing import Any

import torch

from dpaudit_lab.bugzoo.honest import Run

__all__ = [
    "account_per_layer_as_flat",
    "clip_accumulated_sum",
    "clip_before_unscaling",
    "clip_half_precision",
    "clip_whole_batch",
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


def _accumulate_raw(optimizer: Any) -> None:  # noqa: ANN401 (Opacus is untyped)
    """Add the records' gradients to the sums as they are."""
    for parameter in optimizer.params:
        total = parameter.grad_sample.sum(dim=0)
        if parameter.summed_grad is not None:
            total += parameter.summed_grad
        parameter.summed_grad = total


def _shrink_sum(optimizer: Any, most: float) -> None:  # noqa: ANN401
    """Shrink the sum over all records to a norm, as ``clip_grad_norm_`` does."""
    sums = [parameter.summed_grad for parameter in optimizer.params]
    norm = torch.stack([each.norm() for each in sums]).norm()
    factor = (most / (norm + 1e-6)).clamp(max=1.0)
    for each in sums:
        each.mul_(factor)
