"""Audits an Opacus training run: inserts gradient canaries and reads noisy sums.

Each canary is a gradient in its own direction. Where per-record gradients exist and the
data set contains canaries, they are records, and pass through Opacus' own sampler,
clipping, accumulation and noise (``records``). Otherwise they are added to the clipped
sum (``sums``), in any mode: ghost clipping, virtual batches, DDP, FSDP. Either way
every canary is present whatever its secret bit, so that only the sum depends on the
bits. Just before the wrapped optimizer steps, after noise, scaling and reduction over
ranks, the noisy sum is read at the canaries' coordinates. The guesser also gets the
real records' contribution to the sum, so that they mask nothing: the adversary knows
the other records, and which of them were sampled, as the accountant's proof allows. It
sees nothing else.

Insertion and reading are two objects; no secret bit can be reached from what the
guesser keeps of the sums. Under DDP every rank reads all coordinates and reaches the
same result; under FSDP each reads those it holds, and their most confident guesses are
combined.
"""

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import final
from weakref import WeakSet

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.optimizers import DPOptimizer

from dpaudit import _validate
from dpaudit._progress import progress_note
from dpaudit.accounting.curves import HasHistory
from dpaudit.accounting.history import noise_of_steps
from dpaudit.dpsgd.likelihood import saved_counts
from dpaudit.errors import InvalidRunError
from dpaudit.game.coins import Key
from dpaudit.game.design import Design
from dpaudit.game.findings import Finding, Stage, fault, inconclusive, noted
from dpaudit.game.result import Result
from dpaudit.game.setting import CanaryInsertion, InsertionPoint, Setting
from dpaudit.privacy.guarantees import Guarantee
from dpaudit.training.audit import TrainingAudit
from dpaudit.training.likelihoods import Sampling
from dpaudit.training.opacus.attachment import Attachment
from dpaudit.training.opacus.examples import ExampleReader
from dpaudit.training.opacus.insertion import Canary, insertion_of
from dpaudit.training.opacus.isolated_step import Model, patched
from dpaudit.training.opacus.ranks import (
    Ranks,
    check_commitments,
    check_shares,
)
from dpaudit.training.opacus.rehearsal import Train
from dpaudit.training.opacus.setup import (
    Loader,
    accountant_of,
    claim_and_remarks,
    counted_steps,
    hooked_accountant,
    read_facts,
    reported_epsilon,
    steps_unseen,
)
from dpaudit.training.opacus.stage_checks import StageChecks
from dpaudit.training.opacus.step_runner import Batch, Step
from dpaudit.training.opacus.sums import SumInserter
from dpaudit.training.probe.report import Sensitivity

__all__ = ["OpacusAudit", "check_free"]

_LONG_SEED = 1 << 32
_RIDDEN: WeakSet[DPOptimizer] = WeakSet()  # optimizers with an audit attached


@final
class OpacusAudit:
    """Audits one Opacus run, from attach to finish.

    Attributes:
        commitment: The commitment to publish before training.
        design: The design committed to: the one passed, completed from the run.
        data_loader: The loader to train on: the one passed, with its batches recorded
            if canaries are records.

    Example:
        ``audit_opacus`` is shorter. See ``examples/opacus_digits.py``; four lines are
        added to a plain loop::

            plan = plan_opacus(optimizer, data_loader, steps=1000, delta=1e-5)
            audit = OpacusAudit(
                optimizer,
                data_loader,
                design=plan.design(),
                key=Key.generate(),
                accountant=privacy_engine.accountant,
            )
            ...                      # train as before
            print(audit.finish())
    """

    @progress_note("opening the audit")
    def __init__(  # noqa: PLR0913 (each is something that is fixed beforehand)
        self,
        optimizer: DPOptimizer,
        data_loader: Loader,
        *,
        design: Design,
        key: Key,
        accountant: HasHistory | PrivacyEngine | None = None,
        model: Model | None = None,
        step: Step | None = None,
        canary: Canary | None = None,
        sampling: Sampling | None = None,
        knows_real_sums: bool = True,
        unchecked: Collection[str] = (),
    ) -> None:
        """Attach to an optimizer and a loader made by ``make_private``.

        Args:
            optimizer: Opacus' optimizer; noise and clipping norm are read from it.
            data_loader: Opacus' loader; the sampling is read from it. If its data set
                is one of ``with_canaries``, canaries are records.
            design: Fixed beforehand, a plan's or one of your own. Publish
                ``self.commitment`` before training.
            key: The secret of this run, never to be used twice; on several ranks the
                same for all, from ``shared_key()``.
            accountant: The privacy engine or its accountant, whose claim is tested.
            model: The model that ``make_private`` returned; needed to check paths
                around the optimizer, and by ``probe`` to run the step.
            step: A function that does what your loop does with a batch, as for
                ``probe``; needed where canaries are examples, as it is run on each of
                them alone.
            canary: The gradient of an included canary. By default a Dirac of one
                clipping norm, or of 1.25 to 10 where canaries are records: failing to
                clip these to one is detected.
            sampling: How the guesser assumes that canaries which are records are
                sampled, if not as the loader is configured.
            knows_real_sums: Whether the guesser gets the real records' contribution to
                the sums. Without it the audit is a little cheaper, and weaker where
                real gradients are large in a canary's coordinate. Where the loader
                shuffles it must be False.
            unchecked: Checks that you waive, among ``"sampling"``, ``"gradients"``,
                ``"clipping"`` and ``"interference"`` (what comes after the noise): the
                audit is inconclusive if one of these is neither checked nor waived.
        """
        check_free(optimizer)
        _validate.kind("key", key, Key)
        facts = read_facts(optimizer, data_loader)
        self._optimizer, self._facts = optimizer, facts
        self._accountant = accountant_of(accountant)
        self._ranks = Ranks(optimizer)
        self._insertion = insertion = insertion_of(
            optimizer,
            data_loader,
            facts,
            design,
            model=model,
            step=step,
            canary=canary,
            knows_real_sums=knows_real_sums,
            key=key,
        )
        counting = self._counting = (
            hooked_accountant(optimizer)
            if self._accountant is None  # one that has counted nothing is falsy
            else self._accountant
        )
        self._stages = StageChecks(
            model,
            optimizer,
            data_loader,
            counting,
            facts.rate,
            key,
            self._ranks,
        )
        check_shares(int(insertion.mine.sum()), self._ranks)
        self._audit = TrainingAudit(
            design=design,
            key=key,
            # Canaries in sums do not pass through the sampler: its rate is untested.
            sample_rate=min(facts.rate, facts.accounted_rate),
            observed_setting=Setting(
                framework="Opacus",
                rate=facts.rate,
                noise=facts.noise,
                insertion=CanaryInsertion(
                    point=insertion.point,
                    norm=insertion.canary.norm,
                    least_norm=insertion.canary.least,
                    spread=insertion.canary.spread,
                ),
            ),
            knows_real_sums=knows_real_sums,
            sampling=facts.sampling if sampling is None else sampling,
            local_coordinates=np.flatnonzero(insertion.mine),
            groups=insertion.groups,
            by_program=insertion.point is not InsertionPoint.GRADIENT_SUM,
            watched=self._stages.noise.watched,
            types=self._stages.noise.types,
            unchecked=unchecked,
        )
        self.design, self.commitment = self._audit.design, self._audit.commitment
        check_commitments(self.commitment, self._ranks)
        self._attachment = attachment = Attachment(
            optimizer, self._audit.guard, self._ranks
        )
        with ExitStack() as failed:
            failed.callback(attachment.close)
            self._stages.attach(attachment, self._audit.add)
            self._reader, self._inserter = insertion.attach(
                self._audit, self._stages.noise, self._stages.paused, attachment
            )
            consistency = self._stages.step_consistency
            self._reader.steps.tell = consistency.step
            attachment.before_summing(consistency.add_rows)  # wraps the inserter's
            self.data_loader = insertion.data_loader
            _RIDDEN.add(optimizer)
            attachment.on_close(partial(_RIDDEN.discard, optimizer))
            failed.pop_all()

    def save(self, path: str | Path) -> None:
        """Write the audit's state, without the key, to a file; one for each rank."""
        self._attachment.settle()
        self._audit.save(
            path,
            {
                "ranks": np.array([self._ranks.rank, self._ranks.world]),
                "counted": np.array([counted_steps(self._accountant)]),
                "drawn": np.array([self._inserter.step]),
                **self._stages.saved(),
                **(examples.saved() if (examples := self._examples()) else {}),
            },
        )

    def resume(self, path: str | Path) -> None:
        """Continue from a file that ``save`` wrote, with the same key and design.

        Restore the accountant first, from a checkpoint of the same step.
        """
        state = self._audit.read_state(path)
        if saved_counts(state, "ranks", 2) != [self._ranks.rank, self._ranks.world]:
            raise InvalidRunError(
                f"{path} was written by another rank, or with another number of them; "
                "each rank has a file of its own"
            )
        (counted,) = saved_counts(state, "counted", 1)
        self._check_accountant(counted)
        (self._inserter.step,) = saved_counts(state, "drawn", 1)
        self._audit.resume(state)
        self._reader.steps.resume(self._audit.likelihood.steps)
        self._stages.restore(state)
        if examples := self._examples():
            examples.restore(state)

    def probe(
        self,
        step: Step,
        batch: Batch | None = None,
        *,
        train: Train | None = None,
        steps: int | None = None,
        records: int = 8,
        generators: Sequence[torch.Generator] = (),
        seed: int = 0,
    ) -> Sensitivity:
        """Check how much one record changes the sum, and what else depends on records.

        The step is run in copies of the process, about ``18 * records`` times without
        noise, and on batches of other records with noisy sums that are made equal:
        all other reachable state must then be equal too. Training continues as if it
        had not been probed. The findings are part of the result.

        Args:
            step: Your own step on a batch as the loader yields it: ``zero_grad``,
                forward, loss, backward, ``optimizer.step()``, and all else that
                happens to a batch.
            batch: Real records; by default some of the data set.
            train: Your whole loop, without arguments: its first steps are run in
                copies, with other records in place of the data set's.
            steps: How many steps it makes. With it the step is checked again at steps
                that are drawn from the key, for a tenth of the run's time.
            records: How many records are removed, one at a time.
            generators: Random generators that the step draws from, besides torch's,
                numpy's and Python's own.
            seed: The seed for all of them.
        """
        with patched(self._attachment, "inserting", value=False), self._stages.paused():
            sensitivity, others = self._stages.step_checks.check(
                step,
                batch,
                train=train,
                steps=steps,
                records=records,
                generators=generators,
                seed=seed,
            )
        checks = self._stages.step_checks
        plans = self._ranks.gather(np.array([[checks.reworked, checks.planned]]))
        checks.agree(reworked=bool(plans[:, 0].any()), planned=int(plans[:, 1].min()))
        self._audit.add(*others)
        self._stages.step_consistency.own_rows |= sensitivity.own_rows
        return self._audit.probed(sensitivity)

    @property
    def faults(self) -> tuple[Finding, ...]:
        """The faults found so far."""
        return self._audit.faults

    def detach(self) -> None:
        """Restore the optimizer and abandon the audit, without a result.

        With several ranks all must do so, after the same step.
        """
        self._attachment.close()

    @progress_note("finishing the audit")
    def finish(self, *, claim: Guarantee | None = None) -> Result:
        """Restore the optimizer, guess, and return the result, on all ranks together.

        Raises before the first step, and leaves the audit attached.

        Args:
            claim: The accountant's claim, if not the privacy curve of its history.
        """
        self._attachment.settle()
        if self._audit.guard.failure is not None and self._ranks.alone:
            self.detach()
        gather = None if self._ranks.alone else self._ranks.gather
        self._audit.check_observed(gather)
        self._audit.guard.run(self._stages.end)
        self.detach()
        steps = self._audit.likelihood.steps
        curve, remarks = claim_and_remarks(self._accountant, rate=self._facts.rate)
        return self._audit.finish(
            claim=curve if claim is None else claim,
            findings=[
                *steps_unseen(self._counting, steps=steps),
                *self._stages.findings(self._accounted_rate()),
                *self._insertion.findings(),
                *remarks,
                *self._smaller(),
                *self._seeded(),
            ],
            gather=gather,
            agreed=self._agreed,
            accounted_noise=None
            if self._counting is None
            else noise_of_steps(self._counting.history, steps),
            unmodelled=self._unmodelled(),
            reported=reported_epsilon(self._accountant, self.design.bound_delta)
            if claim is None
            else None,
        )

    def _agreed(self, own: Sequence[Finding]) -> list[Finding]:
        """Return the findings of all ranks, or why they are not of all."""
        found, lost = self._ranks.agreed(own), inconclusive("ranks.lost")
        known = not self._ranks.lost or self._audit.guard.failure == lost
        return found if known else [*found, lost]

    def _unmodelled(self) -> Finding | None:
        """Return why a canary may contribute other than one clipping norm."""
        canary = self._insertion.canary
        if self._insertion.point is InsertionPoint.EXAMPLE:
            return noted("forecast.examples")
        if canary.spread > 1:
            return noted("forecast.spread")
        if min(canary.norm, canary.least or canary.norm) < 1 or self._smaller():
            return noted("forecast.smaller")
        return None

    def _examples(self) -> ExampleReader | None:
        return self._reader if isinstance(self._reader, ExampleReader) else None

    def _accounted_rate(self) -> float:
        """Return the largest sampling rate given to the accountant."""
        history = () if self._accountant is None else self._accountant.history
        rates = [float(rate) for _, rate, _ in history]
        return max(rates, default=self._facts.accounted_rate)

    def _check_accountant(self, saved: int) -> None:
        """Refuse to continue from a step that the accountant has not counted."""
        counted = counted_steps(self._accountant)
        if counted != saved:
            raise InvalidRunError(
                f"the accountant had counted {saved} steps when the audit was saved, "
                f"but has counted {counted} now; load its state first, and all "
                "checkpoints of the same step. An accountant that lost its steps "
                "claims too little"
            )

    def _smaller(self) -> tuple[Finding, ...]:
        """Return a note if canaries may be smaller in the sum than they should be."""
        dtypes = {parameter.dtype for parameter in self._optimizer.params}
        if dtypes & {torch.bfloat16, torch.float16}:
            return (noted("sums.half_precision"),)
        per_parameter = hasattr(self._optimizer, "max_grad_norms")
        if not per_parameter or isinstance(self._inserter, SumInserter):
            return ()
        return (noted("clipping.per_parameter"),)

    def _seeded(self) -> tuple[Finding, ...]:
        """Return a finding if the noise can be reproduced from a fixed seed.

        A generator that was never seeded has a default seed, which is no secret.
        """
        generator = self._optimizer.generator
        if self._optimizer.secure_mode:
            return ()
        if generator and generator.initial_seed() == torch.Generator().initial_seed():
            return (fault(Stage.NOISE_INDEPENDENCE, "noise.default_seed"),)
        seed = (generator or torch.default_generator).initial_seed()
        # Seeds drawn by the system are longer. Results are published, so they never
        # contain the seed itself.
        return (noted("noise.fixed_seed"),) if seed < _LONG_SEED else ()


def check_free(optimizer: DPOptimizer) -> None:
    """Refuse an optimizer to which another audit is attached."""
    if optimizer in _RIDDEN:
        raise InvalidRunError(
            "this optimizer already has an audit attached; call its finish(), or its "
            "detach() to give it up"
        )
