"""Bugs in the sampling of batches, and in what follows from their size.

Shuffling instead of Poisson sampling needs no patch: Opacus offers it, with
``poisson_sampling=False``, and accounts for it as if it were Poisson sampling.
"""

from collections.abc import Iterator
from typing import Any, final

from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch.utils.data import DataLoader

from dpaudit_lab.bugzoo.honest import Run

__all__ = ["augment_each_record", "divide_by_realised_size", "shuffle"]


def shuffle(run: Run) -> None:
    """Leave the loader as it is: the setting has asked Opacus for shuffling."""
    if run.setting.poisson:
        raise ValueError("shuffling is a setting: pass Setting(poisson=False)")


def divide_by_realised_size(run: Run) -> None:
    """Divide the noisy sum by the number of records in the batch, not the expected."""
    optimizer: Any = run.optimizer

    def scale_by_realised_size() -> None:
        realised = max(1, len(optimizer.grad_samples[0]))
        for parameter in optimizer.params:
            parameter.grad /= realised

    optimizer.scale_grad = scale_by_realised_size


def augment_each_record(run: Run, *, times: int = 2) -> None:
    """Put several augmentations of each record into its batch, each a row of its own.

    This is how repeated augmentation works without privacy. Every row is clipped to C.
    """
    old = run.loader
    sampler: Any = old.batch_sampler
    run.loader = DataLoader(
        dataset=old.dataset,
        batch_sampler=_Repeated(
            num_samples=sampler.num_samples,
            sample_rate=sampler.sample_rate,
            generator=sampler.generator,
            times=times,
        ),
        collate_fn=old.collate_fn,
    )


@final
class _Repeated(UniformWithReplacementSampler):  # type: ignore[misc]  # untyped
    """Opacus' Poisson sampler, naming every record that it picks several times."""

    def __init__(
        self,
        *,
        num_samples: int,
        sample_rate: float,
        generator: Any,  # noqa: ANN401 (as Opacus has it)
        times: int,
    ) -> None:
        super().__init__(
            num_samples=num_samples, sample_rate=sample_rate, generator=generator
        )
        self._times = times

    def __iter__(self) -> Iterator[list[int]]:
        for batch in super().__iter__():
            yield [record for record in batch for _ in range(self._times)]
