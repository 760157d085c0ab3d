"""Adds canaries to the clipped sum, just before Opacus adds noise.

This happens once per logical step, so virtual batches need no special case, in every
mode of Opacus. Each canary is sampled by its own draw: the loader's sampler and the
clipping of records are not tested.
"""

from functools import partial
from typing import final

import numpy as np
from numpy.typing import NDArray
from opacus.optimizers import DPOptimizer

from dpaudit.training.audit import TrainingAudit
from dpaudit.training.layout import Layout
from dpaudit.training.opacus.attachment import Attachment
from dpaudit.training.opacus.noise_reader import NoiseReader
from dpaudit.training.opacus.setup import is_sharded, summed_grad
from dpaudit.training.opacus.sums_reader import SumsReader
from dpaudit.training.opacus.transfers import Places

__all__ = ["SumInserter"]


@final
class SumInserter:
    """Adds the participating canaries to each logical step's sum; knows the bits.

    Args:
        optimizer: Opacus' optimizer.
        layout: Where this rank inserts canaries.
        audit: Draws who participates, and receives what was read.
        norm: A canary's norm, over the clipping norm.
        reader: Receives each step's start, and its sum before canaries.
        noise: Receives each step's sum before and after its noise.
        attachment: Removes everything again.

    Attributes:
        step: How many steps began.
    """

    def __init__(
        self,
        optimizer: DPOptimizer,
        layout: Layout,
        audit: TrainingAudit,
        *,
        norm: float,
        reader: SumsReader,
        noise: NoiseReader,
        attachment: Attachment,
    ) -> None:
        self.step, self._norm = 0, norm
        self._reader, self._noise, self._audit = reader, noise, audit
        self._joined: NDArray[np.int64] = np.zeros(0, np.int64)
        self._optimizer, self._layout = optimizer, layout
        self._to_host = attachment.to_host
        parameters = optimizer.params
        # Coordinates of other ranks are not in the layout.
        self._places = Places(
            parameters, layout.parts, np.ones(layout.coordinates, bool), layout.weight
        )
        attachment.before_noise(self._insert)
        # Runs after the reader's hook, which was registered first.
        attachment.before(self._observe)

    def _insert(self) -> None:
        self._reader.begin()
        self._reader.begin_sum()
        joined = self._audit.draws.joined(self.step)
        self._joined = np.bincount(joined, minlength=self._layout.coordinates)
        # The sum of sharded gradients is already divided by the number of ranks.
        optimizer = self._optimizer
        ranks = optimizer.world_size if is_sharded(optimizer) else 1
        size = self._norm * float(optimizer.max_grad_norm) / ranks
        self._places.add(lambda p: summed_grad(optimizer, p), size * self._joined)
        self.step += 1
        self._noise.before()

    def _observe(self) -> None:
        steps, reader = self._reader.steps, self._reader
        observe = partial(
            self._audit.observe,
            joined=self._norm * self._joined[reader.coordinates],
            noise=steps.noise,
            clip=steps.clip,
        )
        self._to_host.add(lambda: observe(reader.last))
        self._noise.after(self._audit, self._to_host)
