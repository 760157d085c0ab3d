"""Reads the noisy sums of an Opacus run at the canaries' coordinates.

Knows no coin and no draw. It looks just before the wrapped optimizer steps, when noise,
scaling and reduction over ranks are done. Every step must have had its canaries put in,
by the same optimizer and into the same parameters: otherwise it would be the audit of
another run, and is void.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.optimizers import DPOptimizer

from dpaudit.errors import VoidAuditError
from dpaudit.training.opacus.facts import divisor, is_sharded, summed_grad
from dpaudit.training.opacus.places import Places, local
from dpaudit.training.reading import Sampling, SumsReading

__all__ = ["SumsReader"]


@final
class SumsReader:
    """Reads the noisy sums until it is detached.

    Args:
        optimizer: Opacus' optimizer.
        places: Where this rank reads.
        mine: Which coordinates these are.
        size: Canaries per coordinate.
        sampling: How canaries join steps, as far as the guesser knows.
        real_sums: Whether to take off what the sums were before canaries and noise.

    Attributes:
        coordinates: Numbers of the coordinates that this rank reads.
        reading: What was made of the sums.
    """

    def __init__(
        self,
        optimizer: DPOptimizer,
        places: Places,
        mine: NDArray[np.bool_],
        *,
        size: int,
        sampling: Sampling,
        real_sums: bool,
    ) -> None:
        self.coordinates = np.flatnonzero(mine)
        self._optimizer, self._places = optimizer, places
        number = np.cumsum(mine) - 1  # of a coordinate among those of this rank
        self._numbers = [_stretch(number[place.which]) for place in places.places]
        self._sums = np.zeros(len(self.coordinates))
        self._real = np.zeros(len(self.coordinates))
        self.reading = SumsReading(
            coordinates=len(self.coordinates),
            per_coordinate=size,
            sampling=sampling,
            groups=places.groups[mine],
        )
        self._real_sums, self._begun = real_sums, 0
        self._parameters = [id(parameter) for parameter in optimizer.params]
        self._hook = optimizer.original_optimizer.register_step_pre_hook(self._read)

    def check_parameters(self) -> None:
        """Void the audit if other parameters are trained than when it was attached."""
        if [id(parameter) for parameter in self._optimizer.params] != self._parameters:
            raise VoidAuditError(
                "the optimizer trains other parameters than when the audit was "
                "attached; freeze, unfreeze and add parameters before that"
            )

    def begin(self) -> None:
        """Take note of a step whose sum is complete but for canaries and noise."""
        self.check_parameters()
        self._begun += 1
        if not self._real_sums:
            return
        ranks = self._optimizer.world_size if is_sharded(self._optimizer) else 1
        self._gather(self._real, partial(summed_grad, self._optimizer))
        self._real *= ranks * self._places.weight / self._optimizer.max_grad_norm

    def resume(self, saved: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what a reading saved."""
        self.reading.restore(saved)
        self._begun = self.reading.steps

    def _read(self, *_: object) -> None:
        if self._begun != self.reading.steps + 1:
            raise VoidAuditError(
                f"step {self.reading.steps + 1} was made by the wrapped optimizer, "
                f"but {self._begun} steps went through Opacus' add_noise; step the "
                "optimizer that make_private returned, once for each batch"
            )
        unit = float(self._optimizer.max_grad_norm) / divisor(self._optimizer)
        self._gather(self._sums, _noisy_grad)
        self._sums *= self._places.weight / unit
        self.reading.observe(self._sums - self._real)

    def _gather(
        self, into: NDArray[np.float64], of: Callable[[Any], torch.Tensor]
    ) -> None:
        """Collect numbers at the coordinates, from a flat tensor of each parameter."""
        into.fill(0.0)
        for place, numbers in zip(self._places.places, self._numbers, strict=True):
            found = of(place.parameter).take(place.offsets)
            into[numbers] += found.to(torch.float64).cpu().numpy()

    def detach(self) -> SumsReading:
        """Read no more, and return what was made of the sums."""
        self._hook.remove()
        return self.reading


def _noisy_grad(parameter: torch.nn.Parameter) -> torch.Tensor:
    """Return the noisy gradient that is about to be used, flat."""
    grad: Any = parameter.grad
    return local(grad.detach()).reshape(-1)


def _stretch(numbers: NDArray[np.int64]) -> slice | NDArray[np.int64]:
    """Return the same numbers, as a slice if they follow each other."""
    if len(numbers) and np.all(np.diff(numbers) == 1):
        return slice(int(numbers[0]), int(numbers[-1]) + 1)
    return numbers
