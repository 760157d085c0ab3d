"""Checks in a rehearsal that the loop draws fresh noise in each step.

The proof needs independent noise in each step. The noise of the run itself is read at
some coordinates of each step, where it can be read (``noise_reader``). Here the first
steps of the loop are run with the noise that it draws, before training and in any
precision: sums are set to 0, so that the noisy sum is the noise, and no two steps may
have the same noise. This detects a generator that is seeded, or reset, in each epoch or
step.

If all noise is the same in two rehearsals with different random seeds, the loop seeds
itself or has its own generator. That is a remark: the seed may be secret.

Noise of two steps is the same if the cosine between them is within 1e-4 of 1 or -1; so
a schedule of the noise multiplier does not matter, nor does rounding. For independent
normal noise at 32 coordinates or more the probability of this is below 1e-50.
"""

import random
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.optimizers import DPOptimizer

from dpaudit.game.findings import Finding, Stage, fault, noted
from dpaudit.training.opacus.loop_runner import EnoughError, LoopRunner
from dpaudit.training.process_copy import CopyFailedError, in_copy

__all__ = ["noise_findings"]

_STEPS: Final = 10  # of the first rehearsal
_LENGTHS: Final = 5, 2  # steps of the first epoch, and of later ones
_SECOND_STEPS: Final = 3  # of the second rehearsal
_COORDINATES: Final = 4096  # of the noise that are compared, approximately
_MIN_NONZERO: Final = 32  # with few coordinates, cosines are near 1 or -1 by chance
_SAME_COSINE: Final = 1 - 1e-4


def noise_findings(
    loop: LoopRunner, optimizer: DPOptimizer, *, seconds: float
) -> Iterator[Finding]:
    """Return faults in the noise of the loop's first steps.

    Args:
        loop: The user's loop.
        optimizer: The optimizer that ``make_private`` returned.
        seconds: Time limit of each of two rehearsals.
    """
    run = partial(_noise, loop, optimizer)
    try:
        first = in_copy(lambda: run(seed=1, most=_STEPS), seconds=seconds)
        other = in_copy(lambda: run(seed=2, most=_SECOND_STEPS), seconds=seconds)
    except CopyFailedError as error:
        yield noted("rehearsal.noise_not_played", error=str(error))
        return
    repeated = [*_repeated(first)]
    if repeated:
        later, earlier, minus = repeated[0]
        again, steps = len({step for step, *_ in repeated}), len(first)
        yield fault(
            Stage.NOISE_INDEPENDENCE,
            "rehearsal.noise_repeated",
            later=later,
            earlier=earlier,
            reversed=minus,
            repeated=again,
            steps=steps,
            cause="every_step" if again == steps - 1 else "now_and_then",
        )
    cosines = [float(a @ b) for a, b in zip(first, other, strict=False)]
    if cosines and min(cosines) > _SAME_COSINE:
        yield noted("rehearsal.noise_constant", steps=len(cosines))


def _noise(
    loop: LoopRunner, optimizer: DPOptimizer, *, seed: int, most: int
) -> NDArray[np.float64]:
    """Return the noise of the loop's first steps, in a copy of the process.

    Each row has length 1, or 0 if there is too little to compare.
    """
    rows: list[NDArray[np.float64]] = []
    add = optimizer.add_noise
    stride = max(1, sum(p.numel() for p in optimizer.params) // _COORDINATES)

    def add_noise() -> None:
        if len(rows) == most:
            raise EnoughError
        for parameter in optimizer.params:
            parameter.summed_grad = torch.zeros_like(parameter.summed_grad)
        add()
        noise = [p.grad.detach().reshape(-1)[::stride] for p in optimizer.params]
        rows.append(_direction(torch.cat([each.double() for each in noise]).numpy()))

    optimizer.add_noise = add_noise
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (user code may draw from it)
    random.seed(seed)
    if optimizer.generator is not None:
        with suppress(RuntimeError, NotImplementedError):  # a secure generator
            optimizer.generator.manual_seed(seed)
    loop.run(None, [], lengths=_LENGTHS)
    return np.array(rows).reshape(len(rows), -1)


def _direction(noise: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the noise scaled to length 1; 0 if there is too little of it."""
    length = float(np.linalg.norm(noise))
    if not np.isfinite(length) or np.count_nonzero(noise) < _MIN_NONZERO:
        return np.zeros_like(noise)
    return noise / length


def _repeated(rows: NDArray[np.float64]) -> Iterator[tuple[int, int, bool]]:
    """Yield steps whose noise equals that of an earlier step up to scale and sign."""
    cosines = np.tril(rows @ rows.T, -1)
    for later, earlier in np.argwhere(np.abs(cosines) > _SAME_COSINE).tolist():
        yield later + 1, earlier + 1, bool(cosines[later, earlier] < 0)
