"""Checks the pipeline stages of an Opacus run by other means than canaries.

These are the noise of each step, the batches that the loader yields, side effects
outside the private optimizer, and probes of the user's own step. Each reports what it
checked and any fault, in the coverage of the result and in every checkpoint, so that
an interrupted and resumed run reports the same as an uninterrupted one.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final, NoReturn, final

from opacus.optimizers import DPOptimizer

from dpaudit.accounting.curves import HasHistory
from dpaudit.dpsgd.likelihood import State
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.coins import Key
from dpaudit.game.findings import Finding, Stage, Status, not_checked, noted
from dpaudit.training.batch_sampling import BatchSampling
from dpaudit.training.opacus.attachment import Attachment, BareSteps
from dpaudit.training.opacus.isolated_step import Model
from dpaudit.training.opacus.noise_reader import NoiseReader
from dpaudit.training.opacus.other_loaders import OtherLoaders
from dpaudit.training.opacus.ranks import Ranks
from dpaudit.training.opacus.sampler import SampledBatches
from dpaudit.training.opacus.setup import Loader
from dpaudit.training.opacus.side_effects import SideEffects
from dpaudit.training.opacus.step_checks import StepChecks
from dpaudit.training.opacus.step_consistency import REUSE_SHARE, StepConsistency
from dpaudit.training.opacus.step_runner import (
    parameter_names,
)
from dpaudit.training.probe.report import packed, unpacked

__all__ = ["StageChecks"]

_STATE = "stages"
_LEFT_OPEN: Final = {"sampling.other_loader", "sampling.sizes_vary"}
_OWN_SHARE: Final = 0.5 - REUSE_SHARE  # of the false-positive rate of batch sampling


@final
class StageChecks:
    """Checks the pipeline stages of a run, once it is attached.

    Args:
        model: The model that ``make_private`` returned; None if it was not given.
        optimizer: The optimizer that it returned.
        loader: The loader that it returned.
        accountant: The accountant that counts the steps; None if unknown.
        rate: The configured sampling rate of the loader.
        key: The run's key, from which the steps, records and coordinates to check are
            drawn.
        ranks: The ranks of the run.

    Attributes:
        noise: Reads the noise of each step.
        step_consistency: Compares each step with its batches, accountant entry and
            clipping norm.
    """

    def __init__(
        self,
        model: Model | None,
        optimizer: DPOptimizer,
        loader: Loader,
        accountant: HasHistory | None,
        rate: float,
        key: Key,
        ranks: Ranks,
    ) -> None:
        self._model, self._optimizer, self._loader = model, optimizer, loader
        self._ranks = ranks
        self.noise = NoiseReader(optimizer, parameter_names(model, optimizer), key)
        self._sampled: SampledBatches | None = None
        self._others: OtherLoaders | None = None
        self.step_consistency = StepConsistency(
            model, optimizer, accountant, rate, ranks=ranks.world
        )
        self._beside = SideEffects(model, optimizer, key.generator("idle weights", 0))
        self._step_checks: StepChecks | None = None
        self._rng = key.generator("step checks", 0)
        self._bare = BareSteps()

    def __reduce__(self) -> NoReturn:
        raise InvalidRunError(
            "an audit holds its key and cannot be pickled; use its save()"
        )

    def attach(self, attachment: Attachment, tell: Callable[[Finding], object]) -> None:
        """Begin to check; ``tell`` receives findings made during training."""
        if self._ranks.alone:  # a rank does not know what others skip
            self._bare = attachment.skips_bare
        if self._model is not None:
            checks = self._step_checks = StepChecks(
                self._model,
                self._optimizer,
                self._loader,
                close=attachment.close,
                skips_bare=self._bare,
                rng=self._rng,
            )
            attachment.reworked = lambda: checks.reworked

        def between() -> None:
            made = self.step_consistency.steps.count
            if self._step_checks is not None:
                for finding in self._step_checks.between(made):
                    tell(finding)

        self._beside.attach(attachment)
        self._sampled = SampledBatches(self._loader, attachment.guard)
        self._sampled.between = attachment.guard.hook(between)
        attachment.on_close(self._sampled.detach)
        self._others = OtherLoaders(
            self._loader,
            self._sampled,
            attachment.guard,
            watching=lambda: attachment.inserting,
        )
        consistency = self.step_consistency
        self._others.between = lambda: None if consistency.inside else between()
        self._others.attach()
        attachment.on_close(self._others.detach)
        consistency.attach(self._sampled, self._others)

    def end(self) -> None:
        """Check for side effects once more, after training."""
        self._beside.end()

    def paused(self) -> AbstractContextManager[None]:
        """Return a context in which no side effect is recorded."""
        return self._beside.paused()

    @property
    def step_checks(self) -> StepChecks:
        """The checks of the user's step."""
        if self._step_checks is None:
            raise InvalidInputError(
                "a probe needs the model: OpacusAudit(..., model=model), as "
                "make_private returned it"
            )
        return self._step_checks

    def findings(self, rate: float) -> Iterator[Finding]:
        """Return the checks of stages by inspection, and the faults found.

        Args:
            rate: The sampling rate given to the accountant.
        """
        yield from self._not_checked()
        examined, compared = set[str](), False
        if self._step_checks is not None:
            yield from self._step_checks.findings()
            examined = self._step_checks.examined
            compared = self._step_checks.compared
        yield from self._beside.findings(examined, compared=compared)
        if self._bare.passed:
            yield noted("rehearsal.bare", steps=self._bare.passed)
        consistency = self.step_consistency
        if self._sampled is not None:
            yield from self._sampling(self._sampled, rate)
        yield from consistency.checks(alone=self._ranks.alone)
        yield from consistency.faults(rate)

    def _sampling(self, sampled: SampledBatches, rate: float) -> Iterator[Finding]:
        """Return whether the batches that steps used are Poisson samples.

        Inspections count as checks only if no question is left open.
        """
        consistency, ranks, drawn = self.step_consistency, self._ranks, sampled.sampling
        whole: BatchSampling | None = drawn
        if not ranks.alone:  # each draws a part of a batch
            whole = drawn.of_all_ranks(ranks.counted, ranks.gather)
        why = "sampling.own_shards" if not (ranks.alone or sampled.shares) else ""
        why = why or ("sampling.rank_lost" if ranks.lost else "")
        if whole is None or why:
            checks: Sequence[Finding] = (
                not_checked(Stage.SAMPLING, why or "sampling.ranks_differ"),
            )
            faults: Sequence[Finding] = [*drawn.turns_missed(1, None)]
        else:
            checks, faults = whole.found(
                rate, steady=consistency.steady, share=_OWN_SHARE
            )
        findings = [*checks, *faults, *consistency.sampling(rate)]
        left_open = any(finding.code in _LEFT_OPEN for finding in findings)
        left_open |= whole is None or bool(why)
        for finding in findings:
            if not (left_open and finding.status is Status.INSPECTED):
                yield finding

    def saved(self) -> State:
        """Return the state as arrays; noise is kept by the audit itself."""
        others, arrays = self._others.saved() if self._others else ({}, {})
        kept = {
            "changed": self._beside.changed,
            "steps": self._beside.steps,
            "passed": self._bare.passed,
            "step_consistency": self.step_consistency.saved(),
            "others": others,
            "again": self._step_checks.saved() if self._step_checks else {},
        }
        batches = self._sampled.saved() if self._sampled else {}
        return {_STATE: packed(kept), **batches, **arrays}

    def restore(self, state: State) -> None:
        """Continue from the state that ``saved`` returned."""
        fields = {"changed", "steps", "passed", "again", "others"}
        plain = unpacked(state, _STATE, {*fields, "step_consistency"})
        self._beside.changed = {
            str(name): int(times) for name, times in plain["changed"].items()
        }
        self._beside.steps = int(plain["steps"])
        self._bare.passed = int(plain["passed"])
        if self._sampled is not None:
            self._sampled.restore(state)
        if self._others is not None:
            self._others.restore(plain["others"], state)
        self.step_consistency.restore(plain["step_consistency"])
        if self._step_checks is not None:
            self._step_checks.restore(plain["again"])
        self._beside.forget()

    def _not_checked(self) -> Iterator[Finding]:
        """Return what would check each stage that may be left unchecked."""
        probe = "probe.would_step" if self._model else "probe.would_with_model"
        for stage, code in (
            (Stage.GRADIENTS, probe),
            (Stage.CLIPPING, probe),
            (Stage.SIDE_PATHS, probe),
            (Stage.AGGREGATION, "canaries.records_would"),
            (Stage.SAMPLING, "canaries.records_would_on_ranks"),
        ):
            yield not_checked(stage, code)
        if self.noise.why_not:
            yield not_checked(Stage.NOISE_INDEPENDENCE, self.noise.why_not)
