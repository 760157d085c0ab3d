"""Measures how much one record changes the sum in the user's own step.

The accountant's proof needs one property of a program: removing a record changes the
clipped sum by at most the clipping norm C. Here real records go through the user's own
step, ``optimizer.step()`` included, without noise, and the sum is read where Opacus
computes it. This involves neither statistics nor canaries.

*Removal without side effects.* Removing a record from the batch shifts every other
record's dropout mask and augmentation, so a correct program would seem to change too
much. So record j replaces record i, and the row is left out of the sum: it is dropped
just before clipping, or with ghost clipping its coefficient is 0. Shapes and random
numbers stay the same. With S(B) the sum of a batch and S(B, -i) that without row i, the
probe checks that

- ``|S(B) - S(B[i <- j], -i)| <= C``: the record's whole effect is within the norm;
- ``S(B, -i) = S(B[i <- j], -i)``: the others' part does not depend on who is in the
  batch with them (batch statistics, mixup, a loss over all tokens of a batch). If it
  does, the proof fails, whether or not the whole effect exceeds C in this batch;
- ``S(B) - S(B, -i) = S(B, -k) - S(B, -i, -k)``: a record's contribution is the same
  without another record. This fails where a whole batch is clipped, which the other
  checks may miss, as only a record that reverses the sum's direction shows it there;
- if only dropout is random, actually removing a record changes the sum by at most C,
  with dropout disabled;
- norms of gradients are the same in a whole and in half a batch: only this detects a
  mean declared as a sum, or the reverse;
- a record's contribution is the same when it is collated alone, and not padded to the
  longest of a batch. Records are exchanged in a batch that is already collated, so this
  is a separate check, at a scale at which gradients are not all clipped.

Where a step computes more or fewer gradients than there are records, as with several
views of each, rows are not records. If only dropout is random, records are then only
removed, one at a time, and the whole change of the sum is measured. Otherwise a
record's rows are those that change when it is exchanged, and are set to zero together.

Where a step draws more random numbers for some records than for others, only records
with equal draws are exchanged, or dropout is disabled. Buffers, parameters and other
optimizers' parameters must depend on the records only through noisy sums.

*Clipping that matters.* Gradients below C show nothing about clipping. So the loss is
multiplied, such that most records are near the norm, and such that all are above it;
and once beyond the range of half precision, where the sum must still be finite.

An excess by rounding is no fault: the tolerance follows the least precise number in the
computation. The probe does not cover records that were not probed, noise, sampling and
accounting, and what happens between steps.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, final

import numpy as np
import torch
from opacus.optimizers import DPOptimizer
from torch import nn
from torch.utils._pytree import tree_leaves

from dpaudit import _validate
from dpaudit._progress import progress_note
from dpaudit.errors import InvalidInputError
from dpaudit.game.findings import Finding, Stage, fault, not_checked
from dpaudit.training.opacus.isolated_step import Model
from dpaudit.training.opacus.setup import is_sharded
from dpaudit.training.opacus.step_runner import (
    Batch,
    Collate,
    NoStepError,
    OpacusStepRunner,
    Step,
    StepRun,
    alike,
    collated_anew,
    equal,
    holds_records,
    records_in,
    rows_of,
)
from dpaudit.training.probe.engine import HUGE, Question, Questions, Rows
from dpaudit.training.probe.report import (
    EXERCISED,
    Alone,
    Sensitivity,
    too_large,
)

__all__ = ["probe_sensitivity"]

_EQUAL_NORMS: Final = (0.7, 1.4)  # ratio of norms in a whole and in half a batch
_SEEDS: Final = 8
_CHANGED: Final = 1e-3  # relative, of a gradient's norm
_DONORS: Final = 4  # with which a record is exchanged, to find its rows
_MAX_CALLS: Final = 64  # for one optimizer step, as with micro-batches


@progress_note("probing the step")
def probe_sensitivity(  # noqa: PLR0913 (each is something that is fixed)
    step: Step,
    model: Model,
    optimizer: DPOptimizer,
    batch: Batch,
    *,
    collate: Collate | None = None,
    collated: int = 0,
    records: int = 8,
    generators: Sequence[torch.Generator] = (),
    seed: int = 0,
    apart: bool = False,
) -> Sensitivity:
    """Return how much one record changes the sum to which noise is added.

    Takes about ``18 * records`` runs of the step and restores everything: training
    continues bit for bit as if it had not been probed, except for state that user code
    keeps in its own Python objects, such as a numpy ``Generator``.

    Args:
        step: The user's own step on a batch as the loader yields it: ``zero_grad``,
            forward, loss, backward, ``optimizer.step()``.
        model: The model that ``make_private`` returned.
        optimizer: The optimizer that it returned.
        batch: Some real records, collated as the loader does; a dozen is enough. Parts
            with as many items as there are records (tensors, arrays, lists) have one
            item for each, in the order of their gradients; others are left as they are.
        collate: Makes a batch, as the loader does, of these records by number: enables
            the check that a record's contribution does not depend on whom it is
            collated with.
        collated: Number of records that ``collate`` takes. If it makes more rows than
            records, records are removed by leaving them out there.
        records: How many are removed, those with the largest gradients first.
        generators: Random generators that the step draws from besides torch's,
            numpy's and Python's own.
        seed: The seed for all of them.
        apart: Whether each run is made in a copy of the process, for steps that keep
            state in their own Python objects.
    """
    _validate.whole_number("records", records, least=1)
    if is_sharded(optimizer):
        raise InvalidInputError(
            "a step on sharded parameters cannot be tried by one rank alone; leave out "
            "step here, and probe the same step in one process, with model and "
            "optimizer made private there"
        )
    runner = OpacusStepRunner(
        step,
        model,
        optimizer,
        batch,
        generators=generators,
        seed=seed,
        apart=apart,
    )
    return _Examination(runner, records, collate, collated).result()


@final
class _Examination:
    """Runs the checks in order, and collects their results."""

    def __init__(
        self,
        runner: OpacusStepRunner,
        records: int,
        collate: Collate | None,
        collated: int,
    ) -> None:
        self._runner, self._records = runner, records
        self._collate, self._collated = collate, collated
        self._asked = Questions(runner)
        self._found = self._asked.measured
        self._removal: float | None = None
        self._alone: list[Alone] = []
        self._order: list[int] = []

    def result(self) -> Sensitivity:
        runner = self._runner
        try:
            first = runner.run_on(runner.batch)
        except NoStepError:
            if runner.steps_at_last(_MAX_CALLS):
                return self._unseen("probe.no_step")
            raise
        try:
            found = self._asked_of(first)
        except NoStepError:  # with other records, or larger gradients
            skips = fault(Stage.SIDE_PATHS, "probe.skips")
            return replace(self._unseen("probe.skipped"), faults=(skips,))
        # Noisy sums may be changed only where they are as large as noise makes them.
        reworked = first.reworked or runner.run_on(runner.batch, noisy=True).reworked
        return replace(found, reworked=reworked, sums=runner.runs)

    def _asked_of(self, first: StepRun) -> Sensitivity:
        """Return the results of all checks, given a first run of the step."""
        runner = self._runner
        runner.size = self._counted(first)
        self._everyone = np.arange(runner.size)
        if not equal(first.total, runner.run(self._everyone).total):
            return self._unseen("probe.not_repeated")
        positive = first.norms[first.norms > 0]
        if not len(positive) or not bool(torch.isfinite(first.norms).all()):
            return self._unseen("probe.no_gradients")
        rows = len(first.norms)
        if rows != runner.size or self._filled_up():
            if self._only_dropout_is_random():
                return self._as_a_whole(first, positive)
            if self._filled_up() or not self._finds_rows(first):
                return self._unseen("probe.rows_not_records")
            first = runner.run(self._everyone)
            positive = first.norms[first.norms > 0]
        elif self._moves_rows():
            return self._unseen("probe.rows_moved")
        self._order = first.norms.argsort(descending=True).tolist()
        middle = 0.7 * runner.clip / float(positive.median())
        scales = sorted({1.0, middle, 10 * runner.clip / float(positive.min())})
        runner.still = self._only_dropout_is_random()
        for scale in scales:
            self._leave(scale)
        self._collate_anew(middle)
        self._enlarge(HUGE / float(positive.min()))
        self._take_out(scales)
        clipped = [alone.whole > EXERCISED * runner.clip for alone in self._alone]
        found = self._found
        return Sensitivity(
            change=found.change or 0.0,
            coupling=found.largest[Question.COUPLING] if found.compared else None,
            removal=self._removal,
            tolerance=found.tolerance,
            clipped=sum(clipped) / max(len(clipped), 1),
            layers=found.layers,
            records=min(self._records, runner.size),
            sums=runner.runs,
            own_rows=rows != runner.size,
            beside=tuple(sorted({*first.beside, *_optimizers(first.others)})),
            faults=tuple(self._faults(rows)),
        )

    def _counted(self, seen: StepRun) -> int:
        """Return how many records the batch holds: the number of gradients.

        Where a step computes several gradients for a record, or one for several, it is
        the number of rows that most of the batch has.
        """
        count, batch = len(seen.norms), self._runner.batch
        if self._filled_up():
            count = self._collated
        elif not holds_records(batch, count):
            count = records_in(batch)
        if count < 3:
            raise InvalidInputError(
                f"a probe needs 3 records or more in its batch, got {count}. If it "
                "holds more, they share a row, as where sequences are packed in the "
                "collator without padding, and are clipped as if they were one record: "
                "give each a row of its own, or pack before the loader"
            )
        return count

    def _as_a_whole(self, first: StepRun, positive: torch.Tensor) -> Sensitivity:
        """Remove records one at a time, where rows of gradients are not records."""
        runner, found = self._runner, self._found
        clip, changes = runner.clip, np.zeros(runner.size)
        middle = 0.7 * clip / float(positive.median())
        with runner.quiet():
            for scale in sorted({1.0, middle, 10 * clip / float(positive.min())}):
                whole = runner.run(self._everyone, scale=scale)
                allowed = self._asked.allowed(whole)
                found.tolerance = max(found.tolerance, allowed)
                for i in range(runner.size):
                    rest = self._rest(i, scale)
                    changes[i] = self._asked.size((1.0, whole), (-1.0, rest))
                    self._asked.note(Question.CHANGE, changes[i], 1 + allowed)
        change = found.largest[Question.CHANGE]
        leaving = self._leaving(len(first.norms))
        return Sensitivity(
            change=change,
            removal=change,
            tolerance=found.tolerance,
            clipped=float((changes > EXERCISED).mean()),
            records=runner.size,
            sums=runner.runs,
            own_rows=True,
            beside=tuple(sorted({*first.beside, *_optimizers(first.others)})),
            faults=(leaving,) if Question.CHANGE in found.over else (),
        )

    def _rest(self, i: int, scale: float) -> StepRun:
        """Return a run of the step without one of the records."""
        others = np.delete(self._everyone, i)
        if self._collate is None or not self._filled_up():
            return self._runner.run(others, scale=scale)
        return self._runner.run_on(self._collate(others.tolist()), scale=scale)

    def _filled_up(self) -> bool:
        """Return whether batches have more rows than records."""
        batch, count = self._runner.batch, self._collated
        more = 0 < count < records_in(batch)
        return more and not holds_records(batch, count)

    def _finds_rows(self, first: StepRun) -> bool:
        """Find the rows of each record: those that change when it is exchanged.

        A row may be the same with another record, so records are exchanged with up to
        ``_DONORS`` others until each row is assigned.
        """
        runner = self._runner
        rows_of_record: list[set[int]] = [set() for _ in range(runner.size)]
        for donor in range(1, min(_DONORS, runner.size - 1) + 1):
            for i, rows in enumerate(rows_of_record):
                filled = self._everyone.copy()
                filled[i] = (i + donor) % runner.size
                then = runner.run(filled)
                if len(then.norms) != len(first.norms) or not runner.drew_alike(
                    first, then
                ):
                    return False
                moved = (then.norms - first.norms).abs() > _CHANGED * first.norms
                rows |= {*moved.nonzero().flatten().tolist()}
            if sum(map(len, rows_of_record)) >= len(first.norms):
                break
        every = [row for rows in rows_of_record for row in rows]
        runner.rows = [sorted(rows) for rows in rows_of_record]
        return all(rows_of_record) and len({*every}) == len(every)

    def _unseen(self, code: str) -> Sensitivity:
        why = not_checked(Stage.CLIPPING, code)
        return Sensitivity(unseen=why, sums=self._runner.runs)

    def _moves_rows(self) -> bool:
        """Return whether the rows of gradients are in another order than the records.

        If so, exchanging any one record replaces that record's norm among all norms by
        that of the other, in any row; and no two records replace the same one.
        """
        rows, moved = self._norms_of(self._everyone), False
        donor, gone = rows.index(max(rows)), Counter[float]()
        for i in (k for k in range(self._runner.size) if k != donor):
            filled = self._everyone.copy()
            filled[i] = donor
            then = self._norms_of(filled)
            if len(then) != len(rows):
                return False
            out, into = Counter(rows) - Counter(then), Counter(then) - Counter(rows)
            if out.total() > 1 or not into.keys() <= set(rows):
                return False
            gone += out
            moved = moved or any(rows[k] != then[k] for k in range(len(rows)) if k != i)
            if not moved and i > 2:  # the first few are in order
                return False
        return moved and gone <= Counter(rows)

    def _only_dropout_is_random(self) -> bool:
        with self._runner.quiet():
            first, second = (
                self._runner.run(self._everyone, seed=seed) for seed in (1, 2)
            )
        return equal(first.total, second.total)

    def _norms_of(self, rows: Rows) -> list[float]:
        """Return norms to three digits, with dropout disabled."""
        with self._runner.quiet():
            norms = self._runner.run(rows).norms
        return [float(f"{norm:.3g}") for norm in norms.tolist()]

    def _leave(self, scale: float) -> None:
        """Remove records, one at a time, with another in their place."""
        order, n = self._order, self._runner.size
        leaving, small = order[: self._records], [*reversed(order)]
        donors = {
            i: [
                k
                for k in dict.fromkeys([small[turn], order[(turn + 1) % n], *small])
                if k != i
            ]
            for turn, i in enumerate(leaving)
        }
        self._alone = self._leave_one_by_one(self._everyone, donors, scale)
        # With equal other records, an influence on one of them adds up over all.
        alike = np.full(n, order[n // 2])
        alike[0] = order[0]
        self._leave_one_by_one(alike, {0: [order[-1], order[1], *small]}, scale)

    def _leave_one_by_one(
        self, rows: Rows, donors: Mapping[int, Sequence[int]], scale: float
    ) -> list[Alone]:
        def exchange(i: int, whole: StepRun, rest: StepRun) -> None:
            self._asked.exchange(rows, i, donors[i], whole, rest, scale=scale)

        first = next(iter(donors))
        return self._asked.leave(
            rows,
            donors,
            together={first: (first + 1) % len(rows)},
            exchange=exchange,
            scale=scale,
        )

    def _collate_anew(self, scale: float) -> None:
        """Check whether a record's contribution depends on whom it is collated with.

        Most collators yield the same for it alone, and nothing needs a check.
        """
        runner = self._runner
        if self._collate is None or not runner.still:
            return
        asked = 0
        for row in self._order:
            twice = (row, row)  # a batch of one may have another shape
            alone = collated_anew(self._collate, twice)
            beside = rows_of(runner.batch, runner.size, twice)
            if alone is None or alike(alone, beside):
                continue
            with runner.quiet():
                before = runner.run_on(beside, scale=scale)
                after = runner.run_on(alone, scale=scale)
            moved = self._asked.size((1.0, before), (-1.0, after))
            self._asked.note(Question.COUPLING, moved, self._asked.allowed(before))
            self._found.compared, asked = True, asked + 1
            if asked == self._records:
                break

    def _enlarge(self, scale: float) -> None:
        """Check whether the sum stays finite with very large gradients."""
        if self._runner.precision > torch.finfo(torch.float32).eps:
            return  # the gradients themselves would overflow
        seen = self._asked.enlarge(self._everyone, scale)
        if not bool(torch.isfinite(seen.norms).all()):
            self._found.over.discard(Question.OVERFLOW)

    def _take_out(self, scales: Sequence[float]) -> None:
        """Actually remove records, if that shifts no random numbers."""
        if not self._runner.still:
            self._compare_halves(seeds=_SEEDS)
            return
        with self._runner.quiet():
            self._removal = max(self._taken_out(scale) for scale in scales)
            self._compare_halves(seeds=1)

    def _taken_out(self, scale: float) -> float:
        """Return the largest change when a record is removed from the batch."""
        largest, whole = 0.0, self._runner.run(self._everyone, scale=scale)
        for i in self._order[: self._records]:
            rest = self._runner.run(np.delete(self._everyone, i), scale=scale)
            moved = self._asked.size((1.0, whole), (-1.0, rest))
            largest = max(largest, moved)
            self._asked.note(Question.SIZE, moved, 1 + self._asked.allowed(whole))
        return largest

    def _compare_halves(self, *, seeds: int) -> None:
        """Compare norms in a whole and in half a batch: a mean declared as a sum."""
        large, ratios = self._order[: self._runner.size // 2], []
        if self._runner.rows:  # these differ in half a batch
            return
        for seed in range(seeds):
            whole = self._runner.run(self._everyone, seed=seed).norms[large]
            rest = self._runner.run(np.array(large), seed=seeds + seed).norms
            if bool((whole > 0).any()) and bool((rest > 0).any()):
                ratios.append(
                    float(whole[whole > 0].median() / rest[rest > 0].median())
                )
        low, high = _EQUAL_NORMS
        if ratios and not low < float(np.median(ratios)) < high:
            self._found.over.add(Question.SIZE)

    def _faults(self, rows: int) -> Iterator[Finding]:
        found, over, others = self._found, self._found.over, self._runner.others
        own, change = Question.OWN in over, Question.CHANGE in over
        coupling, together = Question.COUPLING in over, Question.TOGETHER in over
        if (own or (change and not coupling)) and self._runner.rows:
            yield self._leaving(rows)
        elif own or (change and not coupling):
            yield too_large(
                self._runner.names,
                self._alone,
                self._runner.clip,
                change=found.change or 0.0,
                together=together,
                shared=self._runner.ghost,
            )
        elif together:
            yield fault(
                Stage.CLIPPING,
                "probe.depends_on_others",
                together=found.largest[Question.TOGETHER],
                one_norm=False,
                cause="clipped_or_divided",
            )
        if Question.OVERFLOW in over:
            yield fault(Stage.CLIPPING, "probe.overflow", cause="step")
        if coupling:
            yield self._coupling_fault()
        if over - {Question.AS_MEAN} == {Question.SIZE}:
            large = self._removal is not None and self._removal > 1 + found.tolerance
            yield fault(
                Stage.AGGREGATION,
                "probe.size",
                removal=self._removal if large else 0.0,
                cause="loss_reduction",
            )
        for name in sorted(found.beside - others.keys()):
            yield fault(Stage.SIDE_PATHS, "probe.not_noised", (name,))
        for name in sorted({others[k] for k in found.beside if k in others}):
            yield fault(Stage.SIDE_PATHS, "side_paths.optimizer", (name,), steps=0)

    def _leaving(self, rows: int) -> Finding:
        return fault(
            Stage.CLIPPING,
            "probe.leaving",
            change=self._found.change or 0.0,
            rows=rows,
            records=self._runner.size,
        )

    def _coupling_fault(self) -> Finding:
        cause: str = "collated"
        names: tuple[str, ...] = ()
        if self._found.coupled is not None:
            cause, names = _coupler(self._runner, *self._found.coupled)
        moved = self._found.largest[Question.COUPLING]
        return fault(
            Stage.GRADIENTS, "probe.coupled", names, coupling=moved, cause=cause
        )


def _optimizers(others: Mapping[str, str]) -> set[str]:
    """Return the names under which other optimizers are recorded in training."""
    return {f"optimizer {kind}" for kind in others.values()}


def _coupler(
    runner: OpacusStepRunner, before: Rows, after: Rows, row: int
) -> tuple[str, tuple[str, ...]]:
    """Return what couples records, before, in or after the model, and where.

    The first leaf of the model whose other rows change when one record is exchanged
    couples them, unless its input had changed already.
    """
    first, second = (_flow(runner, rows, row) for rows in (before, after))
    names = {module: name for name, module in runner.model.named_modules()}
    for (module, into, out), (_, into_then, out_then) in zip(
        first, second, strict=False
    ):
        name = names[module].removeprefix("_module.")
        if not equal(into, into_then):
            return "before", (name,)
        if not equal(out, out_then):
            return "inside", (name,)
    return "loss", ()


def _flow(
    runner: OpacusStepRunner, rows: Rows, row: int
) -> list[tuple[nn.Module, list[torch.Tensor], list[torch.Tensor]]]:
    """Return inputs and outputs of each leaf of the model, without one record's row."""
    leaves = []

    def watch(module: nn.Module, into: object, out: object) -> None:
        leaves.append((module, _others(into, row), _others(out, row)))

    runner.run(rows, (row,), watch=watch)
    return leaves


def _others(values: object, row: int) -> list[torch.Tensor]:
    """Return all rows but one of a module's inputs or outputs."""
    kept = []
    for value in tree_leaves(values):
        if isinstance(value, torch.Tensor) and value.dim() and len(value) > row:
            rows = torch.arange(len(value), device=value.device) != row
            kept.append(value.detach()[rows].clone())
    return kept
