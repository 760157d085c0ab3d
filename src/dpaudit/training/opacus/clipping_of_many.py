"""Measures the norms after clipping of many records at once.

A probe removes only a few records from the batch, one at a time. Clipping may work for
these and not for others: those of a rare class, of a large weight, at the end of a
batch. So just before clipping each of some hundred records gets a large gradient at its
own coordinate: first in every parameter, then in one of them. The clipped sum there is
that record's contribution after clipping, unless the sum is changed as a whole, as by a
projection. So the record with the largest contribution is then left out, and the
resulting change of the sum is what counts. Where gradients are large, records come in
several batches. Where per-record gradients do not exist, as with ghost clipping, this
is not possible.
"""

from collections.abc import Callable, Iterable
from functools import partial

import torch
from opacus.optimizers import DPOptimizer

from dpaudit.training.opacus.step_runner import Batch, Step

__all__ = ["left_of_many"]

_LARGE = 1e3  # clipping norms


def left_of_many(
    step: Step, optimizer: DPOptimizer, batches: Iterable[Batch]
) -> tuple[int, float] | None:
    """Return the number of measured records, and the largest norm after clipping.

    In clipping norms; None if not measurable. Called in a copy of the process.
    """
    measured: list[tuple[int, float]] = []
    due = 0
    clip = getattr(optimizer, "clip_and_accumulate", None)
    if clip is None:
        return None

    def clipping() -> None:
        grads = [p.grad_sample for p in optimizer.params]
        whole = all(isinstance(each, torch.Tensor) for each in grads)
        if whole and len(measured) < due and len({len(each) for each in grads}) == 1:
            norm = float(optimizer.max_grad_norm)
            clipped = partial(_clipped, clip, optimizer, grads, norm)
            count = len(grads[0])
            most = max(_most(partial(clipped, k), count) for k in (False, True))
            # A record whose number is beyond every parameter has no gradient.
            reached = min(count, max(each[0].numel() for each in grads))
            measured.append((reached, most / norm))
            for parameter, grad in zip(optimizer.params, grads, strict=True):
                parameter.grad_sample, parameter.summed_grad = grad, None
        clip()

    optimizer.clip_and_accumulate = clipping
    for batch in batches:
        due += 1
        step(batch)
        if len(measured) < due:
            return None
    return sum(count for count, _ in measured), max(most for _, most in measured)


def _most(clipped: Callable[..., list[torch.Tensor]], count: int) -> float:
    """Return how much the record with the largest contribution changes the sum.

    Args:
        clipped: Returns the clipped sum, given the record that is left out, if any.
        count: How many records there are.
    """
    whole = clipped()
    left = torch.zeros(count, dtype=torch.float64)
    for part in whole:
        left[: min(count, len(part))] += part[:count].square()
    most = int(left.argmax())
    rest = clipped(without=most)
    squares = [(a - b).square().sum() for a, b in zip(whole, rest, strict=True)]
    return float(torch.stack(squares).sum().sqrt())


def _clipped(
    clip: Callable[[], object],
    optimizer: DPOptimizer,
    grads: list[torch.Tensor],
    norm: float,
    alone: bool,  # noqa: FBT001 (bound by partial)
    without: int | None = None,
) -> list[torch.Tensor]:
    """Return the clipped sum of large gradients, one for each record but one.

    Args:
        clip: Opacus' own clipping.
        optimizer: The optimizer that clips.
        grads: Gradients of the shapes to use.
        norm: The clipping norm.
        alone: Whether each is in one parameter, and not in all.
        without: The record without a gradient.
    """
    count = len(grads[0])
    for number, (parameter, grad) in enumerate(
        zip(optimizer.params, grads, strict=True)
    ):
        own = torch.zeros_like(grad).reshape(count, -1)
        at = torch.arange(min(count, own.shape[1]))
        if alone:
            at = at[at % len(grads) == number]
        if without is not None:
            at = at[at != without]
        own[at, at] = _LARGE * norm
        parameter.grad_sample, parameter.summed_grad = own.view_as(grad), None
    clip()
    return [
        parameter.summed_grad.detach().reshape(-1).double()
        for parameter in optimizer.params
    ]
