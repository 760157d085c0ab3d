"""Reads the noisy sums of an Opacus run at the canaries' coordinates.

The reader knows no secret bit and no canary's participation. It gets the real records'
contribution to a sum, before canaries and noise: the adversary knows the other records
and which of them were sampled. It reads just before the wrapped optimizer steps, after
noise, scaling and reduction over ranks. Canaries must have been inserted in every step,
by the same optimizer and into the same parameters; otherwise the run is invalid.
"""

from collections.abc import Callable, Mapping
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.optimizers import DPOptimizer

from dpaudit.errors import InvalidRunError
from dpaudit.training.layout import Layout
from dpaudit.training.opacus.setup import clip_factors, divisor, is_sharded, summed_grad
from dpaudit.training.opacus.transfers import Places, ToHost, Values, local

__all__ = ["StepsSeen", "SumsReader"]


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
                "train=train) saw them depend on no record, in a run of one process"
            )

    def resume(self, steps: int) -> None:
        """Continue after a number of steps."""
        self.read = self._begun = steps


@final
class SumsReader:
    """Reads the noisy sums.

    Args:
        optimizer: Opacus' optimizer.
        layout: Positions of all canaries that this rank can read.
        to_host: Brings what was read to the host.
        knows_real_sums: Whether to subtract the real records' contribution.

    Attributes:
        coordinates: Numbers of the coordinates that this rank reads.
        steps: Which steps were read.
        last: The last noisy sum at each of them, over the clipping norm, once it is on
            the host.
    """

    def __init__(
        self,
        optimizer: DPOptimizer,
        layout: Layout,
        to_host: ToHost,
        *,
        knows_real_sums: bool,
    ) -> None:
        held = layout.held()
        self.coordinates, self._known = np.flatnonzero(held), knows_real_sums
        self._optimizer, self._to_host = optimizer, to_host
        parameters, weight = optimizer.params, layout.weight
        self._places = Places(parameters, layout.parts, held, weight)
        self._real, self.last = self._places.zeros(), np.zeros(len(self.coordinates))
        self.steps = StepsSeen(optimizer)

    @torch.no_grad()
    def begin_records(self, grads: Mapping[Any, torch.Tensor]) -> None:
        """Record the contribution of real records that Opacus is about to clip.

        Args:
            grads: Per-record gradients of each parameter; rows of canaries are zero.
        """
        self._forget_failed()
        if not self._known or not len(next(iter(grads.values()))):
            return
        found = clip_factors(self._optimizer, list(grads.values()))
        factors = dict(zip(grads, found, strict=True))

        def clipped(parameter: Any, offsets: torch.Tensor) -> torch.Tensor:  # noqa: ANN401
            rows = grads[parameter]
            columns = rows.reshape(len(rows), -1).index_select(1, offsets)
            total: torch.Tensor = factors[parameter] @ columns
            return total

        self._add_real(self._places.gather(clipped))

    def begin_sum(self) -> None:
        """Record the sum of real records, before canaries and noise."""
        if not self._known:
            return
        optimizer = self._optimizer
        ranks = optimizer.world_size if is_sharded(optimizer) else 1
        sums = self._places.read(lambda parameter: summed_grad(optimizer, parameter))
        self._add_real(sums if ranks == 1 else [ranks * each for each in sums])

    def _add_real(self, values: Values) -> None:
        pairs = zip(self._real, values, strict=True)
        self._real = [total + value for total, value in pairs]

    def begin(self) -> None:
        """Record that noise is about to be added to a step."""
        self._forget_failed()
        self.steps.begin()

    def of_rank(self) -> Values:
        """Return the contributions of this rank's real records; zeros if unknown."""
        return self._real

    def use_sums(self, sums: Values) -> None:
        """Replace them by those of all ranks' real records."""
        self._real = sums

    def read(self) -> None:
        """Read the noisy sum of a step that is about to be made."""
        self.steps.check_begun()
        noisy = self._places.read(lambda parameter: local(parameter.grad.detach()))
        real, self._real = self._real, self._places.zeros()
        times, clip = divisor(self._optimizer), self.steps.clip

        def received(
            noisy: NDArray[np.float64], real: NDArray[np.float64] | None = None
        ) -> None:
            self.last = times * self._places.on_host(noisy)
            if real is not None:
                self.last -= self._places.on_host(real)
            self.last /= clip

        self._to_host.add(received, noisy, *([real] if self._known else []))
        self.steps.end()

    def _forget_failed(self) -> None:
        """Discard a step that began and was never completed."""
        if self.steps.forget_failed():
            self._real = self._places.zeros()
