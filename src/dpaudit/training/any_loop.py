"""The audit of any loop that clips, sums and adds noise: hand it the noisy sums.

Canaries live in coordinates that are drawn from the key. Before the loop adds noise to
a step's sum, it adds what joins the step; afterwards it hands over what the noisy sum
shows there. Nothing else is asked of the loop, so the sum may come from any framework.
How the loop samples and clips its own records is not run through. If it says which
records each sum is of, and what its accountant was told, these are tested; and a probe
can look at its clipping: it asks the loop's own function for the sums of chosen
records. Another runs what comes after the noise, which may depend on records through
the noisy sum alone.

A loop may also say what the sum was before canaries and noise. Real records are then no
longer in the way: the guesser is one who knows all records but the canaries, and which
of them were sampled, as an accountant's proof allows. The threat model says so.
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
    """Return at which of the canaries' coordinates noise is watched, in order.

    One in each stretch of equal length, so that each array has its share. Which one is
    drawn from the key, so that a program cannot know it.

    Args:
        coordinates: How many hold canaries.
        key: Of the run.

    Example:
        >>> noise_watched(600, Key(bytes(32)))[:5]
        array([ 2,  4,  8, 10, 12])
    """
    step = -(-coordinates // MOST_WATCHED)
    first = np.arange(0, coordinates, step)
    rng = key.generator("watched coordinates", 0)
    return first + rng.integers(np.minimum(step, coordinates - first))


def unit_of(unit: Unit | str) -> Unit | None:
    """Return whose privacy is audited, as a setting says it: None of records."""
    try:
        found = Unit(unit)
    except ValueError:
        known = " or ".join(repr(str(each)) for each in Unit)
        raise InvalidInputError(f"unit must be {known}, got unit={unit!r}") from None
    return None if found is Unit.RECORD else found


@final
class SumsAudit:
    """Audits one run of a loop, from its noisy sums.

    Args:
        design: Fixed beforehand; a plan's, or one of your own. Canaries per coordinate
            are read from its ``setting.per_coordinate``, 1 if it says nothing.
        key: The secret of this run; never use one twice.
        dimension: How many coordinates the sum has.
        sample_rate: Chance of a record to join a step, when it is its turn; 1 for the
            full batch.
        participation: Who participates when, where that is known to everybody: cohorts,
            cycles, a fixed order; everybody in every step if left out.
        strategy: How the loop's noise is correlated from step to step, if it is: a
            ``Toeplitz`` or a ``Matrix`` of ``dpaudit.dpsgd.strategy``.
        unit: What a canary stands for, ``"record"`` or ``"user"``: one line of the sum
            is what one of them put in, and the clipping norm is theirs.
        knows_real_sums: Whether the loop will say what its sums were without canaries.
        noise: The noise multiplier that the loop is configured with. Without it
            nothing is said of which fault would be detected; with ``knows_real_sums``
            the noise itself is also held against it, and against itself over steps.
        records: How many records there are to sample from, if the loop will say with
            each sum which of them are in its batch.
        unchecked: What you do without, among ``"sampling"``, ``"gradients"``,
            ``"clipping"`` and ``"interference"`` (what comes after the noise): without
            a check of these and without this the audit is inconclusive.

    Attributes:
        coordinates: Where the canaries are, in order; secret until the run is over, and
            only for what adds canaries and reads the noisy sums.
        design: As it is committed to: the one given, with what was read.
        commitment: To publish before training.

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
        self._joined: NDArray[np.int64] | None = None  # what was asked for, this step

    @property
    def steps(self) -> int:
        """How many steps were observed."""
        return self._audit.likelihood.steps

    def contributions(self) -> NDArray[np.int64]:
        """Return how many included canaries join the coming step at each coordinate.

        Secret: add the clipping norm times this to the sum, before noise, and keep it
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
        """Read what a step's noisy sum shows at the coordinates; this ends the step.

        Args:
            noisy_sums: One number for each coordinate, over the clipping norm.
            real_sums: The same of the sum before canaries and noise, if the audit was
                opened with ``knows_real_sums=True``.
            batch: Numbers of the records that the sum is of, as they were sampled, if
                the audit was opened with ``records=...``.
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
        """Look how much one record changes the sum, before canaries and noise.

        What is seen is part of the result. Probe at the start, and again at steps that
        you choose beforehand.

        Args:
            clipped_sum: The loop's own function from a batch to the sum of its records'
                clipped gradients; it may also take ``keep`` and ``scale``. See
                ``dpaudit.training.probe.probe_sum``.
            batch: Real records, a dozen is enough; arrays with one row for each.
            norm: The clipping norm, over what the sum is divided by, if it is divided.
            records: How many of them leave, one at a time.
            seed: Decides which.
        """

        @wraps(clipped_sum)
        def whole(*arguments: Tree, **given: Tree) -> Tree:
            found = clipped_sum(*arguments, **given)
            self._check_size("clipped_sum", found)
            return found

        return self._audit.probed(
            probe_sum(whole, batch, norm=norm, records=records, seed=seed)
        )

    def probe_update(
        self, update: Update, batch: Tree, *, noisy_sum: Tree = None
    ) -> UpdateReport:
        """Look whether what a step leaves depends on records past the noise.

        The loop's own code from the noisy sum on is run thirteen times, on batches of
        other records and on one with a record fewer, all with the same noisy sum. All
        that it returns must be equal, bit for bit. What is seen is part of the result.
        Probe at the start, and again at steps that you choose beforehand.

        What ``update`` does not return is not seen, nor what the loop does before it
        begins, nor records that are not in ``batch``.

        Args:
            update: Takes a batch and a noisy sum. Returns all that the step leaves: the
                parameters, the optimizer's state, learning rate, clipping norm,
                counters and whatever else steers later steps, as a tree of arrays and
                numbers. Each call must begin from the same state, so that what it
                changes in place must be a copy. It may also take ``keep``, a Boolean
                array that says which rows count; otherwise a record is really taken
                out. A size of the batch that is public is taken from elsewhere.
            batch: Real records, a dozen is enough: a tree of arrays with one row for
                each. Half of them are in a batch.
            noisy_sum: As the loop has it after the noise; a vector of the dimension,
                with standard normal numbers, if left out.
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

        found = probe_update(run, batch, function=update, name="update")
        self._audit.add(*found.findings)
        return found

    def _check_size(self, name: str, found: Tree) -> None:
        size = sum(int(np.prod(np.shape(part))) for _, part in named_leaves(found))
        if size != self._dimension:
            raise InvalidInputError(
                f"{name} has {size} numbers, and the audit is of sums of "
                f"dimension={self._dimension}; probe the function that makes or takes "
                "these"
            )

    def after_step(self, parameters: Tree) -> None:
        """Take note of the parameters that a step left, once they are updated.

        Call it after each step; ``finish(released=...)`` compares with the last.

        Args:
            parameters: A tree of arrays: all that will be released.
        """
        self._released.after_step(parameters, steps=self.steps)

    def save(self, path: str | Path) -> None:
        """Write what was seen so far to a file that holds no key."""
        self._audit.save(path, self._sampling and self._sampling.saved())

    def resume(self, path: str | Path) -> None:
        """Go on from a file that ``save`` wrote, with the same key and design."""
        state = self._audit.read_state(path)
        self._audit.resume(state)
        if self._sampling is not None:
            self._sampling.restore(state)

    def add(self, *found: Finding) -> None:
        """Take note of what else was observed, for the result.

        Such as steps that were made without the audit; a checkpoint keeps it.

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
        """Guess, and judge.

        Args:
            claim: What an accountant stands for, if a whole curve is known and it is
                not that of ``accounted``.
            accounted: What the accountant was told: noise multiplier, sampling rate and
                number of steps, as often as they changed. Its whole curve is tested,
                and the steps that were made are compared with it.
            released: The parameters that are released, if ``after_step`` was told what
                each step left.
        """
        self._audit.check_observed()
        found = [
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
                found += history_compared(
                    accounted, steps=self.steps, noise=self._stated, rate=self._rate
                )
        if self._sampling is not None:
            turns = self._participation
            checked, wrong = self._sampling.found(
                rate,
                separation=turns.every if turns else 1,
                most=turns.participations(self.steps) if turns else None,
            )
            found += [*checked, *wrong]
        return self._audit.finish(claim=claim, findings=found, accounted_noise=noise)


def _numbers(name: str, values: ArrayLike) -> NDArray[np.float64]:
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{name} must hold numbers: {error}") from error
