"""Does the loop draw fresh noise in each step? Its own noise, in a rehearsal.

The proof needs noise that is independent from step to step. The noise of the run itself
is read at some coordinates of each step, where it can be read (``noise_reader``). Here
the beginning of the loop is played with the noise that it draws, before training and
in any precision: sums are set to 0, so that the noisy sum is the noise, and the noise
of two steps may not be the same. That is a generator which is seeded, or set back, in
each epoch or step.

If all noise is the same in two plays with different random seeds, the loop seeds itself
or has a generator of its own. That is a remark: the seed may be secret.

Noise of two steps is the same if the cosine between them is within 1e-4 of 1 or -1; so
a schedule of the noise multiplier does not matter, nor does rounding. Of independent
normal noise at 32 coordinates or more this has a probability below 1e-50.
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

_STEPS: Final = 10  # of the first play
_LENGTHS: Final = 5, 2  # steps of the first epoch, and of later ones
_AGAIN: Final = 3  # steps of the second play
_COORDINATES: Final = 4096  # of the noise, about so many are compared
_FEWEST: Final = 32  # that are not 0, or a sign of the noise might be all that is left
_SAME: Final = 1 - 1e-4  # of a cosine


def noise_findings(
    loop: LoopRunner, optimizer: DPOptimizer, *, seconds: float
) -> Iterator[Finding]:
    """Return what is wrong with the noise of the loop's first steps.

    Args:
        loop: The user's.
        optimizer: As ``make_private`` returned it.
        seconds: For each of two plays.
    """
    run = partial(_noise, loop, optimizer)
    try:
        first = in_copy(lambda: run(seed=1, most=_STEPS), seconds=seconds)
        other = in_copy(lambda: run(seed=2, most=_AGAIN), seconds=seconds)
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
    if cosines and min(cosines) > _SAME:
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
        with suppress(RuntimeError, NotImplementedError):  # a secure one
            optimizer.generator.manual_seed(seed)
    loop.run(None, [], lengths=_LENGTHS)
    return np.array(rows).reshape(len(rows), -1)


def _direction(noise: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return noise of length 1; 0 if there is too little of it."""
    length = float(np.linalg.norm(noise))
    if not np.isfinite(length) or np.count_nonzero(noise) < _FEWEST:
        return np.zeros_like(noise)
    return noise / length


def _repeated(rows: NDArray[np.float64]) -> Iterator[tuple[int, int, bool]]:
    """Yield steps whose noise is that of an earlier step, or minus it."""
    cosines = np.tril(rows @ rows.T, -1)
    for later, earlier in np.argwhere(np.abs(cosines) > _SAME).tolist():
        yield later + 1, earlier + 1, bool(cosines[later, earlier] < 0)
