"""Reads the noise of each step: the noisy sum minus the sum just before the noise.

It is read at a few hundred coordinates, some in every parameter, at the intersections
of rows and columns: noise that was drawn for a whole row is then equal at two of them.
The rows and columns are drawn from the key, so that a program cannot know them; if
there are more parameters than coordinates, so are the parameters. Canaries are in both
sums, so the noise shows nothing about the secret bits.

In half precision the rounding of the sums may be as large as the noise, and counts in
the program's favour (``rounding``). Where ranks add up their sums in half precision,
each rounds a part that may be much larger than the whole, so nothing is read there.
"""

from math import ceil, prod, sqrt
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.optimizers import DPOptimizer

from dpaudit.game.coins import Key
from dpaudit.training.audit import TrainingAudit
from dpaudit.training.layout import ArrayCoordinates
from dpaudit.training.noise import MOST_WATCHED
from dpaudit.training.opacus.ranks import rank_and_world
from dpaudit.training.opacus.setup import divisor, is_sharded
from dpaudit.training.opacus.transfers import Places, ToHost, Values

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
        types: For each of these the floating-point type of its parameter.
    """

    def __init__(self, optimizer: DPOptimizer, names: list[str], key: Key) -> None:
        self._optimizer = optimizer
        self.why_not = _why_not(optimizer)
        parts = () if self.why_not else _parts(optimizer, key)
        where = [part.array for part in parts for _ in part.which]
        self.watched = [names[each] for each in where]
        kinds = [optimizer.params[each].dtype for each in where]
        self.types = [str(each) for each in kinds]
        self._spacing = np.array([_spacing(each) for each in kinds])
        every = np.ones(len(self.watched), bool)
        self._places = Places(optimizer.params, parts, every)
        self._before: Values | None = None
        self._stated, self._clip = 0.0, 1.0

    def before(self) -> None:
        """Read the sum to which noise is about to be added."""
        if not self.why_not:
            optimizer = self._optimizer
            self._before = self._places.read(lambda p: p.summed_grad)
            self._stated = float(optimizer.noise_multiplier)
            self._clip = float(optimizer.max_grad_norm)

    def of_rank(self) -> Values:
        """Return what this rank read before the noise."""
        if self._before is None:
            return self._places.zeros()
        pairs = zip(self._before, self._places.zeros(), strict=True)
        return [each.to(zero) for each, zero in pairs]

    def use_sums(self, sums: Values) -> None:
        """Replace it by the sums of what all ranks read."""
        self._before = None if self._before is None else sums

    def after(self, audit: TrainingAudit, to_host: ToHost) -> None:
        """Pass the noise that was added to the audit, once it is on the host."""
        if self._before is None:
            return
        before, self._before = self._before, None
        times, stated, clip = divisor(self._optimizer), self._stated, self._clip

        def received(*read: NDArray[np.float64]) -> None:
            at = [self._places.on_host(each) / clip for each in read]
            at[1] *= times
            spacing = self._spacing * max(times, 1.0) / clip
            audit.watch_noise(at[1] - at[0], stated, at, spacing)

        now = self._places.read(lambda p: p.grad.detach())
        to_host.add(received, before, now)


def _why_not(optimizer: DPOptimizer) -> str:
    if is_sharded(optimizer):
        return "noise.sharded"
    half = {p.dtype for p in optimizer.params} & {torch.bfloat16, torch.float16}
    if half and rank_and_world(optimizer)[1] > 1:
        return "noise.half_precision"
    return ""


def _spacing(kind: torch.dtype) -> float:
    """Return how far apart the numbers of a type are at 0."""
    info = torch.finfo(kind)
    return float(info.eps * info.smallest_normal)


def _parts(optimizer: DPOptimizer, key: Key) -> list[ArrayCoordinates]:
    """Return the coordinates that are read."""
    count = len(optimizer.params)
    rng = key.generator("watched parameters", 0)
    chosen = np.sort(rng.choice(count, min(count, MOST_WATCHED), replace=False))
    each, parts, first = MOST_WATCHED // len(chosen), [], 0
    for index in chosen.tolist():
        rng = key.generator("watched coordinates", index)
        offsets = _lattice(tuple(optimizer.params[index].shape), each, rng)
        which = np.arange(first, first + len(offsets))
        parts.append(ArrayCoordinates(array=index, which=which, offsets=offsets))
        first += len(offsets)
    return parts


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
