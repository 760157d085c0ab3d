"""How much can one record change the sum? Asked of the user's own step, not of theory.

The accountant's proof needs one fact of a program: if a record leaves, the clipped sum
changes by at most the clipping norm C. Here real records go through the user's own
step, ``optimizer.step()`` included, without noise, and the sum is read where the
wrapped optimizer would step. There is no statistics in it and no canary.

*Leaving without a trace.* Taking a record out of the batch moves every other record's
dropout mask and augmentation, so an honest program would seem to change too much. So
record j takes record i's place, and the row is left out of the sum: it is dropped just
before clipping, or with ghost clipping its coefficient is 0. Shapes and random numbers
stay as they were. With S(B) the sum of a batch and S(B, -i) that without row i, it is
asked that

- ``|S(B) - S(B[i <- j], -i)| <= C``: the record's whole effect is within the norm;
- ``S(B, -i) = S(B[i <- j], -i)``: the others' part does not depend on who sits beside
  them (batch statistics, mixup, a loss over all tokens of a batch). If it does, the
  proof fails, whether or not the whole effect exceeds C in this batch;
- ``S(B) - S(B, -i) = S(B, -k) - S(B, -i, -k)``: what a record puts in is the same
  without another. Not so where a whole batch is clipped, which need not show otherwise,
  as it takes a record that turns the sum around;
- if nothing but dropout is random, a record that is really taken out changes the sum by
  at most C, with dropout switched off;
- norms of gradients are the same in a whole and in half a batch: a mean that is told as
  a sum, or the reverse, shows only there.

- what a record puts in is the same when it is collated alone, and not padded to the
  longest of a batch. Records are exchanged in a batch that is collated already, so that
  this is asked by itself, at a scale at which gradients are not all clipped.

Where a step draws more random numbers for some records than for others, only records
that draw alike are exchanged, or dropout is switched off. Buffers, parameters and other
optimizers' parameters must not depend on the records but through noisy sums.

*Clipping that matters.* Gradients below C say nothing about clipping. So the loss is
multiplied, such that most records are near the norm, and such that all are above it;
and once beyond what half precision holds, which must leave a sum that is a number.

What is too much by rounding is no fault: the tolerance follows the least precise number
that was computed with. What the probe did not see it cannot say: records that were not
among those probed, noise, sampling and accounting, and what goes on between steps.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import hypot, inf, isfinite
from typing import Final, final

import numpy as np
import torch
from opacus.optimizers import DPOptimizer
from torch import nn
from torch.utils._pytree import tree_leaves

from dpaudit import _validate
from dpaudit._progress import progress_note
from dpaudit.errors import InvalidInputError
from dpaudit.game.findings import Finding, Stage
from dpaudit.training.opacus.frozen import Model
from dpaudit.training.opacus.probing import (
    Batch,
    Collate,
    Seen,
    Step,
    Steps,
    alike,
    apart,
    collated_anew,
    different,
    equal,
    exchanged,
    holds_records,
    norm,
    rows_of,
)
from dpaudit.training.opacus.setup import rank_and_world
from dpaudit.training.sensitivity import (
    EXERCISED,
    LEAST,
    TOGETHER,
    Alone,
    Sensitivity,
    cause_of,
)
from dpaudit.training.sentences import old_fault

__all__ = ["probe_sensitivity"]

_ALIKE: Final = (0.7, 1.4)  # ratio of norms at a whole and at half a batch
_SEEDS: Final = 8
_DONORS: Final = 2  # that take a record's place in turn
_TRIES: Final = 6  # at finding them, if for some the random numbers move
_COLLATED: Final = (
    "what the collator makes of a batch, such as padding to its longest record, which "
    "the loss or the model counts"
)
_HUGE: Final = 1e8  # a gradient that half precision does not hold, and single does


@progress_note("probing the step")
def probe_sensitivity(
    step: Step,
    model: Model,
    optimizer: DPOptimizer,
    batch: Batch,
    *,
    collate: Collate | None = None,
    records: int = 8,
    generators: Sequence[torch.Generator] = (),
    seed: int = 0,
) -> Sensitivity:
    """Return how much one record changes the sum that is given noise.

    Takes about ``18 * records`` runs of the step. Afterwards all is as it was: the
    training goes on bit for bit as if it had not been probed, but for state that user
    code keeps in Python objects of its own, such as a numpy ``Generator``.

    Args:
        step: The user's own, given a batch as the loader yields it: ``zero_grad``,
            forward, loss, backward, ``optimizer.step()``.
        model: As ``make_private`` returned it.
        optimizer: Likewise.
        batch: Some real records, collated as the loader does; a dozen is enough. What
            is as long as there are records (tensors, arrays, lists) is theirs, one part
            for each, in the order of their gradients; all else is left as it is.
        collate: From numbers of these records to a batch of them, as the loader makes
            it: then it is also asked whether it matters with whom a record is collated.
        records: How many of them leave, those with the largest gradients first.
        generators: Random generators that the step draws from besides torch's,
            numpy's and Python's own.
        seed: For all of them.
    """
    _validate.whole_number("records", records, least=1)
    if rank_and_world(optimizer)[1] > 1:
        raise InvalidInputError(
            "several ranks cannot be probed together; probe the same step in one "
            "process, with model and optimizer made private there"
        )
    return _Examination(
        Steps(step, model, optimizer, generators, seed), batch, records, collate
    ).result()


@final
class _Examination:
    """The questions, in order, and what came of them."""

    def __init__(
        self, steps: Steps, batch: Batch, records: int, collate: Collate | None
    ) -> None:
        self._steps, self._batch, self._records = steps, batch, records
        self._collate = collate
        self._size, self._clip = 0, steps.clip
        self._largest = dict.fromkeys(("own", "change", "coupling", "together"), 0.0)
        self._over: set[str] = set()
        self._tolerance, self._layers = LEAST, dict.fromkeys(steps.names, 0.0)
        self._removal: float | None = None
        self._alone: list[Alone] = []
        self._coupled: tuple[Batch, Batch, int] | None = None
        self._still, self._compared = False, False
        self._beside: set[str] = set()
        self._others: dict[str, str] = {}
        self._order: list[int] = []

    def result(self) -> Sensitivity:
        first = self._steps.run(self._batch)
        self._size = self._counted(first)
        if not equal(first.total, self._steps.run(self._batch).total):
            return self._unseen("it does not repeat itself with the same random seeds")
        positive = first.norms[first.norms > 0]
        if not len(positive) or not bool(torch.isfinite(first.norms).all()):
            return self._unseen("gradients of these records are zero or not finite")
        if self._moves_rows():
            return self._unseen("it puts the records of a batch in another order")
        self._order = first.norms.argsort(descending=True).tolist()
        scales = sorted(
            {
                1.0,
                0.7 * self._clip / float(positive.median()),
                10 * self._clip / float(positive.min()),
            }
        )
        self._still = self._only_dropout_is_random()
        for scale in scales:
            self._leave(scale)
        self._collate_anew(0.7 * self._clip / float(positive.median()))
        self._enlarge(_HUGE / float(positive.min()))
        self._take_out(scales)
        clipped = [alone.whole > EXERCISED * self._clip for alone in self._alone]
        return Sensitivity(
            change=max(self._largest["own"], self._largest["change"]),
            coupling=self._largest["coupling"] if self._compared else None,
            removal=self._removal,
            tolerance=self._tolerance,
            clipped=sum(clipped) / max(len(clipped), 1),
            layers=self._layers,
            records=min(self._records, self._size),
            sums=self._steps.runs,
            beside=tuple(sorted({*first.beside, *_optimizers(first.others)})),
            faults=tuple(self._faults()),
        )

    def _counted(self, seen: Seen) -> int:
        """Return how many records the batch holds: as many as there are gradients."""
        count = len(seen.norms)
        if not holds_records(self._batch, count):
            raise InvalidInputError(
                f"the step has gradients of {count} records, and nothing in the batch "
                f"has {count} rows. Records must come first in its tensors, and each "
                "must have one gradient: if views of a record are clipped one by one, "
                "it changes the sum by several times the clipping norm"
            )
        if count < 3:
            raise InvalidInputError(
                f"a probe needs 3 records or more in its batch, got {count}. If it "
                "holds more, they share a row, as where sequences are packed in the "
                "collator without padding, and are clipped as if they were one record: "
                "give each a row of its own, or pack before the loader"
            )
        return count

    def _unseen(self, why: str) -> Sensitivity:
        return Sensitivity(unseen=why, sums=self._steps.runs)

    def _moves_rows(self) -> bool:
        """Return whether a record's gradient has another row than the record.

        If so, exchanging any one record takes that record's norm out of all norms and
        puts in that of the other, wherever; and no two records take out the same one.
        """
        rows, moved = self._norms_of(self._batch), False
        donor, gone = rows.index(max(rows)), Counter[float]()
        for i in (k for k in range(self._size) if k != donor):
            filled = exchanged(self._batch, self._size, i, self._batch, donor)
            then = self._norms_of(filled)
            if len(then) != len(rows):
                return False
            out, into = Counter(rows) - Counter(then), Counter(then) - Counter(rows)
            if out.total() > 1 or not into.keys() <= set(rows):
                return False
            gone += out
            moved = moved or any(rows[k] != then[k] for k in range(len(rows)) if k != i)
            if not moved and i > 2:  # the first few are in their places
                return False
        return moved and gone <= Counter(rows)

    def _only_dropout_is_random(self) -> bool:
        self._steps.dropout = False
        first, second = (self._steps.run(self._batch, seed=seed) for seed in (1, 2))
        self._steps.dropout = True
        return equal(first.total, second.total)

    def _norms_of(self, batch: Batch) -> list[float]:
        """Return norms to three digits, with dropout switched off."""
        self._steps.dropout = False
        found = [float(f"{norm:.3g}") for norm in self._steps.run(batch).norms.tolist()]
        self._steps.dropout = True
        return found

    def _leave(self, scale: float) -> None:
        """Let records leave, one at a time, another sitting in their place."""
        order, n = self._order, self._size
        leaving = order[: self._records]
        small = list(reversed(order))
        self._alone = self._leave_one_by_one(
            self._batch,
            {
                i: [
                    k
                    for k in dict.fromkeys([small[turn], order[(turn + 1) % n], *small])
                    if k != i
                ]
                for turn, i in enumerate(leaving)
            },
            scale,
        )
        # The others all alike: what moves one of them moves all the same way.
        alike = rows_of(self._batch, n, [order[0]] + [order[n // 2]] * (n - 1))
        self._leave_one_by_one(alike, {0: [order[-1], order[1], *small]}, scale)

    def _collate_anew(self, scale: float) -> None:
        """Ask whether what a record puts in depends on whom it is collated with.

        Most collators make the same of it alone, and nothing is asked.
        """
        if self._collate is None or not self._still:
            return
        self._steps.dropout = False
        asked = 0
        for row in self._order:
            twice = (row, row)  # as a batch of one may be a shape of its own
            alone = collated_anew(self._collate, twice)
            beside = rows_of(self._batch, self._size, twice)
            if alone is None or alike(alone, beside):
                continue
            before = self._steps.run(beside, scale=scale)
            self._moved("coupling", before, self._steps.run(alone, scale=scale))
            self._compared, asked = True, asked + 1
            if asked == self._records:
                break
        self._steps.dropout = True

    def _enlarge(self, scale: float) -> None:
        """Ask whether very large gradients leave a sum that is a number."""
        if self._steps.precision > torch.finfo(torch.float32).eps:
            return  # the gradients themselves would not be
        seen = self._steps.run(self._batch, scale=scale)
        if bool(torch.isfinite(seen.norms).all()) and not _finite(seen):
            self._over.add("overflow")

    def _leave_one_by_one(
        self, batch: Batch, donors: Mapping[int, Sequence[int]], scale: float
    ) -> list[Alone]:
        """Let some rows leave; return what each puts in by itself.

        Args:
            batch: The records.
            donors: For each row that leaves, records that may take its place: the
                first few for which the others' random numbers stay as they were.
            scale: What gradients are multiplied by.
        """
        found: list[Alone] = []
        whole = self._steps.run(batch, scale=scale)
        if not _finite(whole):
            return found
        self._tolerance = max(self._tolerance, self._allowed(whole))
        for i, others in donors.items():
            rest = self._steps.run(batch, without=(i,), scale=scale)
            if not found:
                self._leave_together(batch, i, whole, rest, scale)
            own = self._moved("own", whole, rest)
            found.append(Alone(by_parameter=own, raw=float(whole.norms[i])))
            compared = 0
            for donor in others[:_TRIES]:
                filled = exchanged(batch, self._size, i, self._batch, donor)
                other = self._steps.run(filled, without=(i,), scale=scale)
                if other.drawn != whole.drawn:
                    if not self._still:
                        continue
                    before, other = self._compare_without_dropout(
                        batch, filled, i, scale
                    )
                else:
                    self._moved("change", whole, other)
                    self._beside |= different(whole.beside, other.beside)
                    before = rest
                self._moved("coupling", before, other)
                self._compared = True
                if self._coupled is None and "coupling" in self._over:
                    self._coupled = (batch, filled, i)
                self._beside |= different(before.beside, other.beside)
                self._others |= whole.others
                compared += 1
                if compared == _DONORS:
                    break
        return found

    def _leave_together(
        self, batch: Batch, i: int, whole: Seen, rest: Seen, scale: float
    ) -> None:
        """Note whether what a record puts in is another once a second has left."""
        k = (i + 1) % self._size
        less = self._steps.run(batch, without=(k,), scale=scale)
        least = self._steps.run(batch, without=(i, k), scale=scale)
        sums = zip(whole.total, rest.total, less.total, least.total, strict=True)
        moved = norm([(a - b) - (c - d) for a, b, c, d in sums]) / self._clip
        self._largest["together"] = max(self._largest["together"], moved)
        if moved > 2 * self._allowed(whole):  # four sums are rounded, and not two
            self._over.add("together")

    def _compare_without_dropout(
        self, before: Batch, after: Batch, without: int, scale: float
    ) -> tuple[Seen, Seen]:
        """Return the sums of two batches that do not draw as many random numbers."""
        self._steps.dropout = False
        first = self._steps.run(before, without=(without,), scale=scale)
        second = self._steps.run(after, without=(without,), scale=scale)
        self._steps.dropout = True
        return first, second

    def _moved(self, what: str, before: Seen, after: Seen) -> list[float]:
        """Note how far two sums are apart, and whether it is too much."""
        each = apart(before, after)
        moved = hypot(*each) / self._clip
        moved = moved if isfinite(moved) else inf
        self._largest[what] = max(self._largest[what], moved)
        if moved > (what != "coupling") + self._allowed(before):
            self._over.add(what)
        if what == "own":
            for name, part in zip(self._steps.names, each, strict=True):
                self._layers[name] = max(self._layers[name], part / self._clip)
        return each

    def _allowed(self, seen: Seen) -> float:
        return max(LEAST, self._steps.rounding(seen))

    def _take_out(self, scales: Sequence[float]) -> None:
        """Really take records out, if their leaving moves no random number."""
        if self._still:
            self._steps.dropout = False
            self._removal = max(self._taken_out(scale) for scale in scales)
            self._compare_halves(seeds=1)
            self._steps.dropout = True
        else:
            self._compare_halves(seeds=_SEEDS)

    def _taken_out(self, scale: float) -> float:
        """Return the largest change when a record is taken out of the batch."""
        largest, whole = 0.0, self._steps.run(self._batch, scale=scale)
        for i in self._order[: self._records]:
            others = [k for k in range(self._size) if k != i]
            left = rows_of(self._batch, self._size, others)
            rest = self._steps.run(left, scale=scale)
            moved = hypot(*apart(whole, rest)) / self._clip
            largest = max(largest, moved)
            if not moved <= 1 + self._allowed(whole):
                self._over.add("size")
        return largest

    def _compare_halves(self, *, seeds: int) -> None:
        """Compare norms in a whole and in half a batch: a mean told as a sum."""
        large, ratios = self._order[: self._size // 2], []
        part = rows_of(self._batch, self._size, large)
        for seed in range(seeds):
            whole = self._steps.run(self._batch, seed=seed).norms[large]
            rest = self._steps.run(part, seed=seeds + seed).norms
            if bool((whole > 0).any()) and bool((rest > 0).any()):
                ratios.append(
                    float(whole[whole > 0].median() / rest[rest > 0].median())
                )
        low, high = _ALIKE
        if ratios and not low < float(np.median(ratios)) < high:
            self._over.add("size")

    def _faults(self) -> Iterator[Finding]:
        over = self._over
        if "own" in over or ("change" in over and "coupling" not in over):
            yield self._clipping_fault()
        elif "together" in over:
            yield self._together_fault()
        if "overflow" in over:
            yield self._overflow_fault()
        if "coupling" in over:
            yield self._coupling_fault()
        if over == {"size"}:
            yield self._size_fault()
        others = {self._others[name] for name in self._beside if name in self._others}
        for name in sorted(self._beside - self._others.keys()):
            yield old_fault(
                road=Stage.SIDE_PATHS,
                said=f"{name!r} depends on the records and is given no noise",
                measured="another value once one record was exchanged",
                claimed="the same value",
                cause="a statistic of records that is kept in a buffer, or a parameter "
                "that is changed beside the private optimizer",
            )
        for name in sorted(others):
            yield other_optimizer(name)

    def _clipping_fault(self) -> Finding:
        change = max(self._largest["own"], self._largest["change"])
        return old_fault(
            road=Stage.CLIPPING,
            said="one record changes the sum by more than the clipping norm C",
            measured=f"up to {change:.3g} C",
            claimed="at most C",
            cause=cause_of(
                self._steps.names,
                self._alone,
                self._clip,
                together="together" in self._over,
                perhaps=": a layer that is used twice or shares its weights, under "
                "ghost clipping?"
                if self._steps.ghost
                else "",
            ),
        )

    def _together_fault(self) -> Finding:
        moved = self._largest["together"]
        return old_fault(
            road=Stage.CLIPPING,
            said="what a record puts into the sum depends on the others in it, so that "
            "one may change it by more than the clipping norm C",
            measured=f"a change of {moved:.3g} C once another is left out",
            claimed="none",
            cause=TOGETHER,
        )

    def _overflow_fault(self) -> Finding:
        return old_fault(
            road=Stage.CLIPPING,
            said="records with a large gradient leave a sum that is no number",
            measured="a sum that is not finite, of gradients that are",
            claimed="at most C",
            cause="clipping in half precision, in which a large gradient is infinite",
        )

    def _coupling_fault(self) -> Finding:
        moved = self._largest["coupling"]
        cause = _COLLATED
        if self._coupled is not None:
            cause = _coupler(self._steps, *self._coupled)
        return old_fault(
            road=Stage.GRADIENTS,
            said="what a record puts into the sum depends on other records, so that "
            "the proof of privacy does not hold",
            measured=f"a change of {moved:.3g} C, the clipping norm, when another "
            "record was exchanged",
            claimed="none",
            cause=cause,
        )

    def _size_fault(self) -> Finding:
        found = "norms that differ with the number of records beside them"
        if self._removal is not None and self._removal > 1 + self._tolerance:
            found = f"a change of {self._removal:.4g} C when a record is taken out"
        return old_fault(
            road=Stage.AGGREGATION,
            said="what a record puts into the sum depends on the size of the batch",
            measured=found,
            claimed="the same beside any number of records",
            cause="a loss that is a mean and is told to Opacus as a sum, or the "
            "reverse (loss_reduction)",
        )


def other_optimizer(name: str, steps: int | None = None) -> Finding:
    """Return what is wrong with another optimizer that steps during training."""
    times = "" if steps is None else f", {steps} times"
    return old_fault(
        road=Stage.SIDE_PATHS,
        said=f"another optimizer ({name}) steps beside the private one{times}",
        measured="parameters that records decide without noise",
        claimed="none",
        cause="a second optimizer on gradients of the same records",
    )


def _optimizers(others: Mapping[str, str]) -> set[str]:
    """Return what other optimizers are called where they are noticed in training."""
    return {f"optimizer {kind}" for kind in others.values()}


def _finite(seen: Seen) -> bool:
    return all(bool(torch.isfinite(part).all()) for part in seen.total)


def _coupler(steps: Steps, before: Batch, after: Batch, row: int) -> str:
    """Return what makes records depend on each other: before, in or after the model.

    The first leaf of the model whose other rows change when one record is exchanged
    couples them, unless its input did already.
    """
    first, second = (_flow(steps, batch, row) for batch in (before, after))
    names = {module: name for name, module in steps.model.named_modules()}
    for (module, into, out), (_, into_then, out_then) in zip(
        first, second, strict=False
    ):
        name = names[module].removeprefix("_module.")
        if not equal(into, into_then):
            return (
                f"what happens to a batch before {name!r}, such as mixing its records, "
                "or scaling them by a mean or spread of the batch"
            )
        if not equal(out, out_then):
            return f"{name!r}, in which records of a batch meet"
    return "the loss, in which records of a batch meet (a mean over all their tokens?)"


def _flow(
    steps: Steps, batch: Batch, row: int
) -> list[tuple[nn.Module, list[torch.Tensor], list[torch.Tensor]]]:
    """Return what goes in and out of each leaf of the model, less one record's row."""
    found = []

    def watch(module: nn.Module, into: object, out: object) -> None:
        found.append((module, _others(into, row), _others(out, row)))

    steps.run(batch, without=(row,), watch=watch)
    return found


def _others(values: object, row: int) -> list[torch.Tensor]:
    """Return all rows but one of what goes in or out of a module."""
    found = []
    for value in tree_leaves(values):
        if isinstance(value, torch.Tensor) and value.dim() and len(value) > row:
            rows = torch.arange(len(value), device=value.device) != row
            found.append(value.detach()[rows].clone())
    return found
