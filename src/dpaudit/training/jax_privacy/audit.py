"""Audit a JAX Privacy run with gradient canaries, from its noisy sums.

Each canary is a gradient of full clipping norm in one coordinate. The audit wraps the
privatizer, which turns a clipped sum into a noisy one; the guesser sees the noisy sum
at the canaries' coordinates. Canaries are inserted in one of two ways. As *sums*, the
audit draws which canaries join a step and adds them to the clipped sum just before the
noise: the loop hardly changes, but sampling and clipping are not exercised; the guesser
also knows the sum before canaries. As *records*, they are rows of the data set with a
loss of their own, and JAX Privacy treats them like any record.

The norm of a clipped record in the sum is read from what ``clipped_grad`` returned, the
sampling rate from the batch selection, the claim from the event that was accounted for.
"""

from collections.abc import Collection, Iterator, Mapping
from functools import wraps
from math import sqrt
from pathlib import Path
from typing import Final, Self, final

import jax
import numpy as np
import optax
from dp_accounting import DpEvent
from jax_privacy.batch_selection import CyclicPoissonSampling
from jax_privacy.clipping import BoundedSensitivityCallable
from jax_privacy.experimental.execution_plan import BandMFExecutionPlanConfig
from numpy.typing import ArrayLike, NDArray

from dpaudit._progress import progress_note
from dpaudit.accounting.curves import accountant_curve
from dpaudit.accounting.history import noise_of_steps
from dpaudit.dpsgd.participation import Participation
from dpaudit.dpsgd.strategy import Strategy
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.coins import Key
from dpaudit.game.design import Design
from dpaudit.game.findings import Finding, Stage, not_checked, noted
from dpaudit.game.result import Result
from dpaudit.game.setting import Setting
from dpaudit.privacy.guarantees import Guarantee
from dpaudit.training.any_loop import (
    noise_watched,
)
from dpaudit.training.audit import TrainingAudit, coordinates_needed
from dpaudit.training.batch_sampling import BatchSampling
from dpaudit.training.canary_coverage import checks_of_records, checks_of_sums
from dpaudit.training.jax_privacy.layout import Tree, TreeLayout, named_arrays
from dpaudit.training.jax_privacy.privatizer import (
    ForcedSum,
    audited_privatizer,
    cleared,
    exchange,
    find,
)
from dpaudit.training.jax_privacy.records import CanaryRows, canary_records
from dpaudit.training.jax_privacy.setup import (
    Insertion,
    Records,
    Sums,
    check_privatizer,
    clipping_norm,
    history_of,
    insertion_setting,
    noise_of,
    norm_in_sum,
    sampling_of,
    strategy_of,
)
from dpaudit.training.probe import (
    ClippedSum,
    Update,
    UpdateReport,
    probe_sum,
    probe_update,
)
from dpaudit.training.probe.report import Sensitivity
from dpaudit.training.released import ReleasedModel
from dpaudit.training.steps import history_compared
from dpaudit.training.strategy_check import check_strategy

__all__ = ["JaxAudit"]

_PADDING: Final = -1  # row index of padding


@final
class JaxAudit:
    """Audits one JAX Privacy run.

    Example:
        See ``examples/jax_digits.py``; four statements are added to a plain loop::

            audit = JaxAudit(
                params, grad_fn, batch_selection, event, design=design, key=key
            )
            privatizer = audit.wrap(privatizer)
            noise_state = privatizer.init(params)
            for batch in batches:
                params, noise_state = train_step(params, noise_state, batch)
                noise_state = audit.observe(noise_state)
            print(audit.finish())
    """

    def __init__(  # noqa: PLR0913 (each is something that is fixed beforehand)
        self,
        params: Tree,
        clipped_grad: BoundedSensitivityCallable,
        batch_selection: CyclicPoissonSampling,
        event: DpEvent | None = None,
        *,
        design: Design,
        key: Key,
        insertion: Insertion = Sums(),  # noqa: B008 (a frozen value)
        noise: float | None = None,
        strategy: Strategy | None = None,
        participation: Participation | None = None,
        records: int | None = None,
        unchecked: Collection[str] = (),
    ) -> None:
        """Read the run's configuration; ``wrap`` attaches the audit.

        Args:
            params: The parameters, or any tree of arrays or shapes like the gradients.
            clipped_grad: What ``clipped_grad`` or ``clipped_fun`` returned, before
                ``jax.jit``; the norm of a clipped record is read from it.
            batch_selection: The Poisson sampling, in cycles or not; rate and cycles are
                read from it.
            event: The event that was accounted for, for example ``dpsgd_event(...)`` or
                a plan's ``dp_event``. Its whole privacy curve is tested. If left out,
                only the design's claim is.
            design: Fixed beforehand. Publish ``self.commitment`` before training.
            key: The secret of this run; never use one twice.
            insertion: ``Sums()``, or ``Records(norm=...)``; see ``records``.
            noise: The noise multiplier relative to a record's norm in the sum, before
                any correlation; with ``Sums()`` the noise itself is compared with it.
            strategy: How noise is correlated from step to step, if it is; ``of_plan``
                reads it from an execution plan.
            participation: When canaries participate; the cycles of the batch selection
                if left out, and no more often than these.
            records: Number of records that the batch selection picks from, canaries
                included, if the batches will be passed to ``observe``.
            unchecked: Stages you leave unchecked, among ``"sampling"``,
                ``"gradients"``, ``"clipping"`` and ``"interference"`` (what comes after
                the noise). A stage that is neither checked nor listed makes the audit
                inconclusive.
        """
        self._history = None if event is None else history_of(event)
        self._norm = norm_in_sum(clipped_grad)
        self._clip = clipping_norm(clipped_grad)
        rate, cycles = sampling_of(batch_selection)
        participation = cycles if participation is None else participation
        if cycles and participation and participation.every < cycles.every:
            raise InvalidInputError(
                f"participation={participation!r} come more often than the cycles of "
                f"the batch selection, every {cycles.every} steps, which the "
                "accountant counts on"
            )
        if isinstance(insertion, Records) and (participation or strategy):
            raise InvalidInputError(
                "canaries that are records are for plain Poisson sampling and "
                "independent noise: which cycle a record is in, nobody but the sampler "
                "knows; use insertion=Sums()"
            )
        self._strategy, self._insertion = strategy, insertion
        self._forced, self._released = ForcedSum(self._norm), ReleasedModel()
        self._rate, self._sampled = rate, rate < 1 or participation is not None
        self._separation = cycles.every if cycles else 1
        self._sampling = None if records is None else BatchSampling(records)
        self._tree = TreeLayout.of(params, coordinates_needed(design), key=key)
        layout = self._tree.layout
        # The audit knows the sum that it adds canaries to; with records it does not.
        self._knows_real_sums = not isinstance(insertion, Records)
        self._stated, self._noise = noise, noise if self._knows_real_sums else None
        self._watched = noise_watched(layout.coordinates, key)
        leaves = layout.array[self._watched]
        self._audit = TrainingAudit(
            design=design,
            key=key,
            sample_rate=rate,
            observed_setting=Setting(
                framework="JAX Privacy",
                dimension=layout.dimension,
                rate=rate,
                norm_in_sum=self._norm,
                insertion=insertion_setting(insertion),
                noise=noise or None,
            ),
            knows_real_sums=self._knows_real_sums,
            participation=participation,
            strategy=strategy,
            groups=layout.groups,
            by_program=isinstance(insertion, Records),
            watched=[f"leaf {leaf}" for leaf in leaves] if self._noise else (),
            types=[str(jax.tree.leaves(params)[leaf].dtype) for leaf in leaves],
            unchecked=unchecked,
        )
        self.design, self.commitment = self._audit.design, self._audit.commitment

    @classmethod
    def of_plan(
        cls,
        config: BandMFExecutionPlanConfig,
        params: Tree,
        clipped_grad: BoundedSensitivityCallable,
        *,
        design: Design,
        key: Key,
        participation: Participation | None = None,
        records: int | None = None,
        unchecked: Collection[str] = (),
    ) -> Self:
        """Read the configuration from an execution plan, with correlated noise or not.

        Args:
            config: The plan's configuration; the plan itself hides its strategy.
            params: The parameters, or any tree of arrays or shapes like the gradients.
            clipped_grad: What ``config.plan.clipped_grad(loss)`` returned, before
                ``jax.jit``.
            design: Fixed beforehand. Publish ``self.commitment`` before training.
            key: The secret of this run; never use one twice.
            participation: When canaries participate; the plan's cycles if left out.
            records: As above.
            unchecked: As above.
        """
        plan = config.plan
        return cls(
            params,
            clipped_grad,
            plan.batch_selection_strategy,
            plan.dp_event,
            design=design,
            key=key,
            noise=noise_of(config),
            strategy=strategy_of(config),
            participation=participation,
            records=records,
            unchecked=unchecked,
        )

    def wrap(
        self, privatizer: optax.GradientTransformation
    ) -> optax.GradientTransformation:
        """Return the privatizer with canaries added before it and read after it.

        Use it in place of the privatizer, in compiled code or not. Its state is an
        ``AuditedState``; pass it to ``observe`` after each step.
        """
        check_privatizer(privatizer, self._strategy)

        def first() -> tuple[NDArray[np.float64], int]:
            return self._joining(), self._audit.likelihood.steps

        return audited_privatizer(
            privatizer,
            self._tree,
            self._forced,
            first,
            knows_real_sums=self._knows_real_sums,
        )

    def records(self, data: Tree) -> tuple[Tree, CanaryRows]:
        """Return the data with rows for canaries appended, and their ``CanaryRows``.

        For ``insertion=Records(norm=...)``. Sample from all rows, take each batch's
        rows of both, and train on ``canary_loss(loss)``.

        Args:
            data: Arrays, or a tree of arrays, with one row per record.
        """
        if not isinstance(self._insertion, Records):
            raise InvalidInputError(
                "this audit adds its canaries to sums; for canaries that are records "
                "pass insertion=Records(norm=l2_clip_norm)"
            )
        weights = self._insertion.norm * self._audit.draws.included
        return canary_records(data, self._tree.layout, weights)

    def observe(self, state: Tree, *, batch: ArrayLike | None = None) -> Tree:
        """Record the step that was taken, and return the state for the next one.

        Call it after every step, outside compiled code. It never raises: errors are
        reported by ``finish``, and no further canary joins.

        Args:
            state: What the wrapped privatizer's ``update`` returned as its state, or
                any tree that holds it, such as the state of an ``optax.chain``.
            batch: The rows that the batch selection picked for the step, padded or not,
                if the audit was opened with ``records=...``.
        """
        self._audit.guard.run(self._observe, state, batch)
        if self._audit.guard.failure is not None:
            return cleared(state)
        return exchange(state, self._joining())

    def _observe(self, state: Tree, batch: ArrayLike | None) -> None:
        if (batch is not None) != (self._sampling is not None):
            raise InvalidRunError(
                "batch belongs to an audit that was opened with records=..., and to "
                "each of its steps: audit.observe(noise_state, batch=rows)"
            )
        step, seen, real = find(state)
        before = self._audit.likelihood.steps
        if step != before + 1:
            raise InvalidRunError(
                f"the privatizer has taken {step} steps and {before} were observed "
                "before; call noise_state = audit.observe(noise_state) once after "
                "every step"
            )
        if self._sampling is not None:
            rows = np.asarray(batch)
            self._sampling.add(rows[rows != _PADDING])
        joined, parts = self._expected(), [real / self._norm, seen / self._norm]
        sums = parts[1] - parts[0]
        self._audit.observe(sums, joined, noise=self._stated, clip=self._norm)
        if self._noise:
            added, here = sums - joined, self._watched
            parts = [part[here] for part in parts]
            self._audit.watch_noise(added[here], self._noise, parts)

    def probe(
        self,
        clipped_sum: ClippedSum,
        batch: Tree,
        *,
        records: int = 8,
        seed: int = 0,
    ) -> Sensitivity:
        """Measure how much one record changes the sum that the privatizer is given.

        The findings are added to the result. Probe at the start, and again at steps
        that you choose beforehand.

        Args:
            clipped_sum: Maps a batch to what goes into ``privatizer.update``, as your
                step computes it; compile it with ``jax.jit``. With padding it takes
                ``keep``, False at padding rows::

                    @jax.jit
                    def clipped_sum(batch, keep):
                        return grad_fn(params, *batch, is_padding_example=~keep)

                It may also take ``scale``, by which to multiply the loss. See
                ``dpaudit.training.probe.probe_sum``.
            batch: Real records, a dozen is enough: a tree of arrays with one row for
                each. With microbatches, a multiple of their size.
            records: How many of them are removed, one at a time.
            seed: Selects which.
        """
        leaves, structure = jax.tree.flatten(batch)

        @wraps(clipped_sum)
        def by_name(rows: list[Tree], **given: Tree) -> Tree:
            sums = clipped_sum(jax.tree.unflatten(structure, rows), **given)
            return self._tree.named(sums)

        return self._audit.probed(
            probe_sum(by_name, leaves, norm=self._norm, records=records, seed=seed)
        )

    def probe_step(self, step: Update, batch: Tree) -> UpdateReport:
        """Check that a step's result depends on records only through the noisy sum.

        The step is run thirteen times, uncompiled, on batches of different records and
        on one with a record fewer, while the wrapped privatizer is given the same sum
        instead of theirs. All that the step returns must then be equal, bit for bit.
        The findings are added to the result. Probe at the start, and again at steps
        that you choose beforehand.

        What ``step`` does not return is not checked, nor what the privatizer itself
        keeps of the sums, nor records that are not in ``batch``.

        Args:
            step: Maps a batch to the whole state after your step: the parameters, the
                states of privatizer and optimizer, and whatever else steers later
                steps. It calls the wrapped privatizer, begins from the same state in
                each call, and draws from the same keys. With padding it takes ``keep``,
                False at padding rows::

                    audit.probe_step(
                        lambda batch, keep: step(params, noise_state, batch, ~keep),
                        batch,
                    )

                Otherwise a record is really removed. A public batch size must not be
                computed from the batch.
            batch: Real records, a dozen is enough: a tree of arrays with one row for
                each. Each call is given half of them; with microbatches that half must
                be a multiple of their size.
        """
        leaves, structure = jax.tree.flatten(batch)

        def run(some: list[Tree], given: Mapping[str, Tree], *, second: bool) -> Tree:
            with self._forced.begin(int(second)):
                left = step(jax.tree.unflatten(structure, some), **given)
            return named_arrays(left)

        before = self._forced.taken
        report = probe_update(run, leaves, function=step, name="step")
        if self._forced.taken == before:
            code = "interference.update_not_reached"
            why = not_checked(Stage.SIDE_PATHS, code, ran="step")
            report = UpdateReport(findings=(why,))
        self._audit.add(*report.findings)
        return report

    def after_step(self, params: Tree) -> None:
        """Record the parameters after a step, once ``observe`` was called.

        Call it after each step; ``finish(released=...)`` compares with the last.

        Args:
            params: All that will be released.
        """
        steps = self._audit.likelihood.steps
        self._released.after_step(named_arrays(params), steps=steps)

    def save(self, path: str | Path) -> None:
        """Write the observations so far to a file; it does not contain the key."""
        self._audit.save(path, self._sampling and self._sampling.saved())

    def resume(self, path: str | Path) -> None:
        """Continue from a file that ``save`` wrote, with the same key and design.

        The privatizer's state belongs in the checkpoint of the training run.
        """
        state = self._audit.read_state(path)
        self._audit.resume(state)
        if self._sampling is not None:
            self._sampling.restore(state)

    @progress_note("finishing the audit")
    def finish(
        self, *, claim: Guarantee | None = None, released: Tree = None
    ) -> Result:
        """Guess the coins, test the claims and return the result.

        Args:
            claim: The accountant's privacy curve, if it is not that of the event.
            released: The parameters that are released, if ``after_step`` was called
                after each step.
        """
        self._audit.check_observed()
        named = None if released is None else named_arrays(released)
        steps = self._audit.likelihood.steps
        findings = [
            *self._checks(),
            *self._of_strategy(),
            *self._released.findings(named, steps=steps),
        ]
        if claim is None and self._history:
            claim = accountant_curve(self._history)
            findings += self._of_accounting(self._history)
        if self._sampling is not None:
            findings += self._of_batches(self._sampling)
        return self._audit.finish(
            claim=claim,
            findings=findings,
            accounted_noise=self._accounted_noise(),
            unmodelled=self._unmodelled(),
        )

    def _of_batches(self, sampling: BatchSampling) -> Iterator[Finding]:
        """Compare batches with the accounted rate, or with the cycles."""
        history, cycles, steps = self._history, self._separation, sampling.batches
        accounted = [rate for _, rate, _ in history or ()] if cycles == 1 else []
        checks, faults = sampling.found(
            max(accounted, default=self._rate),
            separation=cycles,
            most=-(-steps // cycles) if cycles > 1 else None,
        )
        yield from (*checks, *faults)

    def _unmodelled(self) -> Finding | None:
        """Return why canaries may not have exactly the clipping norm."""
        if isinstance(self._insertion, Sums):
            return None
        clip = self._clip
        whole = clip is not None and self._insertion.norm >= clip
        return None if whole else noted("forecast.smaller")

    def _accounted_noise(self) -> NDArray[np.float64] | None:
        """Return each step's multiplier in the event, if its entries are steps."""
        if self._strategy or self._separation > 1:
            return None
        return noise_of_steps(self._history or (), self._audit.likelihood.steps)

    def _of_strategy(self) -> tuple[Finding, ...]:
        """Recompute the strategy's sensitivity; compare it with the accounted one.

        The run's noise multiplier over the accountant's is the sensitivity that was
        accounted for one participation.
        """
        strategy, history = self._strategy, self._history
        if not (
            strategy and strategy.steps and self._noise and len(history or ()) == 1
        ):
            return ()
        assert history
        ((multiplier, _, joins),) = history
        check, fault = check_strategy(
            strategy,
            steps=strategy.steps,
            separation=self._separation,
            claimed=sqrt(joins) * self._noise / multiplier,
            most=joins,
        )
        return (check, fault) if fault else (check,)

    def _of_accounting(
        self, history: list[tuple[float, float, int]]
    ) -> Iterator[Finding]:
        """Compare the steps that were made with the event that was accounted for.

        With cycles or correlated noise, an entry of the event is not a step.
        """
        if self._strategy or self._separation > 1:
            return
        steps = self._audit.likelihood.steps
        yield from history_compared(
            history, steps=steps, noise=self._stated, rate=self._rate
        )

    def _joining(self) -> NDArray[np.float64]:
        """Return what the audit itself adds to the next step's sum."""
        if isinstance(self._insertion, Records) or self._audit.guard.failure:
            return np.zeros(self._tree.layout.coordinates)
        return np.float64(self._norm) * self._audit.contributions()

    def _expected(self) -> NDArray[np.float64]:
        """Return the canaries' part of the next step's sum, over a record's norm.

        For records it is the expectation given the coins, as batches are not seen.
        """
        if not isinstance(self._insertion, Records):
            return self._joining() / self._norm
        draws = self._audit.draws
        inside = draws.included.reshape(self._tree.layout.coordinates, -1).sum(axis=1)
        return np.asarray(draws.sample_rate * inside)

    def _checks(self) -> Iterator[Finding]:
        yield from checks_of_sums(
            noise=bool(self._noise),
            call="JaxAudit(..., noise=...)",
            only_sums=True,
            after="audit.probe_step(...)",
            sampled=self._sampled,
            batches="JaxAudit(..., records=...) and observe(..., batch=rows)",
        )
        if isinstance(self._insertion, Records):
            clip = self._clip
            yield from checks_of_records(norm=clip and self._insertion.norm / clip)
