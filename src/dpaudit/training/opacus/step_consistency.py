"""One step, one batch, one entry: what the steps of a run must have in common.

The proof of DP-SGD composes steps, each of which adds noise to the clipped sum of one
fresh sample. So every private step, wherever noise is added, needs a batch of its own
from the private sampler: a batch that serves several steps, or one from another loader,
is sampled once or never where the accountant counts a sample for each step. It needs an
entry in the accountant's history with its noise multiplier and rate (``steps``). And
what records are clipped to must be what the noise is scaled by. No probability is
involved.

Up to any step at least as many batches must have been handed to the loop as steps were
made. Batches that no step used are fine; micro-batches are parts of one batch. And no
step may clip more rows than the batches that were handed over for it hold records:
others came from elsewhere, and nothing is known of how they were sampled. Fewer rows
are fine.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, final

import numpy as np
from opacus.accountants import IAccountant
from opacus.optimizers import DPOptimizer

from dpaudit.accounting.curves import HasHistory
from dpaudit.game.configuration import StepSegment
from dpaudit.game.findings import Finding, Stage, fault, inconclusive, inspected
from dpaudit.training.opacus.isolated_step import Model
from dpaudit.training.opacus.sampler import SampledBatches
from dpaudit.training.opacus.setup import counted_steps
from dpaudit.training.steps import (
    ConfiguredSteps,
    accounting_compared,
    accounting_faults,
)

__all__ = ["StepConsistency"]

_ROUNDING: Final = 1e-6  # relative, of a clipping norm
_COUNTS: Final = (
    "without",
    "several",
    "wider",
    "first_wider",
    "more_rows",
    "first_more",  # step, rows and records
    "rows",
    "records",
    "spare",  # records that were handed over and may be used in a later step
)


@final
class StepConsistency:
    """Holds each step against batches, accountant and clipping norm.

    Args:
        model: As ``make_private`` returned it; None if it was not given.
        optimizer: Likewise.
        accountant: What counts the steps; None if that is not known.
        rate: The rate at which the loader was set up to sample.

    Attributes:
        steps: What each step was configured to do.
        own_rows: Whether the step clips other rows than those of the records that it
            is given, such as zeros that fill a batch up, or views whose gradients it
            sums. How many rows there are then tells nothing of the records; whoever
            finds that out sets it.
    """

    def __init__(
        self,
        model: Model | None,
        optimizer: DPOptimizer,
        accountant: HasHistory | None,
        rate: float,
    ) -> None:
        self._model, self._optimizer = model, optimizer
        self._accountant, self._rate = accountant, rate
        self.steps, self.own_rows = ConfiguredSteps(), False
        self._batches: SampledBatches | None = None
        self._given = 0  # batches handed over by the step before
        # An accountant of Opacus counts steps as they are made; what it counted before
        # is of others. Any other history may state the whole run beforehand.
        stepwise = isinstance(accountant, IAccountant)
        self._told = counted_steps(accountant) if stepwise else 0
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._rows = 0  # in the sum of the step that is being made
        self._norms = (0.0, 0.0)  # of module and noise, where they first differed

    @property
    def steady(self) -> bool:
        """Whether batches were drawn at one rate in all steps."""
        return len({run.rate for run in self.steps.runs}) <= 1

    def attach(self, batches: SampledBatches) -> None:
        """Begin to look at the batches that a loader hands over."""
        self._batches = batches

    def add_rows(self) -> None:
        """Take note of rows of gradients that are about to be added to the sum."""
        parameter = self._optimizer.params[0]
        if getattr(parameter, "summed_grad", None) is None:
            self._rows = 0
        self._rows += _rows(parameter)

    def step(self, noise: float, clip: float) -> None:
        """Take note of a step that was given its noise.

        Args:
            noise: Its noise multiplier.
            clip: The clipping norm that the noise was scaled by.
        """
        batches, counts = self._batches, self._counts
        rate = self._rate if batches is None or not batches.rate else batches.rate
        self.steps.add(StepSegment(steps=1, noise=noise, clip=clip, rate=rate))
        made = self.steps.count
        if batches is not None:
            counts["without"] = max(counts["without"], made - batches.handed)
            fresh, self._given = batches.handed - self._given, batches.handed
            kept = getattr(self._optimizer.params[0], "grad_sample", None)
            counts["several"] += fresh > 1 and isinstance(kept, list) and len(kept) > 1
            self._compare_rows(batches)
        norm = getattr(self._model, "max_grad_norm", None)  # with ghost clipping
        if norm is not None and float(norm) > clip * (1 + _ROUNDING):
            counts["wider"] += 1
            if counts["wider"] == 1:
                counts["first_wider"], self._norms = made, (float(norm), clip)

    def _compare_rows(self, batches: SampledBatches) -> None:
        """Hold the rows of a step against the records that were handed over for it."""
        counts, rows, made = self._counts, self._rows, self.steps.count
        records = counts["spare"] + batches.fresh_records()
        if rows > records and made <= batches.handed:  # or the batch itself is missing
            counts["more_rows"] += 1
            if counts["more_rows"] == 1:
                counts |= {"first_more": made, "rows": rows, "records": records}
        # Once there is a step for each batch, none is left for later.
        left = max(records - rows, 0)
        counts["spare"], self._rows = left * (batches.handed > made), 0

    def saved(self) -> dict[str, Any]:
        """Return what was seen, as JSON has it."""
        return {
            "configured": self.steps.saved().tolist(),
            "told": self._told,
            "norms": list(self._norms),
            "counts": self._counts,
            "own_rows": self.own_rows,
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from what ``saved`` returned."""
        rows = np.array(saved["configured"], np.float64).reshape(-1, 4)
        self.steps = ConfiguredSteps.restored(rows)
        self._told = int(saved["told"])
        self.own_rows |= bool(saved["own_rows"])
        module, noise = saved["norms"]
        self._norms = float(module), float(noise)
        self._counts = {name: int(saved["counts"][name]) for name in _COUNTS}
        self._given = 0 if self._batches is None else self._batches.handed

    def checks(self, *, alone: bool) -> Iterator[Finding]:
        """Return what was looked at.

        Args:
            alone: Whether there is one rank: of several each has batches of its own.
        """
        if self._accountant is not None:
            yield accounting_compared(self.steps)
        if alone and self._batches is not None and self._batches.handed:
            yield inspected(
                Stage.SAMPLING,
                "sampling.handed",
                handed=self._batches.handed,
                steps=self.steps.count,
            )
            if self._counts["more_rows"] and not self.own_rows:
                yield inconclusive(
                    "sampling.more_rows",
                    more=self._counts["more_rows"],
                    steps=self.steps.count,
                    step=self._counts["first_more"],
                    rows=self._counts["rows"],
                    records=self._counts["records"],
                )

    def faults(self) -> Iterator[Finding]:
        """Return what is wrong whatever the claim."""
        if self._counts["without"]:
            yield self._without_batch()
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
                self._accountant.history, self.steps, before=self._told
            )

    def _without_batch(self) -> Finding:
        batches, steps = self._batches, self.steps.count
        assert batches is not None
        without = self._counts["without"]
        if not batches.handed:
            return fault(Stage.SAMPLING, "sampling.other_loader", steps=steps)
        return fault(
            Stage.SAMPLING, "sampling.without_batch", without=without, steps=steps
        )


def _rows(parameter: Any) -> int:  # noqa: ANN401 (Opacus' attributes)
    """Return of how many rows a parameter holds gradients, or their norms."""
    kept: Any = getattr(parameter, "grad_sample", None)
    if kept is None:  # with ghost clipping
        kept = getattr(parameter, "_norm_sample", ())
    return sum(map(len, kept)) if isinstance(kept, list) else len(kept)
