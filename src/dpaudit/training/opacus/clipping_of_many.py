"""What clipping leaves of many records at once, each with a gradient of its own.

A probe lets a few records leave the batch, one at a time. Clipping may treat the few
well and others not: those of a rare class, of a large weight, at the end of a batch.
So just before clipping each of some hundred records is given a large gradient at a
coordinate of its own: first in every parameter, then in one of them. What the clipped
sum holds there is what clipping leaves of that record, unless the sum is changed as a
whole, as by a projection. So the record of which most is left is then given none, and
what counts is how much that changes the sum. Where per-record gradients do not exist,
as with ghost clipping, this cannot be asked.
"""

from collections.abc import Callable
from functools import partial

import torch
from opacus.optimizers import DPOptimizer

from dpaudit.training.opacus.step_runner import Batch, Step

__all__ = ["left_of_many"]

_LARGE = 1e3  # clipping norms


def left_of_many(
    step: Step, optimizer: DPOptimizer, batch: Batch
) -> tuple[int, float] | None:
    """Return of how many records it was seen, and the most that is left of one.

    In clipping norms; None if it cannot be asked. Called in a copy of the process.
    """
    found: list[tuple[int, float]] = []
    clip = getattr(optimizer, "clip_and_accumulate", None)
    if clip is None:
        return None

    def clipping() -> None:
        grads = [p.grad_sample for p in optimizer.params]
        whole = all(isinstance(each, torch.Tensor) for each in grads)
        if whole and not found and len({len(each) for each in grads}) == 1:
            norm = float(optimizer.max_grad_norm)
            clipped = partial(_clipped, clip, optimizer, grads, norm)
            count = len(grads[0])
            most = max(_most(partial(clipped, k), count) for k in (False, True))
            found.append((count, most / norm))
            for parameter, grad in zip(optimizer.params, grads, strict=True):
                parameter.grad_sample, parameter.summed_grad = grad, None
        clip()

    optimizer.clip_and_accumulate = clipping
    step(batch)
    return found[0] if found else None


def _most(clipped: Callable[..., list[torch.Tensor]], count: int) -> float:
    """Return how much the record of which clipping leaves most changes the sum.

    Args:
        clipped: From the record that is left out, if any, to the clipped sum.
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
    """Return the clipped sum of large gradients, one of each record but one.

    Args:
        clip: Opacus' own.
        optimizer: Whose.
        grads: Of which shape they are.
        norm: The clipping norm.
        alone: Whether each is in one parameter, and not in all.
        without: The record that has none.
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
