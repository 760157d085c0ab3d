"""Reads the noisy sums of an Opacus run at the canaries' coordinates.

The reader knows no secret bit and no canary's participation. It gets the real records'
contribution to a sum, before canaries and noise: the adversary knows the other records
and which of them were sampled. It reads just before the wrapped optimizer steps, after
noise, scaling and reduction over ranks. Canaries must have been inserted in every step,
by the same optimizer and into the same parameters; otherwise the run is invalid.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.optimizers import DPOptimizer

from dpaudit.errors import InvalidRunError
from dpaudit.training.layout import Layout
from dpaudit.training.opacus.setup import (
    clip_factors,
    divisor,
    is_sharded,
    local,
    summed_grad,
    summed_over_ranks,
)

__all__ = ["StepsSeen", "SumsReader"]

_NUMPY = {torch.float16, torch.float32, torch.float64}


@final
class StepsSeen:
    """Counts the steps that began and those that were read, of the same parameters.

    Args:
        optimizer: Opacus' optimizer.

    Attributes:
        read: How many steps were read.
        clip: The clipping norm of the step that began last.
        noise: Its noise multiplier.
        tell: Called with noise multiplier and clipping norm of each step that was read.
    """

    def __init__(self, optimizer: DPOptimizer) -> None:
        self._optimizer, self.clip = optimizer, float(optimizer.max_grad_norm)
        self.noise = float(optimizer.noise_multiplier)
        self.tell: Callable[[float, float], None] | None = None
        self.read = self._begun = 0
        self._parameters = [id(parameter) for parameter in optimizer.params]

    def forget_failed(self) -> bool:
        """Return whether a step began and was never completed, and discard it."""
        failed = self._begun > self.read
        self._begun = self.read
        return failed

    def check_parameters(self) -> None:
        """Raise if the trained parameters are not those at attachment."""
        if [id(parameter) for parameter in self._optimizer.params] != self._parameters:
            raise InvalidRunError(
                "the optimizer trains other parameters than when the audit was "
                "attached; freeze, unfreeze and add parameters before that"
            )

    def begin(self) -> None:
        """Record that noise is about to be added to a step."""
        self.check_parameters()
        self._begun += 1
        # Adaptive clipping sets the next step's norm before this one is read.
        self.clip = float(self._optimizer.max_grad_norm)
        self.noise = float(self._optimizer.noise_multiplier)

    def end(self) -> None:
        """Record that a step was read."""
        self.read += 1
        if self.tell is not None:
            self.tell(self.noise, self.clip)

    def check_begun(self) -> None:
        """Raise if a step is about to be made without noise."""
        if self._begun <= self.read:
            raise InvalidRunError(
                f"step {self.read + 1} was made by the wrapped optimizer, "
                f"but {self._begun} steps went through Opacus' add_noise; step the "
                "optimizer that make_private returned, once for each batch; steps on "
                "public data are passed over where audit_opacus(..., step=step, "
                "train=train) saw them depend on no record"
            )

    def resume(self, steps: int) -> None:
        """Continue after a number of steps."""
        self.read = self._begun = steps


@final
class SumsReader:
    """Reads the noisy sums.

    Args:
        optimizer: Opacus' optimizer.
        layout: Positions of all canaries that this rank can reach.
        mine: Which coordinates this rank reads.
        knows_real_sums: Whether to subtract the real records' contribution.

    Attributes:
        coordinates: Numbers of the coordinates that this rank reads.
        steps: Which steps were read.
        last: The last noisy sum at each of them, over the clipping norm.
    """

    def __init__(
        self,
        optimizer: DPOptimizer,
        layout: Layout,
        mine: NDArray[np.bool_],
        *,
        knows_real_sums: bool,
    ) -> None:
        self.coordinates = np.flatnonzero(mine)
        self._optimizer, parameters = optimizer, optimizer.params
        self._own = _Spots(parameters, layout.only(mine), mine)
        # Ranks add up their parts of a sum, so each knows its part of all coordinates.
        held = layout.held()
        whole = np.array_equal(held, mine)
        self._all = self._own if whole else _Spots(parameters, layout, held)
        self._mine, self._known = mine[held], knows_real_sums
        self.last, self._real = self._own.zeros(), self._all.zeros()
        self.steps = StepsSeen(optimizer)
        self._summed: NDArray[np.float64] | None = None  # over all ranks

    @property
    def together(self) -> bool:
        """Whether ranks must add up the real records' contributions."""
        return self._known and self._all is not self._own

    def begin_records(self, grads: Mapping[Any, torch.Tensor]) -> None:
        """Record the contribution of real records that Opacus is about to clip.

        Args:
            grads: Per-record gradients of each parameter; rows of canaries are zero.
        """
        self._forget_failed()
        if not self._known or not len(next(iter(grads.values()))):
            return
        factors = clip_factors(self._optimizer, list(grads.values()))
        for (parameter, rows), factor in zip(grads.items(), factors, strict=True):
            if parameter in self._all.offsets:
                offsets = self._all.offsets[parameter]
                columns = rows.reshape(len(rows), -1).index_select(1, offsets)
                self._all.add(self._real, parameter, factor @ columns)

    def begin_sum(self) -> None:
        """Record the sum of real records, before canaries and noise."""
        if not self._known:
            return
        ranks = self._optimizer.world_size if is_sharded(self._optimizer) else 1
        for parameter, offsets in self._all.offsets.items():
            total = summed_grad(self._optimizer, parameter)
            self._all.add(self._real, parameter, total.index_select(0, offsets))
        if ranks > 1:
            self._real *= ranks

    def begin(self) -> None:
        """Record that noise is about to be added to a step."""
        self._forget_failed()
        self.steps.begin()

    def add_up(self) -> None:
        """Add up the real records' contributions of all ranks."""
        device = local(self._optimizer.params[0]).device
        self._summed = summed_over_ranks(self._real, device)[self._mine]

    def read(self) -> None:
        """Read the noisy sum of a step that is about to be made."""
        self.steps.check_begun()
        self.last.fill(0.0)
        for parameter, offsets in self._own.offsets.items():
            grad = local(parameter.grad.detach()).reshape(-1)
            self._own.add(self.last, parameter, grad.index_select(0, offsets))
        self.last *= divisor(self._optimizer)
        if self._known:
            self.last -= self._real if self._summed is None else self._summed
            self._real.fill(0.0)
        self.last /= self.steps.clip
        self.steps.end()

    def _forget_failed(self) -> None:
        """Discard a step that began and was never completed."""
        if self.steps.forget_failed():
            self._real.fill(0.0)


@final
class _Spots:
    """Positions of some coordinates in each parameter, and in an array of them.

    Args:
        parameters: All trained parameters.
        layout: Positions of coordinates in them.
        which: Which coordinates to take.

    Attributes:
        offsets: Their positions in each flattened parameter.
    """

    def __init__(
        self,
        parameters: Sequence[Any],
        layout: Layout,
        which: NDArray[np.bool_],
    ) -> None:
        self._weight, self._count = layout.weight, int(which.sum())
        number = np.cumsum(which) - 1
        self.offsets: dict[Any, torch.Tensor] = {
            (owner := parameters[part.array]): torch.from_numpy(part.offsets).to(
                local(owner).device
            )
            for part in layout.parts
        }
        self._numbers: dict[Any, slice | NDArray[np.int64]] = {
            parameters[part.array]: _stretch(number[part.which])
            for part in layout.parts
        }

    def zeros(self) -> NDArray[np.float64]:
        """Return an array with a number for each coordinate."""
        return np.zeros(self._count)

    def add(
        self, into: NDArray[np.float64], parameter: object, values: torch.Tensor
    ) -> None:
        """Add the values at a parameter's offsets."""
        if values.dtype not in _NUMPY:
            values = values.float()
        added = values.cpu().numpy()
        numbers = self._numbers[parameter]
        into[numbers] += added if self._weight == 1 else self._weight * added


def _stretch(numbers: NDArray[np.int64]) -> slice | NDArray[np.int64]:
    """Return the same numbers, as a slice if they are consecutive."""
    if len(numbers) and np.all(np.diff(numbers) == 1):
        return slice(int(numbers[0]), int(numbers[-1]) + 1)
    return numbers
