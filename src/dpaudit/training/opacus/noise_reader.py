"""Reads the noise of each step: the noisy sum minus the sum just before the noise.

It is read at a few hundred coordinates, some in every parameter, at the intersections
of rows and columns: noise that was drawn for a whole row is then equal at two of them.
The rows and columns are drawn from the key, so that a program cannot know them; if
there are more parameters than coordinates, so are the parameters. Canaries are in both
sums, so the noise shows nothing about the secret bits.
"""

from math import ceil, prod, sqrt
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.optimizers import DPOptimizer

from dpaudit.game.coins import Key
from dpaudit.training.audit import TrainingAudit
from dpaudit.training.noise import MOST_WATCHED
from dpaudit.training.opacus.setup import (
    divisor,
    is_sharded,
    local,
    rank_and_world,
    summed_over_ranks,
)

__all__ = ["NoiseReader"]


@final
class NoiseReader:
    """Reads the noise that was added to each step.

    Args:
        optimizer: Opacus' optimizer.
        names: Names of its parameters.
        key: The run's key, from which coordinates are drawn; it is not kept.

    Attributes:
        why_not: The code of the reason why noise cannot be read; "" if it can.
        watched: For each coordinate that is read, the name of its parameter.
        together: Whether ranks must add up what they read before the noise.
    """

    def __init__(self, optimizer: DPOptimizer, names: list[str], key: Key) -> None:
        self._optimizer = optimizer
        self.why_not = _why_not(optimizer)
        self._spots = [] if self.why_not else _spots(optimizer, key)
        self._here = all(at.device.type == "cpu" for *_, at in self._spots)
        self.watched = [
            names[index]
            for index, _, offsets in self._spots
            for _ in range(len(offsets))
        ]
        self._before: NDArray[np.float64] | None = None
        self._stated, self._clip = 0.0, 1.0
        self.together = not self.why_not and rank_and_world(optimizer)[1] > 1

    def before(self) -> None:
        """Read the sum to which noise is about to be added."""
        if not self.why_not:
            optimizer = self._optimizer
            self._before = self._read("summed_grad")
            self._stated = float(optimizer.noise_multiplier)
            self._clip = float(optimizer.max_grad_norm)

    def add_up(self) -> None:
        """Add up what all ranks read before the noise."""
        own = np.zeros(len(self.watched)) if self._before is None else self._before
        whole = summed_over_ranks(own, local(self._optimizer.params[0]).device)
        self._before = None if self._before is None else whole

    def after(self, audit: TrainingAudit) -> None:
        """Pass the noise that was added to the audit."""
        if self._before is None:
            return
        before, self._before = self._before, None
        optimizer = self._optimizer
        now = self._read("grad") * divisor(optimizer)
        sums = [part / self._clip for part in (before, now)]
        audit.watch_noise(sums[1] - sums[0], self._stated, sums)

    @torch.no_grad()
    def _read(self, what: str) -> NDArray[np.float64]:
        parts = [torch.take(getattr(p, what), at) for _, p, at in self._spots]
        if not self._here:
            parts = [part.cpu() for part in parts]
        return torch.cat(parts).double().numpy()


def _why_not(optimizer: DPOptimizer) -> str:
    if is_sharded(optimizer):
        return "noise.sharded"
    if {p.dtype for p in optimizer.params} & {torch.bfloat16, torch.float16}:
        return "noise.half_precision"
    return ""


def _spots(optimizer: DPOptimizer, key: Key) -> list[tuple[int, Any, torch.Tensor]]:
    """Return the coordinates that are read: number, parameter, offsets."""
    count = len(optimizer.params)
    rng = key.generator("watched parameters", 0)
    chosen = np.sort(rng.choice(count, min(count, MOST_WATCHED), replace=False))
    each, spots = MOST_WATCHED // len(chosen), []
    for index in chosen.tolist():
        parameter = optimizer.params[index]
        rng = key.generator("watched coordinates", index)
        offsets = torch.from_numpy(_lattice(tuple(parameter.shape), each, rng))
        spots.append((index, parameter, offsets.to(parameter.device)))
    return spots


def _lattice(
    shape: tuple[int, ...], most: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Return the offsets at the intersections of some rows and columns.

    Example:
        >>> _lattice((3, 4), 4, np.random.default_rng(0))
        array([4, 5, 8, 9])
    """
    rows = shape[0] if shape else 1
    columns = prod(shape[1:])
    down = min(rows, most if columns == 1 else ceil(sqrt(most)))
    across = max(1, min(columns, most // down))
    down = min(rows, most // across)
    at = np.sort(rng.choice(rows, down, replace=False))
    along = np.sort(rng.choice(columns, across, replace=False))
    return (at[:, None] * columns + along).ravel()
