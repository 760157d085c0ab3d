"""Checks the user's own step: when the audit is opened, and at secret steps.

A check measures two things in a copy of the process: how much one record changes the
sum before noise (``probe``), and whether anything but the noisy sums depends on records
(``interference``). What holds at the opening may not hold later: clipping may be
replaced, a threshold reached. So the check is repeated at steps that are drawn from the
key, and when settings that control the steps change. How often is fixed beforehand, so
that the checks take a tenth of the run's time, or two seconds of a short one.
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

from dpaudit._progress import progress_note
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
from dpaudit.training.opacus.ranks import one_rank
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

_TIME_SHARE: Final = 0.1  # of the run's time
_SHORT_RUN_SECONDS: Final = 2.0  # that the checks may always take
_MAX_CHECKS: Final = 3  # at secret steps, and as many when something changes
_RECORDS_AGAIN: Final = 2  # removed, one at a time, at secret steps
_CLIPPED_RECORDS: Final = 256  # whose norm after clipping is measured
_CLIPPED_BYTES: Final = 1 << 26  # of gradients, in one batch of them
_ROUNDING: Final = 0.02  # of a norm in half precision
_PROBE_RECORDS: Final = 12  # in the batch of a probe
_MIN_RECORDS: Final = 6  # to compare batches
_CHECK_SECONDS: Final = 600.0  # limit of a check
_WORLD_SECONDS: Final = 60.0  # limit of one run in a copy


@dataclass(frozen=True, slots=True, kw_only=True)
class _Examined:
    """The results of one check.

    Attributes:
        sensitivity: How much one record changes the sum.
        findings: What besides noisy sums depends on records.
        written: Parameters and buffers that are written to other than by the optimizer,
            equally for all records.
        bare: Places in the code where a rehearsal saw steps without noise.
        seconds: CPU time of the comparison.
        step_seconds: CPU time of one step.
    """

    sensitivity: Sensitivity
    findings: tuple[Finding, ...]
    written: frozenset[str]
    bare: frozenset[str]
    seconds: float
    step_seconds: float


@dataclass(slots=True)
class _Kept:
    """The results of checks at secret steps that are kept.

    Attributes:
        steps: After how many steps each was made.
        largest: The largest change of the sum by one record, over the clipping norm.
        failed: After how many steps each failed check was tried.
    """

    steps: list[int] = field(default_factory=list)
    largest: float = 0.0
    failed: list[int] = field(default_factory=list)


@final
class StepChecks:
    """Checks the user's step in copies of the process.

    Args:
        model: The model that ``make_private`` returned.
        optimizer: The optimizer that it returned.
        loader: The loader that it returned.
        close: Detaches the audit, in a copy.
        skips_bare: Which steps without noise are skipped; rehearsals add to it.
        rng: Draws records and steps; from the key.

    Attributes:
        examined: Parameters, buffers and optimizers that steps change other than by the
            private optimizer; what depends on records is a fault.
        compared: Whether steps were compared on batches of other records.
        reworked: Whether noisy sums are changed before they are applied, without a
            detected dependence on records.
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
        self._drawn: list[int] = []  # steps for checks, as many as there may be
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
        """Check a step now, without side effects.

        Args:
            step: The user's own step.
            batch: Real records; by default some of the data set.
            train: The user's whole loop.
            steps: Number of steps that the loop makes, if known.
            records: How many records are removed from the batch, one at a time.
            generators: Random generators that the step draws from, besides torch's,
                numpy's and Python's own.
            seed: The seed for all of them.
        """
        check_step(step)
        why = why_no_copy()
        if why is not None:
            unseen = not_checked(Stage.SIDE_PATHS, f"interference.{why}")
            with one_rank(self._model, self._optimizer):
                sensitivity = self._sensitivity(step, batch, records, generators, seed)
            self.examined |= {*sensitivity.beside}
            self.reworked |= sensitivity.reworked
            return sensitivity, (unseen,)
        rng = self._another_rng()

        try:
            with progress_note("probing the step"):
                examined = self._examined_in_copy(
                    step,
                    batch,
                    rng,
                    train=train,
                    steps=steps,
                    records=records,
                    generators=generators,
                    seed=seed,
                )
        except CopyFailedError as error:
            raise InvalidInputError(
                f"step(batch) could not be run on records of the data set: {error}"
            ) from None
        self.examined |= {*examined.written, *examined.sensitivity.beside}
        self.compared |= _compared(examined.findings)
        self.reworked |= examined.sensitivity.reworked and not any(
            each.status is Status.FAULT for each in examined.findings
        )
        self._skips_bare.places |= examined.bare
        if self._step is None and steps is not None:
            self._plan(step, steps, examined)
        return examined.sensitivity, examined.findings

    def _plan(self, step: Step, steps: int, first: _Examined) -> None:
        """Draw the steps after which the check is repeated."""
        self._step, self._steering = step, self._steers()
        cost = first.seconds + first.sensitivity.sums * first.step_seconds / 3
        afford = int(
            max(_TIME_SHARE * steps * first.step_seconds, _SHORT_RUN_SECONDS)
            / max(cost, 1e-9)
        )
        most = min(_MAX_CHECKS, max(0, steps - 1))
        self._changes_left = _MAX_CHECKS
        # On all ranks the same, of which some may afford fewer.
        drawn = self._rng.choice(max(steps - 1, 1), most, replace=False) + 1
        self._drawn = drawn.tolist()
        self._due = sorted(self._drawn[:afford])

    @property
    def planned(self) -> int:
        """How many checks at secret steps are still to be made."""
        return len(self._due)

    def agree(self, *, reworked: bool, planned: int) -> None:
        """Do as all ranks do, which plan by their own times."""
        self.reworked = reworked
        if planned < self.planned:
            self._due = sorted(self._drawn[:planned])

    def between(self, made: int) -> Iterator[Finding]:
        """Repeat the check if it is due, and return the faults found.

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
        try:
            with progress_note("checking the step again"):
                examined = self._examined_in_copy(
                    self._step, None, self._another_rng(), records=_RECORDS_AGAIN
                )
        except (CopyFailedError, InvalidInputError):
            self._kept.failed.append(made)
            return
        self._kept.steps.append(made)
        self.examined |= {*examined.written, *examined.sensitivity.beside}
        self._kept.largest = max(self._kept.largest, examined.sensitivity.change or 0.0)
        yield from examined.sensitivity.faults
        for finding in examined.findings:
            if finding.status in (Status.FAULT, Status.INCONCLUSIVE):
                yield finding

    def findings(self) -> Iterator[Finding]:
        """Return the findings of checks at secret steps."""
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
        """Return the settings that control a step, except the learning rate."""
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
            with random_states():  # reading records may draw numbers (augmentation)
                count, records_at = self._records(None)
                at = np.unique(
                    np.linspace(0, count - 1, _PROBE_RECORDS).astype(np.int64)
                )
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
        sensitivity = probe()
        again = (
            sensitivity.unseen is not None
            and sensitivity.unseen.code == "probe.not_repeated"
        )
        if again and why_no_copy() is None:  # it may keep state in Python objects
            return probe(apart=True)
        return sensitivity

    def _gradient_bytes(self) -> int:
        """Return the size of one record's gradient; 0 without per-record gradients."""
        if hasattr(self._model, "get_clipping_coef"):  # with ghost clipping
            return 0
        return sum(p.numel() * p.element_size() for p in self._optimizer.params)

    def _examined_in_copy(
        self,
        *given: Any,  # noqa: ANN401 (as of _examine)
        **named: Any,  # noqa: ANN401
    ) -> _Examined:
        """Return the results of ``_examine``, called in a copy of the process."""

        def examine() -> _Examined:
            with one_rank(self._model, self._optimizer):
                return self._examine(*given, **named)

        return in_copy(examine, seconds=_CHECK_SECONDS)

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
        no_step: NoStepError | None = None
        sensitivity = Sensitivity(unseen=not_checked(Stage.CLIPPING, "probe.no_step"))
        try:
            sensitivity = self._sensitivity(step, batch, records, generators, seed)
        except NoStepError as error:
            no_step = error
        count, records_at = self._records(batch)
        started = _cpu_seconds()
        compared = Interference(
            step,
            self._model,
            self._optimizer,
            seconds=_WORLD_SECONDS,
            train=train,
            leave_out=[self._loader],
        )
        findings: list[Finding] = []
        if count >= _MIN_RECORDS:
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
        if no_step is not None and compared.unapplied:
            raise NoStepError(
                "noise is added, and the optimizer that Opacus wraps makes no step, "
                "where the audit reads what was released; call optimizer.step()"
            )
        if no_step is not None and not _compared(findings):
            raise no_step
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
                seconds=_WORLD_SECONDS,
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
        """Return a check of the norms of many records after clipping."""
        at = rng.choice(count, min(_CLIPPED_RECORDS, count), replace=False)
        at_once = max(_MIN_RECORDS, _CLIPPED_BYTES // max(self._gradient_bytes(), 1))
        parts = np.array_split(at, -(-len(at) // at_once))
        with suppress(CopyFailedError):
            left = in_copy(
                lambda: left_of_many(step, self._optimizer, map(records_at, parts)),
                seconds=_WORLD_SECONDS,
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
        """Return the state as JSON values."""
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
        """Continue from the state that ``saved`` returned."""
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
    """Return the CPU time that this process and its copies have used."""
    used = os.times()
    return sum(used[:4])


def _rows(batch: Batch) -> tuple[int, Callable[[NDArray[np.int64]], Batch]]:
    """Return the number of records in a batch, and a function that selects some."""
    count = records_in(batch)
    return count, lambda rows: rows_of(batch, count, rows)
