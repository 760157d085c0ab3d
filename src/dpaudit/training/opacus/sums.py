"""Adds canaries to the clipped sum, just before Opacus adds noise.

This happens once per logical step, so virtual batches need no special case, in every
mode of Opacus. Each canary is sampled by its own draw: the loader's sampler and the
clipping of records are not tested.
"""

from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.optimizers import DPOptimizer

from dpaudit.training.audit import TrainingAudit
from dpaudit.training.layout import Layout
from dpaudit.training.opacus.attachment import Attachment
from dpaudit.training.opacus.noise_reader import NoiseReader
from dpaudit.training.opacus.setup import is_sharded, summed_grad
from dpaudit.training.opacus.sums_reader import SumsReader

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
        self._joined: NDArray[np.floating] = np.zeros(0)
        self._optimizer, self._layout = optimizer, layout
        parameters = optimizer.params
        self._offsets = [
            (parameters[part.array], part.offsets_at(layout.coordinates))
            for part in layout.parts
        ]
        attachment.before_noise(self._insert)
        # Runs after the reader's hook, which was registered first.
        attachment.before(self._observe)

    def _insert(self) -> None:
        self._reader.begin()
        self._reader.begin_sum()
        joined = self._audit.draws.joined(self.step)
        count = np.bincount(joined, minlength=self._layout.coordinates)
        self._joined = self._norm * count[self._reader.coordinates]
        # The sum of sharded gradients is already divided by the number of ranks.
        ranks = self._optimizer.world_size if is_sharded(self._optimizer) else 1
        size = self._norm * self._layout.weight / ranks
        size *= float(self._optimizer.max_grad_norm)
        for parameter, offsets_at in self._offsets:
            total = summed_grad(self._optimizer, parameter)
            here = torch.from_numpy(offsets_at(joined)).to(total.device)
            total.index_add_(0, here, total.new_full((len(here),), size))
        self.step += 1
        self._noise.before()

    def _observe(self, *_: object) -> None:
        steps = self._reader.steps
        self._audit.observe(
            self._reader.last, self._joined, noise=steps.noise, clip=steps.clip
        )
        self._noise.after(self._audit)
