"""Canaries as records of the data set, processed by Opacus like any other record.

A canary is a record with its own number. Opacus' sampler samples it like any record;
between backward and step its row of every ``grad_sample`` is overwritten: with its
gradient if its secret bit includes it, with zeros if not. Clipping, accumulation and
noise are then Opacus' own. Which rows are canaries is known from the batches of record
numbers that the sampler yields, recorded on the way to the loader; virtual batches are
slices of them. Works where per-record gradients exist: modes hooks, functorch and ew.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeAlias, final

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.optimizers import DPOptimizer
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate

from dpaudit import _validate
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.training.audit import TrainingAudit
from dpaudit.training.guard import Guard
from dpaudit.training.layout import Layout
from dpaudit.training.opacus.attachment import Attachment
from dpaudit.training.opacus.noise_reader import NoiseReader
from dpaudit.training.opacus.setup import clipped_size
from dpaudit.training.opacus.sums_reader import SumsReader
from dpaudit.training.opacus.transfers import Values, local, to_devices

__all__ = [
    "CanaryDataset",
    "NotedBatches",
    "RecordInserter",
    "RowsOfBatches",
    "batch_parts",
    "hidden_canaries",
    "noted_loader",
    "own_memory",
    "record_source",
    "with_canaries",
]

Loader: TypeAlias = DataLoader[Any]


@final
class CanaryDataset(Dataset[Any]):
    """A data set followed by canaries: examples, or copies of its first record.

    The content of a copy does not matter, as its gradient is overwritten; an example
    keeps its own gradient.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        canaries: int,
        examples: Dataset[Any] | Sequence[Any] | None = None,
    ) -> None:
        self.dataset, self.canaries, self.examples = dataset, canaries, examples
        self.first = len(dataset)  # type: ignore[arg-type]  # checked by with_canaries

    def __len__(self) -> int:
        return self.first + self.canaries

    def __getitem__(self, index: int) -> Any:  # noqa: ANN401 (the user's records)
        if index < self.first:
            return self.dataset[index]
        if self.examples is None:
            return self.dataset[0]
        return self.examples[index - self.first]


def with_canaries(
    dataset: Dataset[Any],
    *,
    canaries: int | None = None,
    examples: Dataset[Any] | Sequence[Any] | None = None,
) -> CanaryDataset:
    """Return a data set that ends with canaries; give it to ``make_private``.

    They count as records: the sampling rate and the accountant's epsilon are those of
    the larger data set, whatever the secret bits.

    Args:
        dataset: The real records.
        canaries: Number of canaries, each with a gradient that the audit writes: many,
            at no cost. Not with ghost clipping.
        examples: Instead, the canaries themselves, in the format of the data set's
            records: a few dozen inputs, such as real ones with wrong labels. They keep
            their own gradients, in any mode including ghost clipping; each costs a step
            on it alone for every training step.
    """
    if (canaries is None) == (examples is None):
        raise InvalidInputError(
            "give canaries=..., how many, or examples=..., the canaries themselves"
        )
    for name, records in (("dataset", dataset), ("examples", examples)):
        if records is not None and not _length(records):
            raise InvalidInputError(
                f"{name} must have a length, and one record or more"
            )
    if canaries is None:
        return CanaryDataset(dataset, _length(examples), examples)
    _validate.whole_number("canaries", canaries, least=1)
    return CanaryDataset(dataset, int(canaries))


def _length(records: Any) -> int:  # noqa: ANN401 (any collection)
    return len(records) if hasattr(records, "__len__") else 0


def hidden_canaries(data: object) -> bool:
    """Return whether some part of a data set contains canaries."""
    parts = [getattr(data, "dataset", None), *(getattr(data, "datasets", None) or ())]
    return any(
        isinstance(part, CanaryDataset) or hidden_canaries(part)
        for part in parts
        if part is not None
    )


def record_source(loader: Loader) -> tuple[int, Callable[[NDArray[np.int64]], Any]]:
    """Return the number of real records, and a function that collates some of them."""
    data = loader.dataset
    if isinstance(data, CanaryDataset):
        data = data.dataset
    if not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
        raise InvalidInputError(
            "records cannot be picked from this data set; pass a batch of them: "
            "audit.probe(step, batch)"
        )
    collate = loader.collate_fn or default_collate
    return len(data), lambda rows: collate([data[int(row)] for row in rows])


@final
class NotedBatches(Sampler[list[int]]):
    """Yields a sampler's batches, and records them in order.

    Once the audit has ended or failed, and no longer overwrites their gradients,
    canaries are left out of the batches.

    Args:
        sampler: Any batch sampler.
        first: Number of the first canary among the records.
        guard: The audit's guard.

    Attributes:
        attached: Whether the audit has not ended.
    """

    def __init__(self, sampler: Any, first: int, guard: Guard) -> None:  # noqa: ANN401
        self._sampler, self._first, self._guard = sampler, first, guard
        self._notes: deque[NDArray[np.int64]] = deque()
        self.attached = True

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[list[int]]:
        self._notes.clear()  # left over from an interrupted epoch
        for batch in self._sampler:
            if self.attached:
                self._guard.run(self._note, batch)
            if self.attached and self._guard.failure is None:
                yield batch
            else:
                yield [record for record in batch if int(record) < self._first]

    def _note(self, batch: Sequence[int]) -> None:
        self._notes.append(np.asarray(batch, np.int64))

    def next(self) -> NDArray[np.int64]:
        """Return the oldest batch that was not returned yet."""
        if not self._notes:
            raise InvalidRunError(
                "a step was made on a batch that the audit did not see; train on "
                "audit.data_loader, and if there is a BatchMemoryManager, give it that"
            )
        return self._notes.popleft()


@final
class RowsOfBatches:
    """Maps the rows of a logical batch, which comes in parts, to records.

    Args:
        noted: The recorded batches.
    """

    def __init__(self, noted: NotedBatches) -> None:
        self._noted = noted
        self._batch: NDArray[np.int64] | None = None

    def next(self, count: int) -> NDArray[np.int64]:
        """Return the numbers of the next ``count`` records of the logical batch."""
        batch = self._noted.next() if self._batch is None else self._batch
        if not len(batch):  # a random row may replace an empty batch
            return batch
        if count > len(batch):
            raise InvalidRunError(
                f"a step was made on {count} records, but the sampler had picked "
                f"{len(batch)} that were left; every batch of audit.data_loader must "
                "be used in one step, none skipped and none used twice"
            )
        self._batch = batch[count:] if count < len(batch) else None
        return batch[:count]

    def end(self) -> None:
        """Raise if part of the logical batch is unused."""
        if self._batch is not None:
            raise InvalidRunError(
                f"a step ended with {len(self._batch)} records of its batch unused; "
                "every batch of audit.data_loader must be used in one step, none "
                "skipped, none used twice, none fetched ahead of an epoch"
            )


def noted_loader(
    loader: Loader, first: int, attachment: Attachment
) -> tuple[Loader, RowsOfBatches]:
    """Return a loader that records its batches, and the mapping of rows to records.

    Args:
        loader: The loader.
        first: Number of the first canary among the records.
        attachment: Ends the recording.
    """
    noted = NotedBatches(loader.batch_sampler, first, attachment.guard)
    attachment.on_close(lambda: setattr(noted, "attached", False))
    return DataLoader(
        dataset=loader.dataset,
        batch_sampler=noted,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=loader.generator,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.persistent_workers,
    ), RowsOfBatches(noted)


@final
class RecordInserter:
    """Overwrites the gradients of canary records; knows the secret bits.

    Args:
        optimizer: Opacus' optimizer.
        layout: Positions of all canaries.
        audit: Holds the inclusion of each canary, and receives what was read.
        norms: Norms of included canaries before clipping, over the clipping norm, for
            each coordinate.
        rows: Maps the rows of a batch to records.
        first: Number of the first canary among the records.
        reader: Receives each step's start, and each batch with canaries' rows at zero.
        noise: Receives each step's sum before and after its noise.
        attachment: Removes everything again.

    Attributes:
        step: How many steps began.
    """

    def __init__(  # noqa: PLR0913 (its parts)
        self,
        optimizer: DPOptimizer,
        layout: Layout,
        audit: TrainingAudit,
        *,
        norms: NDArray[np.float64],
        rows: RowsOfBatches,
        first: int,
        reader: SumsReader,
        noise: NoiseReader,
        attachment: Attachment,
    ) -> None:
        self._optimizer, self._layout, self._norms = optimizer, layout, norms
        self._reader, self.step = reader, 0
        self._noise, self._to_host = noise, attachment.to_host
        self._audit, self._joined = audit, np.zeros(layout.coordinates)
        self._summed: Values = []  # over all ranks, if there are several
        self._included, self._rows, self._first = audit.draws.included, rows, first
        self._size = len(self._included) // layout.coordinates
        parameters = optimizer.params
        self._offsets = [
            (parameters[part.array], part.offset_of(layout.coordinates))
            for part in layout.parts
        ]
        attachment.before_summing(self._overwrite_all)
        attachment.before_noise(self._begin)
        attachment.add_up(self._of_rank, self._use_sums)
        # Runs after the reader's hook, which was registered first.
        attachment.before(self._observe)

    def _overwrite_all(self) -> None:
        self._reader.steps.check_parameters()
        parameters = self._optimizer.params
        for part in range(batch_parts(parameters[0])):
            grads = own_memory(parameters, part)
            count = len(grads[parameters[0]])
            self._overwrite(grads, self._rows.next(count))

    def _overwrite(
        self,
        grads: dict[torch.nn.Parameter, torch.Tensor],
        records: NDArray[np.int64],
    ) -> None:
        """Overwrite the rows of the canaries among a batch's records."""
        rows = np.flatnonzero(records >= self._first)
        canaries = records[rows] - self._first
        inside = self._included[canaries]
        joined, coordinates = rows[inside], canaries[inside] // self._size
        self._joined += np.bincount(coordinates, minlength=len(self._joined))
        sizes = self._norms[coordinates] * self._layout.weight
        sizes *= float(self._optimizer.max_grad_norm)
        devices = dict.fromkeys(grad.device for grad in grads.values())
        sent: list[tuple[NDArray[Any], torch.device]] = [(rows, d) for d in devices]
        for parameter, offset_of in self._offsets:
            offsets = offset_of[coordinates]
            here = offsets >= 0
            sent += [
                (part[here], grads[parameter].device)
                for part in (joined, offsets, sizes)
            ]
        arrived = iter(to_devices(sent))
        of_canaries = {device: next(arrived) for device in devices}
        for grad in grads.values():
            grad.index_fill_(0, of_canaries[grad.device], 0.0)
        self._reader.begin_records(grads)
        for parameter, _ in self._offsets:
            _write(grads[parameter], *islice(arrived, 3))

    def _begin(self) -> None:
        self._rows.end()
        self._reader.begin()
        self.step += 1
        self._noise.before()

    def _of_rank(self) -> Values:
        """Return how often each canary joined on this rank."""
        device = local(self._optimizer.params[0]).device
        return to_devices([(self._joined, device)])

    def _use_sums(self, sums: Values) -> None:
        self._summed = sums

    def _observe(self) -> None:
        size = clipped_size(self._optimizer, self._layout, self._norms)
        reader, to_host, own = self._reader, self._to_host, self._joined.copy()
        observe = partial(
            self._audit.observe, noise=reader.steps.noise, clip=reader.steps.clip
        )

        def received(summed: NDArray[np.float64]) -> None:
            joined = summed if len(summed) else own
            observe(reader.last, (size * joined)[reader.coordinates])

        to_host.add(received, self._summed)
        self._noise.after(self._audit, to_host)
        self._joined.fill(0.0)


def _write(
    grad: torch.Tensor, rows: torch.Tensor, offsets: torch.Tensor, values: torch.Tensor
) -> None:
    """Write a value into each row at an offset, whatever the tensor's layout."""
    # A parameter that is a scalar has one row each, without further dimensions.
    inner = torch.unravel_index(offsets, grad.shape[1:]) if grad.dim() > 1 else ()
    grad.index_put_((rows, *inner), values.to(grad.dtype))


def batch_parts(parameter: Any) -> int:  # noqa: ANN401 (Opacus' attributes)
    """Return how many batches' gradients a parameter has accumulated."""
    kept = parameter.grad_sample
    return len(kept) if isinstance(kept, list) else 1


def own_memory(
    parameters: Sequence[Any], part: int
) -> dict[torch.nn.Parameter, torch.Tensor]:
    """Return a batch's gradients of each parameter, none sharing memory with others.

    Opacus may use one tensor for two parameters, or one row for all rows; writing one
    canary's gradient must not change others.
    """
    grads: dict[torch.nn.Parameter, torch.Tensor] = {}
    taken = set()
    for parameter in parameters:
        kept = parameter.grad_sample
        grad: torch.Tensor = kept[part] if isinstance(kept, list) else kept
        repeated = any(
            s == 0 < n - 1 for n, s in zip(grad.shape, grad.stride(), strict=True)
        )
        if repeated or grad.data_ptr() in taken:
            grad = grad.clone(memory_format=torch.contiguous_format)
            if isinstance(kept, list):
                kept[part] = grad
            else:
                parameter.grad_sample = grad
        taken.add(grad.data_ptr())
        grads[parameter] = grad
    return grads
