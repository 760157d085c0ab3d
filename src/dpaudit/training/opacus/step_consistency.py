"""Checks that each step has its own batch, accountant entry and clipping norm.

The proof of DP-SGD composes steps, each of which adds noise to the clipped sum of one
fresh sample. So every private step, wherever noise is added, needs its own batch: a
batch that serves several steps is sampled once, while the accountant counts a sample
for each step. It needs an entry in the accountant's history with its noise multiplier
and rate (``steps``). And the clipping norm must be the one that scales the noise.

Up to any step, the loop must have received at least as many batches as steps were made.
Unused batches are fine; micro-batches are parts of one batch. A step beyond these used
an earlier batch again, or one whose drawing was not observed, as programs may draw
samples by themselves. So it is a fault only if its rows agree with an earlier batch
(``size_agreement``); otherwise sampling was not checked.

No step may clip more rows than there are records in the batches handed over for it: the
rest came from elsewhere, and how they were sampled is unknown. Fewer rows are fine. A
step without noise is not private, and its batch is not checked.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from math import exp, log
from typing import Any, Final, final

import numpy as np
import torch
from opacus.accountants import IAccountant
from opacus.optimizers import DPOptimizer

from dpaudit.accounting.curves import HasHistory
from dpaudit.game.configuration import StepSegment
from dpaudit.game.findings import (
    FALSE_POSITIVE_RATE,
    SAMPLING_SHARE,
    Finding,
    Stage,
    fault,
    inconclusive,
    inspected,
    not_applicable,
    not_checked,
)
from dpaudit.training.opacus.isolated_step import Model
from dpaudit.training.opacus.other_loaders import OtherLoaders
from dpaudit.training.opacus.sampler import SampledBatches
from dpaudit.training.opacus.setup import counted_steps
from dpaudit.training.opacus.size_agreement import reused_batches
from dpaudit.training.steps import (
    ConfiguredSteps,
    accounting_compared,
    accounting_faults,
)

__all__ = ["REUSE_SHARE", "StepConsistency"]

_ROUNDING: Final = 1e-6  # relative, of a clipping norm
REUSE_SHARE: Final = 0.1  # of the false-positive rate of batch sampling
_LEAST: Final = 1e-300  # of a probability that is not 0
_UNLIKE: Final = {"more": "sampling.more_rows", "fewer": "sampling.fewer_rows"}
_OF_UNLIKE: Final = ("steps", "first", "rows", "records")
_COUNTS: Final = (
    "private",  # steps with noise
    "own",  # private steps with a batch of the given loader
    "several",  # steps that used several batches
    "in_parts",  # steps that accumulated gradients of several backward passes
    "wider",  # steps whose clipping norm exceeds the one that scales the noise
    "first_wider",  # the number of the first of these
    # Steps with more or fewer rows than records; the first one's number, rows, records.
    *(f"{which}_{what}" for which in _UNLIKE for what in _OF_UNLIKE),
    "spare",  # records that were handed over and may be used in a later step
)


@final
class StepConsistency:
    """Compares each step with its batches, accountant entry and clipping norm.

    Args:
        model: The model that ``make_private`` returned; None if it was not given.
        optimizer: The optimizer that it returned.
        accountant: The accountant that counts the steps; None if unknown.
        rate: The configured sampling rate of the loader.
        ranks: The number of ranks, each of which compares its part of each batch.

    Attributes:
        steps: The configuration of each step.
        own_rows: Whether the step clips other rows than those of its records, such as
            padding with zeros, or views whose gradients it sums. The number of rows
            then does not show the number of records. Set by the check that detects it.
    """

    def __init__(
        self,
        model: Model | None,
        optimizer: DPOptimizer,
        accountant: HasHistory | None,
        rate: float,
        *,
        ranks: int = 1,
    ) -> None:
        self._model, self._optimizer, self._ranks = model, optimizer, ranks
        self._accountant, self._rate = accountant, rate
        self.steps, self.own_rows = ConfiguredSteps(), False
        self._batches: SampledBatches | None = None
        self._others: OtherLoaders | None = None
        # An accountant of Opacus counts steps as they are made; earlier counts belong
        # to other runs. Any other history may state the whole run beforehand.
        stepwise = isinstance(accountant, IAccountant)
        self._counted_before = counted_steps(accountant) if stepwise else 0
        self._counts = dict.fromkeys(_COUNTS, 0)
        # In the sum of the current step: rows, how many are not zero (if counted), and
        # how often some were added.
        self._rows = self._live = self._parts = 0
        # Steps without a batch: their numbers among the steps of the given loader and
        # those without a batch, and how many rows they clipped.
        self._without, self._without_rows = array("q"), array("q")
        self._norms = (0.0, 0.0)  # the module's and the noise's, where first different

    @property
    def steady(self) -> bool:
        """Whether all steps drew the given loader's batches at one rate."""
        return len({run.rate for run in self.steps.runs} - {None}) <= 1

    @property
    def inside(self) -> bool:
        """Whether gradients were accumulated for a step that was not made yet."""
        return self._rows > 0

    def attach(self, batches: SampledBatches, others: OtherLoaders) -> None:
        """Begin to compare steps with the batches that loaders hand over."""
        self._batches, self._others = batches, others

    def add_rows(self) -> None:
        """Count the rows of gradients that are about to be added to the sum."""
        parameter = self._optimizer.params[0]
        if getattr(parameter, "summed_grad", None) is None:
            self._rows = self._live = self._parts = 0
        self._rows += _rows(parameter)
        kept = getattr(parameter, "grad_sample", None)
        self._parts += len(kept) if isinstance(kept, list) else 1
        if self._others is not None and self._others.waiting:
            self._live += _live_rows(self._optimizer.params)

    def step(self, noise: float, clip: float) -> None:
        """Record a step whose noise was added.

        Args:
            noise: Its noise multiplier.
            clip: The clipping norm that scaled the noise.
        """
        batches, counts = self._batches, self._counts
        rate: float | None = self._rate
        if batches is not None:
            known = self._use_batch(batches, private=noise > 0)
            rate = (batches.rate or rate) if known else None
        self.steps.add(StepSegment(steps=1, noise=noise, clip=clip, rate=rate))
        made = self.steps.count
        norm = getattr(self._model, "max_grad_norm", None)  # with ghost clipping
        if norm is not None and float(norm) > clip * (1 + _ROUNDING):
            counts["wider"] += 1
            if counts["wider"] == 1:
                counts["first_wider"], self._norms = made, (float(norm), clip)

    def _use_batch(self, batches: SampledBatches, *, private: bool) -> bool:
        """Assign a batch to a step; return whether it is one of the given loader."""
        counts, rows, fresh = self._counts, self._rows, batches.fresh()
        live, parts = self._live, self._parts
        self._rows = self._live = self._parts = 0
        waiting, counts["spare"] = counts["spare"], counts["spare"] + sum(fresh)
        if not private:
            return True
        counts["private"] += 1
        counts["in_parts"] += parts > 1
        records, other = counts["spare"], None
        if self._others is not None:
            other = self._others.use(rows if rows == live else None)
        missing = counts["own"] >= batches.handed
        if other is not None and (missing or rows > records):
            assert self._others is not None
            self._others.need(other)
            return False
        if missing:
            self._without.append(counts["own"] + len(self._without) + 1)
            self._without_rows.append(rows)
            return False
        counts["own"] += 1
        if rows > records:
            self._count_unlike("more", rows, records)
        # One row may replace an empty batch.
        elif rows < records and not waiting and len(fresh) == 1 < records:
            self._count_unlike("fewer", rows, records)
        # Once there is a step for each batch, no records remain for later ones.
        left = max(records - rows, 0)
        counts["spare"] = left * (batches.handed > counts["own"])
        counts["several"] += parts > 1 and len(fresh) > 1 and rows == sum(fresh)
        return True

    def _count_unlike(self, which: str, rows: int, records: int) -> None:
        """Count a step with more or fewer rows than records, and record the first."""
        counts = self._counts
        if not counts[f"{which}_steps"]:
            seen = 0, self.steps.count + 1, rows, records
            names = (f"{which}_{what}" for what in _OF_UNLIKE)
            counts |= dict(zip(names, seen, strict=True))
        counts[f"{which}_steps"] += 1

    def saved(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {
            "configured": self.steps.saved().tolist(),
            "counted": self._counted_before,
            "norms": list(self._norms),
            "counts": self._counts,
            "own_rows": self.own_rows,
            "without": [list(self._without), list(self._without_rows)],
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Continue from the state that ``saved`` returned."""
        rows = np.array(saved["configured"], np.float64).reshape(-1, 4)
        self.steps = ConfiguredSteps.restored(rows)
        self._counted_before = int(saved["counted"])
        self.own_rows |= bool(saved["own_rows"])
        module, noise = saved["norms"]
        self._norms = float(module), float(noise)
        self._counts = {name: int(saved["counts"][name]) for name in _COUNTS}
        self._without, self._without_rows = (
            array("q", map(int, each)) for each in saved["without"]
        )

    def checks(self, *, alone: bool) -> Iterator[Finding]:
        """Return the checks of stages other than sampling.

        Args:
            alone: Whether there is only one rank.
        """
        if self._accountant is not None:
            yield accounting_compared(self.steps)
        if alone and self._counts["private"] and not self._counts["in_parts"]:
            yield not_applicable(Stage.AGGREGATION, "aggregation.single")

    def sampling(self, rate: float) -> Iterator[Finding]:
        """Return which batches private steps used, and whether those are samples.

        Args:
            rate: The largest sampling rate given to the accountant.
        """
        batches, others, counts = self._batches, self._others, self._counts
        if batches is None or others is None:
            return
        unknown = len(self._without) - self._reused(rate)[0]
        if self.own_rows or self._ranks > 1:  # another loader's is a part of a batch
            unknown += others.needed
        else:
            unknown += others.unknown(rate)
            yield from others.found(rate)
        if unknown:
            yield not_checked(
                Stage.SAMPLING,
                "sampling.other_loader",
                unknown=unknown,
                steps=counts["private"],
            )
        steps = self.steps.count
        if batches.handed:
            yield inspected(
                Stage.SAMPLING, "sampling.handed", handed=batches.handed, steps=steps
            )
        for which, code in _UNLIKE.items():
            times, first, rows, kept = (
                counts[f"{which}_{what}"] for what in _OF_UNLIKE
            )
            if times and not self.own_rows:
                numbers = {which: times, "step": first, "rows": rows, "records": kept}
                yield inconclusive(code, steps=steps, **numbers)

    def faults(self, rate: float) -> Iterator[Finding]:
        """Return the faults that hold for any claim.

        Args:
            rate: The largest sampling rate given to the accountant.
        """
        again, log_p = self._reused(rate)
        if again:
            yield fault(
                Stage.SAMPLING,
                "sampling.without_batch",
                probability=max(
                    exp(log_p) * self._ranks / (SAMPLING_SHARE * REUSE_SHARE), _LEAST
                ),
                without=again,
                steps=self.steps.count,
            )
        if self._counts["several"] > self.steps.count / 2:
            yield fault(
                Stage.SAMPLING,
                "sampling.several_batches",
                several=self._counts["several"],
                steps=self.steps.count,
            )
        if self._counts["wider"]:
            module, noise = self._norms
            yield fault(
                Stage.CLIPPING,
                "clipping.norms_differ",
                noise_norm=noise,
                clip=module,
                step=self._counts["first_wider"],
                differing=self._counts["wider"],
                steps=self.steps.count,
            )
        if self._accountant is not None:
            yield from accounting_faults(
                self._accountant.history, self.steps, before=self._counted_before
            )

    def _reused(self, rate: float) -> tuple[int, float]:
        """Return how many steps reused a batch, if significant, and the log p-value."""
        if self._batches is None:
            return 0, 0.0
        sizes = self._batches.sizes
        again, log_p = reused_batches(
            self._without, self._without_rows, sizes, rate=rate
        )
        level = log(FALSE_POSITIVE_RATE * SAMPLING_SHARE * REUSE_SHARE / self._ranks)
        return (again, log_p) if log_p <= level else (0, 0.0)


def _rows(parameter: Any) -> int:  # noqa: ANN401 (Opacus' attributes)
    """Return the number of rows of a parameter's per-example gradients, or norms."""
    kept: Any = getattr(parameter, "grad_sample", None)
    if kept is None:  # with ghost clipping
        kept = getattr(parameter, "_norm_sample", ())
    return sum(map(len, kept)) if isinstance(kept, list) else len(kept)


def _live_rows(parameters: Sequence[Any]) -> int:
    """Return how many rows of gradients are nonzero in some parameter."""
    live: torch.Tensor | None = None
    for parameter in parameters:
        kept: Any = getattr(parameter, "grad_sample", None)
        if kept is None:  # with ghost clipping
            kept = getattr(parameter, "_norm_sample", ())
        parts = kept if isinstance(kept, list) else [kept]
        here = torch.cat([(part[:, None] != 0).flatten(1).any(1) for part in parts])
        live = here if live is None else live | here.to(live.device)
        if bool(live.all()):
            break
    return 0 if live is None else int(live.sum())
