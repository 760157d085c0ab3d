"""Checks of the user's own step: at the opening, and at steps that nobody knows.

A check asks two things in a copy of the process: how much one record changes the sum
before noise (``probe``), and whether anything but the noisy sums depends on records
(``interference``). What holds at the opening may not hold later: clipping may be
replaced, a threshold reached. So it is asked again at steps that are drawn from the
key, and when what steers the steps changes. How often is fixed beforehand, so that the
checks take a tenth of the run's time, or two seconds of a short one.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, final

import numpy as np
import torch
from numpy.typing import NDArray
from opacus.optimizers import DPOptimizer

from dpaudit.errors import InvalidInputError
from dpaudit.game.findings import (
    Finding,
    Stage,
    Status,
    fault,
    inspected,
    not_checked,
    noted,
)
from dpaudit.training.opacus.attachment import BareSteps
from dpaudit.training.opacus.clipping_of_many import left_of_many
from dpaudit.training.opacus.interference import (
    CONTROLS,
    Interference,
    batches_of,
)
from dpaudit.training.opacus.isolated_step import Model, network, random_states
from dpaudit.training.opacus.probe import probe_sensitivity
from dpaudit.training.opacus.records import record_source
from dpaudit.training.opacus.rehearsal import Train, rehearse
from dpaudit.training.opacus.setup import Loader, batch_size
from dpaudit.training.opacus.step_runner import (
    Batch,
    NoStepError,
    Step,
    check_step,
    records_in,
    rows_of,
)
from dpaudit.training.probe.report import Sensitivity
from dpaudit.training.process_copy import CopyFailedError, in_copy, why_no_copy

__all__ = ["StepChecks"]

_SHARE: Final = 0.1  # of the run's time
_LITTLE: Final = 2.0  # seconds, that a short run's checks may take as well
_MOST: Final = 3  # checks at secret steps, and as many when something changes
_RECORDS_AGAIN: Final = 2  # that leave, one at a time, at secret steps
_MANY: Final = 256  # records of which it is asked what clipping leaves
_ROUNDING: Final = 0.02  # of a norm in half precision
_PROBED: Final = 12  # records of a probe
_FEWEST: Final = 6  # records of which batches can be compared
_PATIENCE: Final = 600.0  # seconds
_WORLD: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Examined:
    """What one check showed.

    Attributes:
        sensitivity: How much one record changes the sum.
        findings: What besides noisy sums depends on records.
        written: Parameters and buffers that are written to besides by the optimizer,
            alike whatever the records.
        bare: Where a rehearsal saw steps without noise.
        seconds: That the comparison took.
        step_seconds: That one step took.
    """

    sensitivity: Sensitivity
    findings: tuple[Finding, ...]
    written: frozenset[str]
    bare: frozenset[str]
    seconds: float
    step_seconds: float


@dataclass(slots=True)
class _Kept:
    """What is kept of checks at secret steps.

    Attributes:
        steps: After how many steps each was made.
        largest: The largest change of the sum by one record, over the clipping norm.
        failed: After how many steps one could not be made.
    """

    steps: list[int] = field(default_factory=list)
    largest: float = 0.0
    failed: list[int] = field(default_factory=list)


@final
class StepChecks:
    """Checks the user's step in copies of the process.

    Args:
        model: As ``make_private`` returned it.
        optimizer: Likewise.
        loader: Likewise.
        close: Takes the audit off, in a copy.
        skips_bare: Which steps without noise are passed over; added to.
        rng: Draws records and steps; from the key.

    Attributes:
        examined: Parameters, buffers and optimizers that steps change besides by the
            private optimizer; what depends on records is a fault.
        compared: Whether steps were compared on batches of other records.
        reworked: Whether noisy sums are changed before they are applied, by what was
            not seen to depend on records.
    """

    def __init__(
        self,
        model: Model,
        optimizer: DPOptimizer,
        loader: Loader,
        *,
        close: Callable[[], object],
        skips_bare: BareSteps,
        rng: np.random.Generator,
    ) -> None:
        self._model, self._optimizer, self._loader = model, optimizer, loader
        self._close, self._rng = close, rng
        self._batch_size = batch_size(loader)
        self._skips_bare = skips_bare
        self._step: Step | None = None
        self._due: list[int] = []
        self._changes_left = 0
        self._steering: object = None
        self._kept = _Kept()
        self.examined: set[str] = set()
        self.compared = self.reworked = False

    def check(
        self,
        step: Step,
        batch: Batch | None = None,
        *,
        train: Train | None = None,
        steps: int | None = None,
        records: int = 8,
        generators: Sequence[torch.Generator] = (),
        seed: int = 0,
    ) -> tuple[Sensitivity, tuple[Finding, ...]]:
        """Check a step now; afterwards all is as it was.

        Args:
            step: The user's own.
            batch: Real records; some of the data set's if left out.
            train: The user's whole loop.
            steps: How many steps it makes, if that is known.
            records: How many records leave the batch, one at a time.
            generators: Random generators that the step draws from, besides torch's,
                numpy's and Python's own.
            seed: For all of them.
        """
        check_step(step)
        why = why_no_copy()
        if why is not None:
            unseen = not_checked(Stage.SIDE_PATHS, f"interference.{why}")
            sensitivity = self._sensitivity(step, batch, records, generators, seed)
            self.examined |= {*sensitivity.beside}
            self.reworked |= sensitivity.reworked
            return sensitivity, (unseen,)
        rng = self._another_rng()

        def examine() -> _Examined:
            return self._examine(
                step,
                batch,
                rng,
                train=train,
                steps=steps,
                records=records,
                generators=generators,
                seed=seed,
            )

        try:
            found = in_copy(examine, seconds=_PATIENCE)
        except CopyFailedError as error:
            raise InvalidInputError(
                f"step(batch) could not be run on records of the data set: {error}"
            ) from None
        self.examined |= {*found.written, *found.sensitivity.beside}
        self.compared |= _compared(found.findings)
        self.reworked |= found.sensitivity.reworked and not any(
            each.status is Status.FAULT for each in found.findings
        )
        self._skips_bare.places |= found.bare
        if self._step is None and steps is not None:
            self._plan(step, steps, found)
        return found.sensitivity, found.findings

    def _plan(self, step: Step, steps: int, found: _Examined) -> None:
        """Draw the steps after which it is asked again."""
        self._step, self._steering = step, self._steers()
        cost = found.seconds + found.sensitivity.sums * found.step_seconds / 3
        afford = int(
            max(_SHARE * steps * found.step_seconds, _LITTLE) / max(cost, 1e-9)
        )
        count = min(_MOST, afford, max(0, steps - 1))
        self._changes_left = _MOST
        drawn = self._rng.choice(max(steps - 1, 1), count, replace=False) + 1
        self._due = sorted(drawn.tolist())

    def between(self, made: int) -> Iterator[Finding]:
        """Check again, if it is time to; return what is wrong.

        Args:
            made: How many steps were made so far.
        """
        if self._step is None:
            return
        due = bool(self._due) and made >= self._due[0]
        steering = self._steers()
        changed = steering != self._steering and self._changes_left > 0
        if not (due or changed):
            return
        self._steering = steering
        self._changes_left -= changed
        while self._due and made >= self._due[0]:
            self._due.pop(0)
        step, rng = self._step, self._another_rng()
        try:
            found = in_copy(
                lambda: self._examine(step, None, rng, records=_RECORDS_AGAIN),
                seconds=_PATIENCE,
            )
        except (CopyFailedError, InvalidInputError):
            self._kept.failed.append(made)
            return
        self._kept.steps.append(made)
        self.examined |= {*found.written, *found.sensitivity.beside}
        self._kept.largest = max(self._kept.largest, found.sensitivity.change or 0.0)
        yield from found.sensitivity.faults
        for each in found.findings:
            if each.status in (Status.FAULT, Status.INCONCLUSIVE):
                yield each

    def findings(self) -> Iterator[Finding]:
        """Return what checks at secret steps showed."""
        kept = self._kept
        if self.reworked:
            yield noted("probe.reworked")
        if kept.steps:
            numbers = {"checks": len(kept.steps), "last": max(kept.steps)}
            yield inspected(
                Stage.CLIPPING, "probe.again", change=kept.largest, **numbers
            )
            yield inspected(Stage.SIDE_PATHS, "interference.again", **numbers)
        if kept.failed:
            yield noted("interference.not_again", step=kept.failed[0])

    def _steers(self) -> object:
        """Return what steers a step, besides the learning rate."""
        optimizer = self._optimizer
        return (
            *(repr(getattr(optimizer, name, None)) for name in CONTROLS),
            tuple(id(parameter) for parameter in optimizer.params),
            tuple(p.requires_grad for p in network(self._model).parameters()),
            *(
                getattr(optimizer, name, None)
                for name in ("clip_and_accumulate", "add_noise", "step")
            ),
        )

    def _another_rng(self) -> np.random.Generator:
        return np.random.default_rng(self._rng.integers(2**63))

    def _records(
        self, batch: Batch | None
    ) -> tuple[int, Callable[[NDArray[np.int64]], Batch]]:
        return record_source(self._loader) if batch is None else _rows(batch)

    def _sensitivity(
        self,
        step: Step,
        batch: Batch | None,
        records: int,
        generators: Sequence[torch.Generator],
        seed: int,
    ) -> Sensitivity:
        """Return how much one record changes the sum."""
        collate, collated = None, 0
        if batch is None:
            with random_states():  # a data set may draw, as augmentations do
                count, records_at = self._records(None)
                at = np.unique(np.linspace(0, count - 1, _PROBED).astype(np.int64))
                batch, collated = records_at(at), len(at)

            def collate(rows: Sequence[int]) -> Batch:
                return records_at(at[np.asarray(rows)])

        probe = partial(
            probe_sensitivity,
            step,
            self._model,
            self._optimizer,
            batch,
            collate=collate,
            collated=collated,
            records=records,
            generators=generators,
            seed=seed,
        )
        found = probe()
        again = found.unseen is not None and found.unseen.code == "probe.not_repeated"
        if again and why_no_copy() is None:  # it may keep something in Python objects
            return probe(apart=True)
        return found

    def _gradient_bytes(self) -> int:
        """Return how large the gradient of one record is, where each has one."""
        if hasattr(self._model, "get_clipping_coef"):  # with ghost clipping none has
            return 0
        return sum(p.numel() * p.element_size() for p in self._optimizer.params)

    def _examine(
        self,
        step: Step,
        batch: Batch | None,
        rng: np.random.Generator,
        *,
        records: int,
        train: Train | None = None,
        steps: int | None = None,
        generators: Sequence[torch.Generator] = (),
        seed: int = 0,
    ) -> _Examined:
        """Examine a step; called in a copy of the process."""
        self._close()
        none: NoStepError | None = None
        sensitivity = Sensitivity(unseen=not_checked(Stage.CLIPPING, "probe.no_step"))
        try:
            sensitivity = self._sensitivity(step, batch, records, generators, seed)
        except NoStepError as error:
            none = error
        count, records_at = self._records(batch)
        started = _cpu_seconds()
        compared = Interference(
            step,
            self._model,
            self._optimizer,
            seconds=_WORLD,
            train=train,
            leave_out=[self._loader],
        )
        findings: list[Finding] = []
        if count >= _FEWEST:
            batches = batches_of(
                count,
                records_at,
                rng,
                size=self._batch_size,
                bytes_each=self._gradient_bytes(),
            )
            coupled = {each.stage for each in sensitivity.faults} & {Stage.GRADIENTS}
            findings += (
                each
                for each in compared.check(batches)
                if not (coupled and each.code == "interference.coupled")
            )
        else:
            few = not_checked(Stage.SIDE_PATHS, "interference.few", count=count)
            findings.append(few)
        if none is not None and compared.unapplied:
            raise NoStepError(
                "noise is added, and the optimizer that Opacus wraps makes no step, "
                "where the audit reads what was released; call optimizer.step()"
            )
        if none is not None and not _compared(findings):
            raise none
        findings += self._of_many(step, count, records_at, rng)
        seconds = _cpu_seconds() - started
        written, bare = set(compared.written), set[str]()
        if train is not None:
            played = rehearse(
                train,
                self._model,
                self._optimizer,
                self._loader,
                steps=steps,
                rng=rng,
                seconds=_WORLD,
                own_noise=compared.own_noise,
            )
            findings += played.findings
            written |= played.written
            bare = played.bare
        return _Examined(
            sensitivity=sensitivity,
            findings=tuple(findings),
            written=frozenset(written),
            bare=frozenset(bare),
            seconds=seconds,
            step_seconds=compared.step_seconds,
        )

    def _of_many(
        self,
        step: Step,
        count: int,
        records_at: Callable[[NDArray[np.int64]], Batch],
        rng: np.random.Generator,
    ) -> Iterator[Finding]:
        """Return what clipping leaves of many records."""
        at = rng.choice(count, min(_MANY, count), replace=False)
        with suppress(CopyFailedError):
            left = in_copy(
                lambda: left_of_many(step, self._optimizer, records_at(at)),
                seconds=_WORLD,
            )
            if left is None:
                return
            records, most = left
            if most > 1 + _ROUNDING:
                yield fault(Stage.CLIPPING, "probe.many", records=records, change=most)
            else:
                yield inspected(
                    Stage.CLIPPING, "probe.of_many", records=records, change=most
                )

    def saved(self) -> dict[str, Any]:
        """Return what was seen, as JSON has it."""
        return {
            "steps": self._kept.steps,
            "largest": self._kept.largest,
            "failed": self._kept.failed,
            "examined": sorted(self.examined),
            "compared": self.compared,
            "reworked": self.reworked,
            "skips_bare": sorted(self._skips_bare.places),
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from what ``saved`` returned."""
        self._kept = _Kept(
            steps=[int(each) for each in saved["steps"]],
            largest=float(saved["largest"]),
            failed=[int(each) for each in saved["failed"]],
        )
        self.examined |= {str(each) for each in saved["examined"]}
        self.compared |= bool(saved["compared"])
        self.reworked |= bool(saved["reworked"])
        self._skips_bare.places |= {str(each) for each in saved["skips_bare"]}


def _compared(findings: Iterable[Finding]) -> bool:
    return any(each.code == "interference.compared" for each in findings)


def _cpu_seconds() -> float:
    """Return what this process and its copies have used."""
    used = os.times()
    return sum(used[:4])


def _rows(batch: Batch) -> tuple[int, Callable[[NDArray[np.int64]], Batch]]:
    """Return how many records a batch holds, and what makes a batch of some."""
    count = records_in(batch)
    return count, lambda rows: rows_of(batch, count, rows)
