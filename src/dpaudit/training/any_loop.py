"""Audit any loop that clips, sums and adds noise, from its noisy sums.

Canaries live in coordinates that are drawn from the key. Before the loop adds noise to
a step's sum, it adds the canaries of the step; afterwards it passes the noisy sum at
these coordinates to the audit. Nothing else is required, so the sum may come from any
framework. Canaries do not pass through the loop's own sampling and clipping. If the
loop passes the records of each sum and the accountant's parameters, these are tested. A
sensitivity probe inspects clipping: it asks the loop's own function for the sums of
chosen records. Another probe runs what comes after the noise, which may depend on
records only through the noisy sum.

A loop may also pass the sum before canaries and noise. Real records then hide nothing:
the guesser knows all records but the canaries, and which of them were sampled, as the
accountant's proof allows. The threat model states this.
"""

from collections.abc import Collection, Mapping
from copy import deepcopy
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit.dpsgd.participation import Participation
from dpaudit.dpsgd.strategy import Strategy
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.coins import Key
from dpaudit.game.design import Design
from dpaudit.game.findings import Finding
from dpaudit.game.result import Result
from dpaudit.game.setting import Setting, Unit
from dpaudit.privacy.guarantees import Guarantee
from dpaudit.training.audit import TrainingAudit, coordinates_needed
from dpaudit.training.batch_sampling import BatchSampling
from dpaudit.training.canary_coverage import checks_of_sums
from dpaudit.training.layout import scattered
from dpaudit.training.noise import MOST_WATCHED
from dpaudit.training.probe import (
    ClippedSum,
    Tree,
    Update,
    UpdateReport,
    mapped,
    named_leaves,
    probe_sum,
    probe_update,
)
from dpaudit.training.probe.report import Sensitivity
from dpaudit.training.released import ReleasedModel
from dpaudit.training.steps import history_compared

if TYPE_CHECKING:
    from dpaudit.accounting.history import History  # its package needs an extra

__all__ = [
    "SumsAudit",
    "noise_watched",
    "unit_of",
]


def noise_watched(coordinates: int, key: Key) -> NDArray[np.int64]:
    """Return the canary coordinates at which noise is recorded, in order.

    There is one in each stretch of equal length, so that every array is covered. It is
    drawn from the key, so that a program cannot know it.

    Args:
        coordinates: Number of coordinates with canaries.
        key: The secret of the run.

    Example:
        >>> noise_watched(600, Key(bytes(32)))[:5]
        array([ 2,  4,  8, 10, 12])
    """
    step = -(-coordinates // MOST_WATCHED)
    first = np.arange(0, coordinates, step)
    rng = key.generator("watched coordinates", 0)
    return first + rng.integers(np.minimum(step, coordinates - first))


def unit_of(unit: Unit | str) -> Unit | None:
    """Return the privacy unit as a ``Setting`` stores it: None for records."""
    try:
        parsed = Unit(unit)
    except ValueError:
        known = " or ".join(repr(str(each)) for each in Unit)
        raise InvalidInputError(f"unit must be {known}, got unit={unit!r}") from None
    return None if parsed is Unit.RECORD else parsed


@final
class SumsAudit:
    """Audits one run of a loop, from its noisy sums.

    Args:
        design: Fixed beforehand; a plan's, or one of your own. Canaries per coordinate
            are read from its ``setting.per_coordinate``, 1 by default.
        key: The secret of this run; never use one twice.
        dimension: Number of coordinates of the sum.
        sample_rate: Probability that a record that may participate in a step is
            sampled; 1 for the full batch.
        participation: The publicly known participation schedule: cohorts, cycles, a
            fixed order; every record in every step if left out.
        strategy: How the loop's noise is correlated from step to step, if it is: a
            ``Toeplitz`` or a ``Matrix`` of ``dpaudit.dpsgd.strategy``.
        unit: The privacy unit, ``"record"`` or ``"user"``: a canary stands for one of
            them, and the clipping norm bounds what one of them adds to the sum.
        knows_real_sums: Whether the loop will pass its sums without canaries.
        noise: The noise multiplier that the loop is configured with. Without it the
            result does not state which fault would be detected; with
            ``knows_real_sums`` the noise itself is compared with it, and between steps.
        records: Number of records to sample from, if the loop will pass the batch of
            each sum.
        unchecked: Stages you leave unchecked, among ``"sampling"``, ``"gradients"``,
            ``"clipping"`` and ``"interference"`` (what comes after the noise). A stage
            that is neither checked nor listed makes the audit inconclusive.

    Attributes:
        coordinates: Where the canaries are, in order. Keep them secret until the run is
            over, except from the code that adds canaries and reads the noisy sums.
        design: The committed design: the one given, completed from the arguments.
        commitment: Publish it before training.

    Example:
        >>> from dpaudit import ApproxDP, OneRun
        >>> claim = ApproxDP(epsilon=1.0, delta=1e-5)
        >>> design = Design(canaries=500, rules=OneRun(guesses=100), claim=claim)
        >>> key = Key(bytes(32))  # for a real audit: Key.generate()
        >>> audit = SumsAudit(design=design, key=key, dimension=500, sample_rate=0.5)
        >>> rng = np.random.default_rng(0)
        >>> for _ in range(50):  # clipping norm 2, noise multiplier 0.5
        ...     total = np.zeros(500)  # of the clipped gradients of real records
        ...     total[audit.coordinates] += 2.0 * audit.contributions()
        ...     noisy = total + 2.0 * 0.5 * rng.normal(size=500)
        ...     audit.observe(noisy[audit.coordinates] / 2.0)
        >>> audit.finish().refuted
        True
    """

    def __init__(  # noqa: PLR0913 (each is something that is fixed beforehand)
        self,
        *,
        design: Design,
        key: Key,
        dimension: int,
        sample_rate: float = 1.0,
        participation: Participation | None = None,
        strategy: Strategy | None = None,
        unit: Unit | str = Unit.RECORD,
        knows_real_sums: bool = False,
        noise: float | None = None,
        records: int | None = None,
        unchecked: Collection[str] = (),
    ) -> None:
        count = coordinates_needed(design)
        self._sampling = None if records is None else BatchSampling(records)
        self._rate, self._participation = sample_rate, participation
        self._strategy = strategy
        self._stated = noise
        self._noise = noise if knows_real_sums else None
        self.coordinates: NDArray[np.int64] = scattered(dimension, count, key=key)
        self._watched = noise_watched(count, key)
        self._audit = TrainingAudit(
            design=design,
            key=key,
            sample_rate=sample_rate,
            observed_setting=Setting(
                dimension=dimension,
                rate=sample_rate,
                noise=noise or None,
                unit=unit_of(unit),
            ),
            knows_real_sums=knows_real_sums,
            participation=participation,
            strategy=strategy,
            watched=["the sum"] * len(self._watched) if self._noise else (),
            unchecked=unchecked,
        )
        self._sampled = sample_rate < 1 or participation is not None
        self.design, self.commitment = self._audit.design, self._audit.commitment
        self._knows_real_sums, self._dimension = knows_real_sums, dimension
        self._released = ReleasedModel()
        self._joined: NDArray[np.int64] | None = None  # this step's contributions

    @property
    def steps(self) -> int:
        """Number of observed steps."""
        return self._audit.likelihood.steps

    def contributions(self) -> NDArray[np.int64]:
        """Return how many included canaries join the next step at each coordinate.

        Add the clipping norm times this to the sum, before noise. It is secret: keep it
        from whatever reads the noisy sums.
        """
        self._joined = self._audit.contributions()
        return self._joined.copy()

    def observe(
        self,
        noisy_sums: ArrayLike,
        *,
        real_sums: ArrayLike | None = None,
        batch: ArrayLike | None = None,
    ) -> None:
        """Record a step's noisy sum at ``coordinates``; this ends the step.

        Args:
            noisy_sums: One number for each coordinate, divided by the clipping norm.
            real_sums: The same of the sum before canaries and noise, if the audit was
                created with ``knows_real_sums=True``.
            batch: Indices of the sampled records in the sum, if the audit was created
                with ``records=...``.
        """
        if (batch is not None) != (self._sampling is not None):
            raise InvalidRunError(
                "batch belongs to an audit that was opened with records=..., and to "
                "each of its steps"
            )
        if (real_sums is not None) != self._knows_real_sums:
            raise InvalidRunError(
                "real_sums belong to an audit that was opened with "
                "knows_real_sums=True, and to each of its steps: it decides what the "
                "guesser knows"
            )
        if self._joined is None:
            raise InvalidRunError(
                "a noisy sum was handed over, but contributions() was not asked for "
                "what to put into it; add the clipping norm times contributions() "
                "before the noise"
            )
        if self._sampling is not None:
            self._sampling.add([] if batch is None else batch)
        noisy = _numbers("noisy_sums", noisy_sums)
        real = np.zeros(1) if real_sums is None else _numbers("real_sums", real_sums)
        self._audit.observe(noisy - real, self._joined, noise=self._stated)
        if self._noise:
            added = noisy - real - self._joined
            sums = [real[self._watched], noisy[self._watched]]
            self._audit.watch_noise(added[self._watched], self._noise, sums)
        self._joined = None

    def probe(
        self,
        clipped_sum: ClippedSum,
        batch: Tree,
        *,
        norm: float,
        records: int = 8,
        seed: int = 0,
    ) -> Sensitivity:
        """Measure how much one record changes the sum before canaries and noise.

        The findings are added to the result. Probe at the start, and again at steps
        that you choose beforehand.

        Args:
            clipped_sum: The loop's own function from a batch to the sum of its records'
                clipped gradients; it may also take ``keep`` and ``scale``. See
                ``dpaudit.training.probe.probe_sum``.
            batch: Real records, a dozen is enough; arrays with one row for each.
            norm: The clipping norm, divided by the sum's divisor if it has one.
            records: How many of them are removed, one at a time.
            seed: Selects which.
        """

        @wraps(clipped_sum)
        def whole(*arguments: Tree, **given: Tree) -> Tree:
            sums = clipped_sum(*arguments, **given)
            self._check_size("clipped_sum", sums)
            return sums

        return self._audit.probed(
            probe_sum(whole, batch, norm=norm, records=records, seed=seed)
        )

    def probe_update(
        self, update: Update, batch: Tree, *, noisy_sum: Tree = None
    ) -> UpdateReport:
        """Check that a step's result depends on records only through the noisy sum.

        The loop's own code from the noisy sum on is run thirteen times, on batches of
        different records and on one with a record fewer, all with the same noisy sum.
        All that it returns must be equal, bit for bit. The findings are added to the
        result. Probe at the start, and again at steps that you choose beforehand.

        What ``update`` does not return is not checked, nor what the loop does before
        it, nor records that are not in ``batch``.

        Args:
            update: Takes a batch and a noisy sum. Returns the whole state after the
                step: the parameters, the optimizer's state, learning rate, clipping
                norm, counters and whatever else steers later steps, as a tree of arrays
                and numbers. Each call must begin from the same state, so copy what it
                changes in place. It may also take ``keep``, a Boolean mask of the rows
                that count; otherwise a record is really removed. A public batch size
                must not be computed from the batch.
            batch: Real records, a dozen is enough: a tree of arrays with one row for
                each. Each call is given half of them.
            noisy_sum: In the form that the loop has after the noise; a standard normal
                vector of the dimension if left out.
        """
        if noisy_sum is not None:
            self._check_size("noisy_sum", noisy_sum)

        def run(some: Tree, given: Mapping[str, Tree], *, second: bool) -> Tree:
            if noisy_sum is None:
                rng = np.random.default_rng(int(second))
                return update(some, rng.normal(size=self._dimension), **given)
            value = deepcopy(noisy_sum)  # which an update may change in place
            other = mapped(value, lambda leaf: 2 * leaf + 1) if second else value
            return update(some, other, **given)

        report = probe_update(run, batch, function=update, name="update")
        self._audit.add(*report.findings)
        return report

    def _check_size(self, name: str, found: Tree) -> None:
        size = sum(int(np.prod(np.shape(part))) for _, part in named_leaves(found))
        if size != self._dimension:
            raise InvalidInputError(
                f"{name} has {size} numbers, and the audit is of sums of "
                f"dimension={self._dimension}; probe the function that makes or takes "
                "these"
            )

    def after_step(self, parameters: Tree) -> None:
        """Record the parameters after a step's update.

        Call it after each step; ``finish(released=...)`` compares with the last.

        Args:
            parameters: A tree of arrays: all that will be released.
        """
        self._released.after_step(parameters, steps=self.steps)

    def save(self, path: str | Path) -> None:
        """Write the observations so far to a file; it does not contain the key."""
        self._audit.save(path, self._sampling and self._sampling.saved())

    def resume(self, path: str | Path) -> None:
        """Continue from a file that ``save`` wrote, with the same key and design."""
        state = self._audit.read_state(path)
        self._audit.resume(state)
        if self._sampling is not None:
            self._sampling.restore(state)

    def add(self, *found: Finding) -> None:
        """Add further findings to the result, for example steps made without the audit.

        A checkpoint keeps them.

        Args:
            found: Made by the functions of ``dpaudit.game.findings``.
        """
        self._audit.add(*found)

    def finish(
        self,
        *,
        claim: Guarantee | None = None,
        accounted: "History | None" = None,
        released: Tree = None,
    ) -> Result:
        """Guess the coins, test the claims and return the result.

        Args:
            claim: The accountant's privacy curve, if it is known and not that of
                ``accounted``.
            accounted: The accountant's history: noise multiplier, sampling rate and
                number of steps, one entry for each change. Its whole curve is tested,
                and the steps that were made are compared with it.
            released: The parameters that are released, if ``after_step`` was called
                after each step.
        """
        self._audit.check_observed()
        findings = [
            *checks_of_sums(
                noise=bool(self._noise),
                call="SumsAudit(..., knows_real_sums=True, noise=...)",
                batches="SumsAudit(..., records=...) and observe(..., batch=...)",
                sampled=self._sampled,
                after="audit.probe_update(...)",
            ),
            *self._released.findings(released, steps=self.steps),
        ]
        rate, noise = self._rate, None
        if accounted:
            from dpaudit.accounting.curves import accountant_curve  # noqa: PLC0415
            from dpaudit.accounting.history import noise_of_steps  # noqa: PLC0415

            claim = accountant_curve(accounted) if claim is None else claim
            rate = max(float(each) for _, each, _ in accounted)
            if self._participation is None and self._strategy is None:
                noise = noise_of_steps(accounted, self.steps)
                findings += history_compared(
                    accounted, steps=self.steps, noise=self._stated, rate=self._rate
                )
        if self._sampling is not None:
            turns = self._participation
            checked, wrong = self._sampling.found(
                rate,
                separation=turns.every if turns else 1,
                most=turns.participations(self.steps) if turns else None,
            )
            findings += [*checked, *wrong]
        return self._audit.finish(claim=claim, findings=findings, accounted_noise=noise)


def _numbers(name: str, values: ArrayLike) -> NDArray[np.float64]:
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{name} must hold numbers: {error}") from error
