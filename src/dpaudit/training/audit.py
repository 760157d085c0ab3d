"""The core of an audit of training, the same for every framework.

An adapter for a framework holds a ``TrainingAudit`` and adds two things: where canaries
enter the sums, and where noisy sums are read. The design is completed with the run's
configuration, and committed to. Draws from the key decide which canaries join a step;
the noisy sums of each step are accumulated as likelihoods; at the end the guesser
guesses, and the claims are tested.

The two halves do not know each other. ``draws`` knows the coins, and is for the code
that inserts canaries. ``likelihood`` is all that the guesser keeps of the sums; it
holds no reference to a coin. Only the audit holds both, so code that reads sums must
not hold the audit.

A saved state is plain arrays, without pickle and without the key. It holds the
guesser's observations so far and the commitment, which binds it to its key and design;
the state of another audit is refused. It reveals neither coins nor coordinates: the
observations are sealed with the key, because a program that made the noise could
recognise where it was read, and so is the regression on the coins (``arrival``).
"""

import secrets
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from math import isclose
from pathlib import Path
from typing import Any, Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit._codec import decode, encode
from dpaudit._files import whole_file
from dpaudit._progress import progress_note
from dpaudit.dpsgd.likelihood import State, saved_counts, saved_rows
from dpaudit.dpsgd.participation import Participation
from dpaudit.dpsgd.planning.as_run import configured
from dpaudit.dpsgd.planning.training import TrainingSetup
from dpaudit.dpsgd.sampling import Poisson
from dpaudit.dpsgd.strategy import Strategy, strategy_setting
from dpaudit.dpsgd.sums import canary_log_odds
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.coins import Key
from dpaudit.game.configuration import StepSegment
from dpaudit.game.coverage import accepted_stages
from dpaudit.game.design import Design, ThreatModel
from dpaudit.game.findings import Finding, Status, invalid
from dpaudit.game.guessers import most_likely
from dpaudit.game.key_use import TrainingRun
from dpaudit.game.referee import Referee
from dpaudit.game.result import Result
from dpaudit.game.setting import Setting
from dpaudit.game.text.findings import sentence
from dpaudit.privacy.guarantees import Guarantee
from dpaudit.tables.columns import array_names, read_arrays
from dpaudit.training.arrival import Arrivals
from dpaudit.training.guard import Guard
from dpaudit.training.likelihoods import Sampling, SumsLikelihood
from dpaudit.training.noise import Found, NoiseWatch
from dpaudit.training.participation_draws import ParticipationDraws
from dpaudit.training.probe.report import Sensitivity, packed, unpacked
from dpaudit.training.result import (
    GuessedGame,
    check_training_rules,
    conclude_training,
    guess,
    guess_among,
)
from dpaudit.training.steps import ConfiguredSteps

__all__ = ["Gather", "TrainingAudit", "coordinates_needed", "per_coordinate"]

Floats: TypeAlias = NDArray[np.float64]
Gather: TypeAlias = Callable[[NDArray[Any]], NDArray[Any]]

_FORMAT: Final = "dpaudit.training.1"
_CONFIGURED: Final = "configured"
_OBSERVED: Final = "observed"
_SEEN: Final = "seen."  # prefix of the names of the guesser's observations
_SEEN_NUMBER: Final = "seen number"
_STATUSES: Final = (  # of checks, faults, sanity checks and remarks
    (
        Status.NOT_CHECKED,
        Status.TESTED,
        Status.INSPECTED,
        Status.NOT_APPLICABLE,
    ),
    (Status.FAULT,),
    (Status.PASSED, Status.INCONCLUSIVE, Status.INVALID_RUN),
    (Status.NOTED,),
)
_ANOTHER_STOPPED: Final = invalid("stopped_elsewhere")
_OF_NUMPY: Final = ("file", "allow_pickle")  # arguments of what writes the file


def per_coordinate(design: Design) -> int:
    """Return how many canaries a design puts at each coordinate; 1 by default."""
    _validate.kind("design", design, Design)
    size = design.setting.per_coordinate or 1
    if design.canaries % size:
        raise InvalidInputError(
            f"canaries={design.canaries} cannot be divided into coordinates of "
            f"per_coordinate={size!r} canaries each; make canaries a multiple of it"
        )
    return size


def _numbered(names: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Return the different names, and the number of each."""
    different = list(dict.fromkeys(names))
    return different, np.array([different.index(name) for name in names], np.int64)


def coordinates_needed(design: Design) -> int:
    """Return the number of coordinates that the canaries of a design need."""
    size = per_coordinate(design)
    return design.canaries // size


@final
class TrainingAudit:
    """One audit of one training run, from its opening to its result.

    Args:
        design: Fixed beforehand.
        key: The secret of this run; never use one twice.
        sample_rate: Probability that a canary joins a step, where the draws decide.
        observed_setting: The run's configuration as read from it, for the record.
        knows_real_sums: Whether the guesser knows the real records' part of the sums.
        sampling: How the guesser assumes that canaries join steps; as in the draws if
            left out.
        local_coordinates: Numbers of the coordinates that are read on this rank; all of
            them if left out.
        groups: A group number for each of these; a group shares its noise and the
            effect of real gradients. One group if left out.
        by_program: Whether the program itself, and not the audit, adds the canaries to
            the sums, as it does with records.
        watched: For each coordinate whose noise will be passed to ``watch_noise``, the
            name of its parameter; empty if noise cannot be separated from the rest.
        types: For each of these the name of the floating-point type in which sums are
            kept; one for all if left out.
        participation: The participation schedule; all in every step if left out.
        strategy: How noise is correlated from step to step, if it is.
        unchecked: Stages the user leaves unchecked, among ``"sampling"``,
            ``"gradients"``, ``"clipping"`` and ``"interference"``. A stage that is
            neither checked nor listed makes the audit inconclusive.

    Attributes:
        draws: Which canaries join a step. Secret; not for code that reads the sums.
        likelihood: What the guesser keeps of the sums.
        guard: Runs the audit's hooks in the training run.
        design: The committed design: the one given, with the run's configuration.
        commitment: Publish it before training.

    Example:
        >>> from dpaudit import ApproxDP, OneRun
        >>> claim = ApproxDP(epsilon=1.0, delta=1e-5)
        >>> audit = TrainingAudit(
        ...     design=Design(canaries=500, rules=OneRun(guesses=100), claim=claim),
        ...     key=Key(bytes(32)),  # for a real audit: Key.generate()
        ...     sample_rate=0.5,
        ...     observed_setting=Setting(framework="none"),
        ...     knows_real_sums=False,
        ... )
        >>> rng = np.random.default_rng(0)
        >>> for _ in range(50):  # noise multiplier 0.5
        ...     joined = audit.contributions()
        ...     audit.observe(joined + 0.5 * rng.normal(size=500), joined)
        >>> audit.finish().refuted
        True
    """

    def __init__(  # noqa: PLR0913 (each is something that is fixed beforehand)
        self,
        *,
        design: Design,
        key: Key,
        sample_rate: float,
        observed_setting: Setting,
        knows_real_sums: bool,
        sampling: Sampling | None = None,
        local_coordinates: NDArray[np.int64] | None = None,
        groups: NDArray[np.int64] | None = None,
        by_program: bool = False,
        watched: Sequence[str] = (),
        types: Sequence[str] = (),
        participation: Participation | None = None,
        strategy: Strategy | None = None,
        unchecked: Collection[str] = (),
    ) -> None:
        self._accepted = accepted_stages(unchecked)
        _validate.kind("key", key, Key)
        size = per_coordinate(design)
        check_training_rules(design)
        self.guard = Guard()
        self._observed: list[Finding] = []
        self.draws = ParticipationDraws(
            key=key,
            canaries=design.canaries,
            per_coordinate=size,
            sample_rate=sample_rate,
            participation=participation,
        )
        self._key = key  # seals what is saved
        known = (
            ThreatModel.KNOWN_RECORDS if knows_real_sums else ThreatModel.ALL_ITERATES
        )
        setting = _as_run(
            design,
            observed_setting,
            rate=sample_rate,
            participation=participation,
            strategy=strategy,
        )
        self._referee = Referee(
            replace(design, threat_model=known, setting=setting), key
        )
        self.design, self.commitment = self._referee.design, self._referee.commitment
        self._run = TrainingRun(key, self.commitment, self.design)
        self._local_coordinates = (
            np.arange(coordinates_needed(design))
            if local_coordinates is None
            else local_coordinates
        )
        self.likelihood = SumsLikelihood(
            coordinates=len(self._local_coordinates),
            per_coordinate=size,
            sampling=Poisson(rate=sample_rate) if sampling is None else sampling,
            groups=groups,
            knows_real_sums=knows_real_sums,
            participation=participation,
            strategy=strategy,
        )
        self._participation, self._strategy = participation, strategy
        self._rate = _configured_rate(sample_rate, sampling)
        self._steps = ConfiguredSteps()
        self._arrivals = Arrivals(
            len(self._local_coordinates), key, by_program=by_program, strategy=strategy
        )
        names, places = _numbered(watched)
        kinds = _numbered(types)[1] if types else None
        self._noise = (
            NoiseWatch(places, names, key, strategy, types=kinds) if names else None
        )

    def contributions(self) -> NDArray[np.int64]:
        """Return how many included canaries join the next step at each coordinate.

        Secret, as the draws are.
        """
        return self.draws.contributions(self.likelihood.steps)

    def observe(
        self,
        sums: NDArray[np.number],
        joined: NDArray[np.number],
        scale: NDArray[np.float64] | None = None,
        *,
        noise: float | None = None,
        clip: float | None = None,
    ) -> None:
        """Record a step's noisy sum; this ends the step.

        Args:
            sums: The noisy sum at each coordinate, over the clipping norm, less the
                real records' part as far as it is known.
            joined: The canaries' part, also over the clipping norm. The guesser never
                learns it.
            scale: The standard deviation of the noise at each coordinate; the guesser
                measures it if left out.
            noise: The configured noise multiplier of this step, if it is stated. For
                the record; the guesser never learns it.
            clip: The clipping norm, likewise.
        """
        self._run.seen()
        self.likelihood.observe(sums, scale)
        step = StepSegment(steps=1, noise=noise, clip=clip, rate=self._rate)
        self._steps.add(step)
        self._arrivals.observe(sums, joined)

    def watch_noise(
        self,
        noise: NDArray[np.float64],
        multiplier: float,
        sums: Sequence[NDArray[np.float64]],
        spacing: NDArray[np.float64] | float = 0.0,
    ) -> None:
        """Record the noise of a step; the guesser never learns it.

        Args:
            noise: The noise added at each watched coordinate, over the clipping norm.
            multiplier: Its stated standard deviation.
            sums: The sums before and after noise that it was read from, as the program
                kept them, over the clipping norm.
            spacing: How far apart the numbers of each coordinate's floating-point type
                are at zero, over the clipping norm.
        """
        assert self._noise is not None
        self._noise.observe(noise, multiplier, sums, spacing)

    def add(self, *found: Finding) -> None:
        """Add findings made during training; checkpoints keep them.

        A fault that was found before is not added again.

        Args:
            found: Made by the functions of ``dpaudit.game.findings``.
        """
        for each in found:
            if each.status is not Status.FAULT or each not in self._observed:
                self._observed.append(each)

    @property
    def faults(self) -> tuple[Finding, ...]:
        """The faults found so far, besides by canaries and noise."""
        return tuple(each for each in self._observed if each.status is Status.FAULT)

    def probed(self, found: Sensitivity) -> Sensitivity:
        """Add the findings of a probe, and return its report."""
        self.add(*found.checks, *found.faults)
        return found

    def save(self, path: str | Path, more: State | None = None) -> None:
        """Write the observations so far to a file; it does not contain the key.

        The file is replaced as a whole or not at all.

        Args:
            path: The file.
            more: Further state that the caller needs to resume, under other names.
        """
        number = secrets.randbits(63)  # a new one for every save
        seen = self._sealed(self.likelihood.saved(), number)
        ours = {
            "format": np.array(_FORMAT),
            "commitment": np.array(self.commitment.sha256),
            _SEEN_NUMBER: np.array([number]),
            **{f"{_SEEN}{name}": array for name, array in seen.items()},
            **self._arrivals.saved(),
            **self.guard.saved(),
            _OBSERVED: packed({"findings": encode(self._observed)}),
            _CONFIGURED: self._steps.saved(),
            **(self._noise.saved() if self._noise else {}),
        }
        theirs = more or {}
        if taken := sorted({*theirs} & {*ours, *_OF_NUMPY}):
            raise InvalidInputError(
                f"the names {', '.join(taken)} in more are taken; use others"
            )
        with whole_file(path) as draft, draft.open("wb") as file:
            np.savez(file, allow_pickle=False, **ours, **theirs)
        self._run.saved()

    def read_state(self, path: str | Path) -> State:
        """Return the state in a file that ``save`` wrote, if it is this audit's."""
        path = Path(path)
        if not path.is_file():
            raise InvalidInputError(f"there is no file {path}")
        try:
            state = read_arrays(path, array_names(path))
        except InvalidInputError as error:
            raise InvalidInputError(
                f"{path} holds no state of an audit, or not a whole one ({error}); go "
                "on from another checkpoint"
            ) from error
        if str(state.pop("format", "")) != _FORMAT:
            raise InvalidInputError(
                f"{path} holds no state of an audit that this version can read"
            )
        if str(state.pop("commitment", "")) != self.commitment.sha256:
            raise InvalidRunError(
                f"{path} belongs to another audit: key or design differ. Resume with "
                "the key that the audit began with (keep it with key.write(path)), the "
                "same design, and the same model and loader"
            )
        return state

    def resume(self, state: State) -> None:
        """Continue from a state that ``read_state`` returned."""
        self.guard.restore(state)
        plain = unpacked(state, _OBSERVED, {"findings"})["findings"]
        self._observed = list(decode(tuple[Finding, ...], plain, "findings"))
        (number,) = saved_counts(state, _SEEN_NUMBER, 1)
        seen = {
            name.removeprefix(_SEEN): array
            for name, array in state.items()
            if name.startswith(_SEEN)
        }
        self.likelihood.restore(self._sealed(seen, number))
        self._arrivals.restore(state)
        rows = (len(state.get(_CONFIGURED, ())), 4)
        self._steps = ConfiguredSteps.restored(saved_rows(state, _CONFIGURED, rows))
        if self._noise is not None:
            self._noise.restore(state)
        self._run.resumed()

    def _sealed(self, state: State, number: int) -> State:
        """Return arrays sealed with the key; sealing twice restores them."""
        return {
            name: self._key.sealed(
                f"{_SEEN}{name}", number, np.frombuffer(array.tobytes(), np.uint8)
            )
            .view(array.dtype)
            .reshape(array.shape)
            for name, array in state.items()
        }

    def check_observed(self, gather: Gather | None = None) -> None:
        """Refuse to finish if no step was observed; all ranks refuse together."""
        steps = np.array([self.likelihood.steps])
        if (steps if gather is None else gather(steps)).min() > 0:
            return
        if self.guard.failure is not None:
            raise InvalidRunError(
                f"no training step was observed, and nothing can be judged: "
                f"{sentence(self.guard.failure)}"
            )
        raise InvalidRunError(
            "no training step has run since the audit was opened; train with what it "
            "was opened on, then call finish()"
        )

    @progress_note("finishing the audit")
    def finish(
        self,
        *,
        claim: Guarantee | None = None,
        findings: Iterable[Finding] = (),
        gather: Gather | None = None,
        agreed: Callable[[Sequence[Finding]], Sequence[Finding]] = tuple,
        accounted_noise: NDArray[np.float64] | None = None,
        unmodelled: Finding | None = None,
        reported: float | None = None,
    ) -> Result:
        """Guess the coins, test the claims and return the result.

        Args:
            claim: The accountant's privacy curve, as far as it is known.
            findings: Findings besides those by canaries, noise and probes: checks of
                stages, faults, sanity checks and remarks, distinguished by their
                status. A stage without a finding was not checked.
            gather: Maps numbers of the coordinates that are read here to those of all
                ranks, if there are several.
            agreed: Maps the findings of this rank to those of all ranks.
            accounted_noise: The accountant's noise multiplier of each step, as far as
                it is known: the noise is compared with it.
            unmodelled: A property of this run's canaries that the forecast does not
                model, such as that some did not arrive.
            reported: The epsilon that the framework's own accountant reports at the
                design's delta, if it is known.
        """
        if claim is not None and not isinstance(claim, Guarantee):
            raise InvalidInputError(
                "claim must be a guarantee, such as ApproxDP(epsilon=2.0, delta=1e-5) "
                f"or an accountant's curve, got claim={claim!r:.60}"
            )
        self.check_observed(gather)
        stopped = self.guard.checks()
        if gather is not None and gather(np.array([len(stopped)])).any():
            stopped = stopped or (_ANOTHER_STOPPED,)
        of_noise: Found = ((), (), ())
        if self._noise is not None:
            # Not gathered: every rank reads the noise of the same overall sum at the
            # same coordinates, so gathered rows would be reported as repeated noise.
            of_noise = self._noise.found(accounted_noise)
        reads_all = len(self._local_coordinates) == coordinates_needed(self.design)
        if gather is None or reads_all:
            played = guess(self._referee, self.likelihood.log_likelihood())
            signal = self._arrivals.found()
        else:
            played = self._guess_together(gather)
            signal = self._arrivals.found(gather)
        self._run.judge(played.transcript)
        known = [*findings]
        # Checks that an adapter did not make come first, so that probes override them.
        later = [each for each in known if each.status is not Status.NOT_CHECKED]
        first = [each for each in known if each.status is Status.NOT_CHECKED]
        whole = agreed([*first, *self._observed, *later])
        checks, faults, sanity, remarks = (
            tuple(each for each in whole if each.status in statuses)
            for statuses in _STATUSES
        )
        return conclude_training(
            played,
            likelihood=self.likelihood,
            signal=signal,
            commitment=self.commitment,
            claim=claim,
            configuration=configured(
                tuple(self._steps.runs),
                coordinates=coordinates_needed(self.design),
                per_coordinate=per_coordinate(self.design),
                participation=self._participation,
                strategy=self._strategy,
                unmodelled=unmodelled,
            ),
            checks=[*of_noise[0], *checks],
            faults=[*of_noise[1], *faults],
            accepted=self._accepted,
            sanity_checks=(*stopped, *sanity),
            remarks=(*remarks, *of_noise[2]),
            reported=reported,
        )

    def _guess_together(self, gather: Gather) -> GuessedGame:
        """Guess the most confident canaries of all ranks, from each rank's own."""
        size = per_coordinate(self.design)
        odds = canary_log_odds(self.likelihood.log_likelihood())
        best, _ = most_likely(odds, guesses=self.design.guesses)
        canaries = self._local_coordinates[best // size] * size + best % size
        found = gather(np.column_stack([canaries, odds[best]]))
        index, best_odds = found[:, 0].astype(np.int64), found[:, 1]
        order = np.argsort(index)  # ties go to the smaller number, as on one rank
        return guess_among(self._referee, index[order], best_odds[order])


_CLOSE: Final = 1e-9  # relative
_SAME_RATE: Final = 0.01  # rates that differ by less have about the same likelihood


def _as_run(
    design: Design,
    observed: Setting,
    *,
    rate: float,
    participation: Participation | None,
    strategy: Strategy | None,
) -> Setting:
    """Return a design's setting, completed with the configuration of the run.

    A plan's forecasts for a run with another rate or noise are left out.
    """
    planned = design.setting
    same = all(
        a is None or b is None or isclose(a, b, rel_tol=_CLOSE)
        for a, b in ((planned.rate, observed.rate), (planned.noise, observed.noise))
    )
    if not same:
        planned = replace(planned, expected_epsilon=None, detectable_factor=None)
    planned = replace(planned, per_coordinate=per_coordinate(design))
    schedule = _schedule(planned, observed, rate, participation, strategy)
    return planned.with_entries(observed).with_entries(schedule)


def _schedule(
    planned: Setting,
    observed: Setting,
    rate: float,
    participation: Participation | None,
    strategy: Strategy | None,
) -> Setting:
    """Return the schedule and strategy, with what they equal if noise is known."""
    if participation is None and strategy is None:
        return Setting()
    noise = observed.noise or planned.noise
    steps = (strategy and strategy.steps) or planned.steps
    if not (noise and steps):
        return Setting(participation=participation, strategy=strategy_setting(strategy))
    return TrainingSetup(
        steps=steps,
        rate=rate,
        noise=noise,
        participation=participation,
        strategy=strategy,
    ).setting()


def _configured_rate(drawn: float, sampling: Sampling | None) -> float | None:
    """Return the rate at which canaries participate, if the guesser knows it."""
    if sampling is None:
        return drawn
    if not isinstance(sampling, Poisson) or not isclose(
        drawn, sampling.rate, rel_tol=_SAME_RATE
    ):
        return None
    return min(drawn, sampling.rate)
