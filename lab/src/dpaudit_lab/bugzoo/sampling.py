"""Bugs in the sampling of batches, and in what follows from their size.

Shuffling instead of Poisson sampling needs no patch: Opacus offers it, with
``poisson_sampling=False``, and accounts for it as if it were Poisson sampling.
"""

from collections.abc import Iterator
from typing import Any, final

import torch
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch.utils.data import DataLoader

from dpaudit_lab.bugzoo.honest import Run

__all__ = [
    "augment_each_record",
    "cut_to_fixed_size",
    "divide_by_realised_size",
    "draw_same_batches",
    "shuffle",
]


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
    _sample_by(run, _Repeated(times, **_facts(run)))


def draw_same_batches(run: Run) -> None:
    """Seed the sampler anew at the start of each epoch, and always the same way."""
    _sample_by(run, _SeededAnew(torch.initial_seed(), **_facts(run)))


def cut_to_fixed_size(run: Run) -> None:
    """Cut batches from a shuffled data set, in a sampler that says it is Poisson's."""
    _sample_by(run, _FixedSize(**_facts(run)))


def _facts(run: Run) -> dict[str, Any]:
    """Return what a sampler of Opacus' is made with."""
    sampler: Any = run.loader.batch_sampler
    return {
        "num_samples": sampler.num_samples,
        "sample_rate": sampler.sample_rate,
        "generator": sampler.generator,
    }


def _sample_by(run: Run, sampler: UniformWithReplacementSampler) -> None:
    old = run.loader
    run.loader = DataLoader(
        dataset=old.dataset, batch_sampler=sampler, collate_fn=old.collate_fn
    )


@final
class _Repeated(UniformWithReplacementSampler):  # type: ignore[misc]  # untyped
    """Opacus' Poisson sampler, naming every record that it picks several times."""

    def __init__(self, times: int, **facts: Any) -> None:  # noqa: ANN401 (Opacus')
        super().__init__(**facts)
        self._times = times

    def __iter__(self) -> Iterator[list[int]]:
        for batch in super().__iter__():
            yield [record for record in batch for _ in range(self._times)]


@final
class _SeededAnew(UniformWithReplacementSampler):  # type: ignore[misc]  # untyped
    """Opacus' Poisson sampler, with the same batches in every epoch."""

    def __init__(self, seed: int, **facts: Any) -> None:  # noqa: ANN401 (Opacus')
        super().__init__(**facts)
        self._seed = seed

    def __iter__(self) -> Iterator[list[int]]:
        self.generator = torch.Generator().manual_seed(self._seed)
        yield from super().__iter__()


@final
class _FixedSize(UniformWithReplacementSampler):  # type: ignore[misc]  # untyped
    """Batches of a fixed size from a shuffled data set."""

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(self.num_samples, generator=self.generator)
        size = round(self.num_samples * self.sample_rate)
        yield from (part.tolist() for part in torch.split(order, size))
