"""Chooses how canaries are inserted into an Opacus run, where, and who reads them.

*Added to sums*, in any mode; *records* whose gradients are written, where per-record
gradients exist; *examples* with their own gradients, in any mode. The data set of the
loader decides which; what it does not support is refused before training.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import sqrt
from typing import Final, Protocol, TypeAlias, final

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.optimizers import DPOptimizer
from torch import nn
from torch.distributed.tensor import DTensor

from dpaudit import _validate
from dpaudit.dpsgd.sampling import Poisson
from dpaudit.errors import InvalidInputError
from dpaudit.game.coins import Key
from dpaudit.game.design import Design
from dpaudit.game.findings import Finding, Stage, canary_tested
from dpaudit.game.setting import InsertionPoint
from dpaudit.training.audit import TrainingAudit, coordinates_needed
from dpaudit.training.canary_coverage import checks_of_records
from dpaudit.training.layout import Layout
from dpaudit.training.opacus.attachment import Attachment
from dpaudit.training.opacus.examples import (
    ExampleInserter,
    ExampleReader,
    each_example,
)
from dpaudit.training.opacus.isolated_step import Model, network
from dpaudit.training.opacus.noise_reader import NoiseReader
from dpaudit.training.opacus.ranks import rank_and_world
from dpaudit.training.opacus.records import (
    CanaryDataset,
    RecordInserter,
    hidden_canaries,
    noted_loader,
)
from dpaudit.training.opacus.setup import Facts, Loader, held_here, is_sharded
from dpaudit.training.opacus.step_runner import Step, check_step
from dpaudit.training.opacus.sums import SumInserter
from dpaudit.training.opacus.sums_reader import SumsReader

__all__ = [
    "Canary",
    "Inserter",
    "OpacusInsertion",
    "Reader",
    "canary_layout",
    "check_poisson",
    "insertion_of",
    "parameter_types_of",
]

Reader: TypeAlias = SumsReader | ExampleReader
Inserter: TypeAlias = SumInserter | RecordInserter | ExampleInserter
Paused: TypeAlias = Callable[[], AbstractContextManager[None]]

_OTHER: Final = "other layers"
_ADAPTERS, _EMBEDDINGS, _HEADS = "LoRA matrices", "embeddings", "heads"
_TIED: Final = "embeddings that are heads too"
_HEAD_NAMES: Final = {"lm_head", "score", "classifier"}  # as transformers calls them
_GOLDEN: Final = (sqrt(5) - 1) / 2  # its multiples fill the unit interval evenly
_MAX_NORM: Final = 10.0  # of canaries that are to be clipped, over the clipping norm
_MIN_NORM: Final = 1.25  # the smallest of these


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """The gradient of an included canary.

    Attributes:
        norm: Its norm before clipping, over the clipping norm. Above 1 it tests the
            clipping, which only canaries that are records pass through.
        spread: Number of parameters in which it has a coordinate, equal in all.
        least: The smallest norm, if canaries have several: from it to ``norm``, in
            equal ratios. By default all have ``norm``.

    Example:
        >>> Canary(norm=8.0, least=2.0).norms(4).round(1)
        array([2. , 4.7, 2.8, 6.5])
    """

    norm: float = 1.0
    spread: int = 1
    least: float | None = None

    def __post_init__(self) -> None:
        _validate.positive("norm", self.norm)
        _validate.whole_number("spread", self.spread, least=1)
        if self.least is not None and not 0 < self.least <= self.norm:
            raise InvalidInputError(
                f"least must be above 0 and at most norm={self.norm:g}, got "
                f"least={self.least!r}"
            )

    def norms(self, coordinates: int) -> NDArray[np.float64]:
        """Return the norm at each coordinate, spread evenly within every layer."""
        least = self.norm if self.least is None else self.least
        share = np.arange(coordinates) * _GOLDEN % 1
        return np.asarray(least * (self.norm / least) ** share, np.float64)


class OpacusInsertion(Protocol):
    """A way to insert canaries.

    Attributes:
        point: Where canaries are inserted.
        canary: The gradient of an included canary.
        mine: Which coordinates this rank reads.
        groups: The parameter number of each of these; None if they form one group.
        data_loader: The loader to train on.
    """

    point: InsertionPoint
    canary: Canary
    mine: NDArray[np.bool_]
    groups: NDArray[np.int64] | None
    data_loader: Loader

    def attach(
        self,
        audit: TrainingAudit,
        noise: NoiseReader,
        paused: Paused,
        attachment: Attachment,
    ) -> tuple[Reader, Inserter]:
        """Return the reader of sums and the inserter of canaries, both attached.

        Args:
            audit: Holds the inclusion of each canary, and receives what was read.
            noise: Receives each step's sum before and after its noise.
            paused: A context in which no change is recorded.
            attachment: Removes everything again.
        """

    def findings(self) -> Iterator[Finding]:
        """Return what canaries showed about stages, once the training run is over."""


def insertion_of(  # noqa: PLR0913 (what decides it)
    optimizer: DPOptimizer,
    data_loader: Loader,
    facts: Facts,
    design: Design,
    *,
    model: Model | None,
    step: Step | None,
    canary: Canary | None,
    knows_real_sums: bool,
    key: Key,
) -> OpacusInsertion:
    """Return the insertion of a loader's canaries; see ``OpacusAudit``."""
    _check_sharded(optimizer)
    records = _canary_records(data_loader, design)
    if records is not None:
        _check_knowledge(facts, knows_real_sums=knows_real_sums)
    if records is not None and records.examples is not None:
        if canary is not None or coordinates_needed(design) != design.canaries:
            raise InvalidInputError(
                "canary=... and several canaries per coordinate are for gradients that "
                "the audit writes; examples have their own, one each"
            )
        if not knows_real_sums:
            raise InvalidInputError(
                "canaries that are examples are read beside what real records put in: "
                "use Poisson sampling and leave knows_real_sums=True"
            )
        return _Examples(optimizer, data_loader, facts, records, model, step)
    if canary is None:
        canary = (
            Canary() if records is None else Canary(norm=_MAX_NORM, least=_MIN_NORM)
        )
    if records is None:
        _check_sums(facts, data_loader, canary)
    elif "FastGradientClipping" in type(optimizer).__name__:
        raise InvalidInputError(
            "ghost clipping keeps no per-record gradients that could be written; leave "
            "the data set as it is, and canaries are added to the sums, or give it "
            "with_canaries(dataset, examples=...), which have gradients of their own"
        )
    layout = canary_layout(
        optimizer.params,
        coordinates=coordinates_needed(design),
        spread=canary.spread,
        key=key,
    )
    return _Written(
        optimizer,
        data_loader,
        records,
        layout,
        canary,
        model,
        knows_real_sums=knows_real_sums,
    )


@final
class _Written:
    """Canaries whose gradients the audit writes: into sums, or as records."""

    def __init__(
        self,
        optimizer: DPOptimizer,
        data_loader: Loader,
        records: CanaryDataset | None,
        layout: Layout,
        canary: Canary,
        model: Model | None,
        *,
        knows_real_sums: bool,
    ) -> None:
        added = records is None
        self.point = InsertionPoint.GRADIENT_SUM if added else InsertionPoint.GRADIENT
        self.canary, self.mine = canary, layout.held()
        self.groups: NDArray[np.int64] | None = layout.groups[self.mine]
        self.data_loader = data_loader
        self._optimizer, self._records, self._layout = optimizer, records, layout
        self._knows_real_sums = knows_real_sums
        parameters = optimizer.params
        kinds = parameter_types_of(
            model, [parameters[part.array] for part in layout.parts]
        )
        self._kinds = [] if {*kinds} == {_OTHER} else kinds

    def attach(
        self,
        audit: TrainingAudit,
        noise: NoiseReader,
        paused: Paused,
        attachment: Attachment,
    ) -> tuple[Reader, Inserter]:
        del paused
        optimizer, layout = self._optimizer, self._layout
        reader = SumsReader(
            optimizer,
            layout,
            attachment.to_host,
            knows_real_sums=self._knows_real_sums,
        )
        if not is_sharded(optimizer):  # else each rank reads coordinates of its own
            for each in (reader, noise):
                attachment.add_up(each.of_rank, each.use_sums)
        attachment.before(reader.read)
        if self._records is None:
            return reader, SumInserter(
                optimizer,
                layout.only(_inserted_here(optimizer, layout)),
                audit,
                norm=self.canary.norm,
                reader=reader,
                noise=noise,
                attachment=attachment,
            )
        self.data_loader, rows = noted_loader(
            self.data_loader, self._records.first, attachment
        )
        return reader, RecordInserter(
            optimizer,
            layout,
            audit,
            norms=self.canary.norms(layout.coordinates),
            rows=rows,
            first=self._records.first,
            reader=reader,
            noise=noise,
            attachment=attachment,
        )

    def findings(self) -> Iterator[Finding]:
        yield _places_checked(self._layout, self._kinds)
        if self._records is not None:
            yield from checks_of_records(norm=self.canary.norm, least=self.canary.least)


@final
class _Examples:
    """Canaries that are examples."""

    point = InsertionPoint.EXAMPLE

    def __init__(
        self,
        optimizer: DPOptimizer,
        data_loader: Loader,
        facts: Facts,
        records: CanaryDataset,
        model: Model | None,
        step: Step | None,
    ) -> None:
        if model is None or step is None:
            raise InvalidInputError(
                "canaries that are examples need the model and what you do with a "
                "batch: OpacusAudit(..., model=model, step=step)"
            )
        check_step(step)
        if rank_and_world(optimizer)[1] > 1:
            raise InvalidInputError(
                "canaries that are examples are for one process; on several ranks use "
                "with_canaries(dataset, canaries=...)"
            )
        self.canary, self.data_loader = Canary(), data_loader
        self.mine = np.ones(records.canaries, bool)
        self.groups: NDArray[np.int64] | None = None
        self._optimizer, self._model, self._step = optimizer, model, step
        self._rate, self._first = facts.rate, records.first
        self._reader: ExampleReader | None = None

    def attach(
        self,
        audit: TrainingAudit,
        noise: NoiseReader,
        paused: Paused,
        attachment: Attachment,
    ) -> tuple[Reader, Inserter]:
        reader = ExampleReader(
            self._step,
            self._model,
            self._optimizer,
            each_example(self.data_loader),
            rate=self._rate,
        )
        self._reader = reader
        self.data_loader, rows = noted_loader(self.data_loader, self._first, attachment)
        return reader, ExampleInserter(
            self._model,
            self._optimizer,
            audit,
            rows=rows,
            first=self._first,
            reader=reader,
            noise=noise,
            paused=paused,
            attachment=attachment,
        )

    def findings(self) -> Iterator[Finding]:
        assert self._reader is not None
        return self._reader.findings()


def canary_layout(
    parameters: Sequence[torch.Tensor],
    *,
    coordinates: int,
    spread: int,
    key: Key,
) -> Layout:
    """Return a layout where each canary coordinate has its own direction, from the key.

    Every parameter has some, as a fault may affect only one of them. For a sharded one
    only those in this rank's rows are returned.
    """
    shapes = [tuple(parameter.shape) for parameter in parameters]
    if spread == 1:
        layout = Layout.in_each(shapes, coordinates, key=key)
        return held_here(layout, parameters)
    layout = Layout.spread(shapes, coordinates, over=spread, key=key)
    if any(isinstance(parameters[part.array], DTensor) for part in layout.parts):
        raise InvalidInputError(
            "canaries spread over several parameters cannot be put into sharded ones, "
            "as no rank holds all of their coordinates; use spread=1"
        )
    return layout


def _places_checked(layout: Layout, kinds: Sequence[str]) -> Finding:
    """Return how canaries are spread over parameters.

    Args:
        layout: Positions of the canaries.
        kinds: Types of the parameters that have some, if these are distinguished.
    """
    counts = [len(part.which) for part in layout.parts]
    numbers = {
        "parameters": len(counts),
        "least": min(counts, default=0),
        "most": max(counts, default=0),
    }
    for kind, count in zip(kinds, counts, strict=bool(kinds)):
        for name, more in (("parameters", 1), ("coordinates", count)):
            key = f"{name} of {kind}"
            numbers[key] = numbers.get(key, 0) + more
    different = dict.fromkeys(kinds)
    return canary_tested(Stage.NOISE_SCALE, "canaries.places", different, **numbers)


def parameter_types_of(
    model: Model | None, parameters: Sequence[torch.nn.Parameter]
) -> list[str]:
    """Return the type of each parameter; without a model all are "other layers".

    A fault may affect only one type: a head that shares its weight with the embedding,
    an adapter that is left out of the clipping.
    """
    types: defaultdict[int, set[str]] = defaultdict(set)
    if model is not None:
        for name, module in network(model).named_modules(remove_duplicate=False):
            for parameter in module._parameters.values():
                types[id(parameter)].add(_kind(name, module))
    return [_single_type(types[id(parameter)]) for parameter in parameters]


def _kind(name: str, module: nn.Module) -> str:
    parts = name.split(".")
    if any(part.startswith("lora_") for part in parts):
        return _ADAPTERS
    if _HEAD_NAMES.intersection(parts):
        return _HEADS
    return _EMBEDDINGS if isinstance(module, nn.Embedding) else _OTHER


def _single_type(kinds: set[str]) -> str:
    if kinds == {_EMBEDDINGS, _HEADS}:
        return _TIED
    return kinds.pop() if len(kinds) == 1 else _OTHER


def _canary_records(data_loader: Loader, design: Design) -> CanaryDataset | None:
    """Return the data set with canaries, if there is one."""
    data = data_loader.dataset
    if not isinstance(data, CanaryDataset):
        if hidden_canaries(data):
            raise InvalidInputError(
                "the data set holds canaries, but inside another; call "
                "with_canaries(...) last, on what is given to the loader"
            )
        return None
    if data.canaries != design.canaries:
        raise InvalidInputError(
            f"the data set was given canaries={data.canaries}, but the design has "
            f"canaries={design.canaries}; use the same number"
        )
    return data


def _inserted_here(optimizer: DPOptimizer, layout: Layout) -> NDArray[np.bool_]:
    """Return which coordinates this rank writes to; no other rank does."""
    if is_sharded(optimizer):
        return layout.held()
    rank, world = rank_and_world(optimizer)
    here: NDArray[np.bool_] = np.arange(layout.coordinates) % world == rank
    return here


def _check_sharded(optimizer: DPOptimizer) -> None:
    if is_sharded(optimizer) and optimizer.loss_reduction != "mean":
        raise InvalidInputError(
            "sharded training is audited with loss_reduction='mean': with 'sum' Opacus "
            "averages gradients over ranks and not the noise"
        )


def _check_knowledge(facts: Facts, *, knows_real_sums: bool) -> None:
    """Refuse to reveal what no accountant's proof lets the adversary know.

    Poisson draws are independent, so the real records' contribution to a sum shows
    nothing about the draws of canaries. For a shuffled batch of fixed size it shows how
    many of its records are canaries.
    """
    if knows_real_sums and not isinstance(facts.sampling, Poisson):
        raise InvalidInputError(
            "the loader shuffles: what real records put into a batch of fixed size "
            "tells how many canaries are in it, which no accountant of shuffling "
            "lets the observer know, so that a true claim could be refuted; pass "
            "knows_real_sums=False"
        )


def check_poisson(facts: Facts, data_loader: Loader) -> None:
    """Refuse a loader whose sampling no accountant of Poisson sampling covers.

    Canaries that are records can detect it; those that are added to sums cannot.
    """
    if isinstance(data_loader.dataset, CanaryDataset):
        return
    if not isinstance(facts.sampling, Poisson):
        raise InvalidInputError(
            "data_loader must be the Poisson loader that make_private returned, got "
            f"{type(data_loader).__name__}; without Poisson sampling the accountant's "
            "claim does not hold. To see whether that shows, make canaries records: "
            "with_canaries(dataset, canaries=...) before make_private"
        )


def _check_sums(facts: Facts, data_loader: Loader, canary: Canary) -> None:
    check_poisson(facts, data_loader)
    if canary.least is not None:
        raise InvalidInputError(
            "canaries of several norms (least=...) are for the clipping to cut; make "
            "them records: with_canaries(dataset, canaries=...) before make_private"
        )
    if canary.norm > 1:
        raise InvalidInputError(
            f"a canary of norm={canary.norm:g} clipping norms is for the clipping to "
            "cut, which sums do not run through; make canaries records: "
            "with_canaries(dataset, canaries=...) before make_private"
        )
