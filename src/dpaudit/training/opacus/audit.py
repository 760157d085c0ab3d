"""An audit that rides on an Opacus run: gradient canaries in, noisy sums out.

Each canary is a gradient of its own direction. Where per-record gradients exist and the
data set was given canaries, they are records, and Opacus' own sampler, clipping,
accumulation and noise are run through (``records``). Otherwise they are added to the
clipped sum (``sums``), in any mode: ghost clipping, virtual batches, DDP, FSDP. Either
way every canary is present whatever its coin, so that nothing but the sum depends on
the coins. Just before the wrapped optimizer steps, after noise, scaling and reduction
over ranks, the noisy sum is read at the canaries' coordinates. The guesser is also told
what real records put there, so that they hide nothing: it is one who knows the other
records, and which of them were sampled, as the accountant's proof allows. That is all
it sees.

Insertion and reading are two objects; from what the guesser keeps of the sums, no coin
can be reached. Under several ranks each reads coordinates of its own, and at the end
only its surest guesses meet those of the others.
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
from dpaudit.game.findings import Finding, Stage, fault, noted
from dpaudit.game.result import Result
from dpaudit.game.setting import CanaryInsertion, InsertionPoint, Setting
from dpaudit.privacy.guarantees import Guarantee
from dpaudit.training.audit import Gather, TrainingAudit
from dpaudit.training.likelihoods import Sampling
from dpaudit.training.opacus.attachment import Attachment
from dpaudit.training.opacus.examples import ExampleReader
from dpaudit.training.opacus.insertion import Canary, insertion_of
from dpaudit.training.opacus.isolated_step import Model, patched
from dpaudit.training.opacus.rehearsal import Train
from dpaudit.training.opacus.setup import (
    Loader,
    accountant_of,
    check_commitments,
    check_shares,
    claim_and_remarks,
    counted_steps,
    gathered,
    hooked_accountant,
    local,
    rank_and_world,
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
_RIDDEN: WeakSet[DPOptimizer] = WeakSet()  # optimizers that an audit rides on


@final
class OpacusAudit:
    """Audits one Opacus run, from attach to finish.

    Attributes:
        commitment: To publish before training.
        design: As it is committed to: the one given, with what was read.
        data_loader: To train on: the loader that was given, with its batches noted if
            canaries are records.

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
            model: As ``make_private`` returned it, so that other ways out of it are
                looked at, and ``probe`` can run its step.
            step: What you do with a batch, as ``probe`` takes it: needed where canaries
                are examples, as it is run on each of them alone.
            canary: What an included canary's gradient is. If left out, a Dirac of one
                clipping norm, or of 1.25 to 10 where canaries are records: clipping
                must cut these to one, and if it does not, that shows.
            sampling: How the guesser is to believe that canaries which are records
                join steps, if not as the loader says.
            knows_real_sums: Whether the guesser is told what real records put into the
                sums. Without it the audit is a little cheaper, and weaker where real
                gradients are large in a canary's coordinate. Where the loader shuffles
                it must be False.
            unchecked: What you do without, among ``"sampling"``, ``"gradients"``,
                ``"clipping"`` and ``"interference"`` (what comes after the noise):
                without a check of these and without this the audit is inconclusive.
        """
        check_free(optimizer)
        _validate.kind("key", key, Key)
        facts = read_facts(optimizer, data_loader)
        self._optimizer, self._facts = optimizer, facts
        self._accountant = accountant_of(accountant)
        self._rank, self._world = rank_and_world(optimizer)
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
            if self._accountant is None  # one that has counted nothing is false
            else self._accountant
        )
        self._stages = StageChecks(
            model,
            optimizer,
            data_loader,
            counting,
            facts.rate,
            key,
        )
        self._gather = _gather(optimizer)
        if self._gather is not None:
            check_shares(int(insertion.mine.sum()), self._gather)
        self._audit = TrainingAudit(
            design=design,
            key=key,
            # Sums do not run through the sampler, so they hold no one to its rate.
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
            unchecked=unchecked,
        )
        self.design, self.commitment = self._audit.design, self._audit.commitment
        if self._gather is not None:
            check_commitments(self.commitment, self._gather)
        self._attachment = attachment = Attachment(optimizer, self._audit.guard)
        with ExitStack() as failed:
            failed.callback(attachment.close)
            self._stages.attach(attachment, self._audit.add)
            self._reader, self._inserter = insertion.attach(
                self._audit, self._stages.noise, self._stages.paused, attachment
            )
            consistency = self._stages.step_consistency
            self._reader.steps.tell = consistency.step
            attachment.before_summing(consistency.add_rows)  # around the inserter's own
            self.data_loader = insertion.data_loader
            _RIDDEN.add(optimizer)
            attachment.on_close(partial(_RIDDEN.discard, optimizer))
            failed.pop_all()

    def save(self, path: str | Path) -> None:
        """Write what was seen so far to a file that holds no key; one for each rank."""
        self._audit.save(
            path,
            {
                "ranks": np.array([self._rank, self._world]),
                "counted": np.array([counted_steps(self._accountant)]),
                "drawn": np.array([self._inserter.step]),
                **self._stages.saved(),
                **(examples.saved() if (examples := self._examples()) else {}),
            },
        )

    def resume(self, path: str | Path) -> None:
        """Go on from a file that ``save`` wrote, with the same key and design.

        Restore the accountant first, from a checkpoint of the same step.
        """
        state = self._audit.read_state(path)
        if saved_counts(state, "ranks", 2) != [self._rank, self._world]:
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

        The step is run in copies of the process, some ``18 * records`` times without
        noise, and on batches of other records with noisy sums that are made equal:
        whatever else is reachable must then be equal too. The training goes on as if it
        had not been probed. What is seen is part of the result.

        Args:
            step: Your own, given a batch as the loader yields it: ``zero_grad``,
                forward, loss, backward, ``optimizer.step()``, and all else that
                happens to a batch.
            batch: Real records; some of the data set's if left out.
            train: Your whole loop, without arguments: its beginning is played in
                copies, with other records in place of the data set's.
            steps: How many steps it makes. With it the step is checked again at steps
                that are drawn from the key, for a tenth of the run's time.
            records: How many of them leave, one at a time.
            generators: Random generators that the step draws from, besides torch's,
                numpy's and Python's own.
            seed: For all of them.
        """
        with patched(self._attachment, "inserting", value=False), self._stages.paused():
            found, besides = self._stages.step_checks.check(
                step,
                batch,
                train=train,
                steps=steps,
                records=records,
                generators=generators,
                seed=seed,
            )
        self._audit.add(*besides)
        self._stages.step_consistency.own_rows |= found.own_rows
        return self._audit.probed(found)

    @property
    def faults(self) -> tuple[Finding, ...]:
        """What was found to be wrong so far."""
        return self._audit.faults

    def detach(self) -> None:
        """Leave the optimizer as it was, without a result: the audit is given up."""
        self._attachment.close()

    @progress_note("finishing the audit")
    def finish(self, *, claim: Guarantee | None = None) -> Result:
        """Leave the optimizer as it was, guess, and judge.

        Before the first step there is nothing to judge: the audit stays attached.

        Args:
            claim: What the accountant stands for, if not the curve of its history.
        """
        if self._audit.guard.failure is not None:
            self.detach()
        self._audit.check_observed(self._gather)
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
            gather=self._gather,
            accounted_noise=None
            if self._counting is None
            else noise_of_steps(self._counting.history, steps),
            unmodelled=self._unmodelled(),
            reported=reported_epsilon(self._accountant, self.design.bound_delta)
            if claim is None
            else None,
        )

    def _unmodelled(self) -> Finding | None:
        """Return why canaries may be other than a clipping norm each."""
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
        """Return the largest rate that the accountant was told."""
        history = () if self._accountant is None else self._accountant.history
        told = [float(rate) for _, rate, _ in history]
        return max(told, default=self._facts.accounted_rate)

    def _check_accountant(self, saved: int) -> None:
        """Refuse to go on from a step that the accountant knows nothing of."""
        counted = counted_steps(self._accountant)
        if counted != saved:
            raise InvalidRunError(
                f"the accountant had counted {saved} steps when the audit was saved, "
                f"but has counted {counted} now; load its state first, and all "
                "checkpoints of the same step. An accountant that lost its steps "
                "claims too little"
            )

    def _smaller(self) -> tuple[Finding, ...]:
        """Say so if canaries may be smaller in the sum than they should be."""
        dtypes = {parameter.dtype for parameter in self._optimizer.params}
        if dtypes & {torch.bfloat16, torch.float16}:
            return (noted("sums.half_precision"),)
        apart = hasattr(self._optimizer, "max_grad_norms")
        if not apart or isinstance(self._inserter, SumInserter):
            return ()
        return (noted("clipping.per_parameter"),)

    def _seeded(self) -> tuple[Finding, ...]:
        """Say so if the noise can be made again from a number that somebody chose.

        A generator that nobody seeded has the same number everywhere: no secret.
        """
        generator = self._optimizer.generator
        if self._optimizer.secure_mode:
            return ()
        if generator and generator.initial_seed() == torch.Generator().initial_seed():
            return (fault(Stage.NOISE_INDEPENDENCE, "noise.default_seed"),)
        seed = (generator or torch.default_generator).initial_seed()
        # Seeds that the system draws are longer. Results are published, so the seed
        # itself is never named.
        return (noted("noise.fixed_seed"),) if seed < _LONG_SEED else ()


def _gather(optimizer: DPOptimizer) -> Gather | None:
    """Return what turns numbers of this rank into those of all, if there are others."""
    _, world = rank_and_world(optimizer)
    if world == 1:
        return None
    return partial(gathered, device=local(optimizer.params[0]).device)


def check_free(optimizer: DPOptimizer) -> None:
    """Refuse an optimizer that another audit rides on."""
    if optimizer in _RIDDEN:
        raise InvalidRunError(
            "this optimizer already has an audit attached; call its finish(), or its "
            "detach() to give it up"
        )
