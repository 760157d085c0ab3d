"""The model of a training run behind a result, from which its gaps are computed.

The audit of a training run records how the run was configured. Otherwise a plan's
design states steps, sampling rate and noise. With Dirac canaries of the full clipping
norm that is an exact model of what an observer sees, the same as plans use.
"""

from dataclasses import dataclass
from math import inf, sqrt
from typing import Self, final

from dpaudit.dpsgd.planning import TrainingSetup
from dpaudit.dpsgd.planning.as_run import LONGEST, MOST_SHARING, training_of
from dpaudit.dpsgd.planning.limit import training_limit
from dpaudit.game.configuration import RunConfiguration, StepSegment
from dpaudit.game.design import Design, ThreatModel
from dpaudit.game.findings import Finding
from dpaudit.game.result import Result
from dpaudit.privacy.guarantees import GaussianDP, Guarantee
from dpaudit.theory.gap_levels import Estimate

__all__ = ["Model"]

_SIMULATED = 2_000  # coordinates per batch, for the limit; takes about a second
_MIN_NOISE = 0.3  # with less noise an accountant takes minutes


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The training run of an audit, as configured.

    Attributes:
        training: Steps, rate and noise.
        coordinates: How many coordinates held canaries.
        per_coordinate: Canaries at each.
        guarantee: The accountant's guarantee for it; None if no accountant is
            available.
        comes_from: The participation schedule and strategy that ``training`` is
            equivalent to; "" if none.
    """

    training: TrainingSetup
    coordinates: int
    per_coordinate: int
    guarantee: Guarantee | None
    comes_from: str = ""

    @classmethod
    def of(cls, result: Result) -> Self | None:
        """Return the model of the run as made, or else as its design states it."""
        design = result.design
        size = design.setting.per_coordinate
        # A model of the sums does not apply to an observer of the final model only.
        seen = (ThreatModel.ALL_ITERATES, ThreatModel.KNOWN_RECORDS)
        if design.threat_model not in seen or not size or design.canaries % size:
            return None
        modelled = _run(result)
        if modelled is None or modelled.steps > LONGEST:
            return None
        return cls(
            training=modelled,
            coordinates=design.canaries // size,
            per_coordinate=size,
            guarantee=_guarantee(result, modelled),
            comes_from="; ".join(design.setting.schedule or ()),
        )

    @property
    def configuration(self) -> RunConfiguration:
        """The run configuration of this model."""
        t = self.training
        steps = StepSegment(steps=t.steps, noise=t.noise, clip=None, rate=t.rate)
        return RunConfiguration(
            schedule=(steps,),
            coordinates=self.coordinates,
            per_coordinate=self.per_coordinate,
        )

    def epsilon_at(self, delta: float, fault: float) -> float | None:
        """Return the approximate epsilon if the noise were ``fault`` times too small.

        None if no accountant is available.
        """
        t = self.training
        noise = t.noise / fault
        if t.rate == 1:
            return GaussianDP(mu=sqrt(t.steps) / noise).epsilon_at(delta)
        try:
            from dpaudit.accounting.noise import about  # noqa: PLC0415 (an extra)
        except ImportError:
            return None
        return about(noise, t.rate, t.steps, delta) if noise >= _MIN_NOISE else None

    def limit(self, design: Design) -> Estimate | None:
        """Return the epsilon that no valid audit exceeds in more than half of its runs.

        None if it would take long to compute.
        """
        if self.per_coordinate > MOST_SHARING or not self.training.noise:
            return None
        limit = training_limit(
            self.training,
            coordinates=self.coordinates,
            per_coordinate=self.per_coordinate,
            alpha=design.alpha,
            delta=design.bound_delta,
            simulated=_SIMULATED,
        )
        return limit if limit.high < inf else None

    def __str__(self) -> str:
        come = f"{self.comes_from}: comes to " if self.comes_from else ""
        return (
            f"{come}{self.training}, {self.per_coordinate} "
            f"{'canary' if self.per_coordinate == 1 else 'canaries'} at each of "
            f"{self.coordinates} coordinates"
        )


def _run(result: Result) -> TrainingSetup | None:
    """Return the training as run, if it is equivalent to identical steps."""
    if result.training is None:
        return _planned(result.design)
    run = result.training.configuration
    setups = () if run is None else training_of(run)
    if isinstance(setups, Finding) or len(setups) != 1:
        return None
    plain = setups[0].sufficient() if setups[0].takes_turns else setups[0]
    return None if plain.takes_turns else plain


def _planned(design: Design) -> TrainingSetup | None:
    """Return the training that a design describes, if any."""
    setting = design.setting
    steps, rate, noise = setting.steps, setting.rate, setting.noise
    if setting.schedule is not None:  # its equivalent, if that is known
        steps, noise = setting.equivalent_steps, setting.equivalent_noise
    # A canary above the clipping norm is clipped to it: it has the full norm.
    canary = setting.insertion
    whole = canary is None or (canary.spread == 1 and (canary.norm or 1.0) >= 1.0)
    if not (steps and rate and noise and whole):
        return None
    return TrainingSetup(steps=steps, rate=rate, noise=noise)


def _guarantee(result: Result, training: TrainingSetup) -> Guarantee | None:
    if result.claim_test is not result.design_test:
        return result.claim_test.claim  # the accountant's
    if training.rate == 1:
        return GaussianDP(mu=sqrt(training.steps) / training.noise)
    try:
        from dpaudit.accounting import accountant_curve  # noqa: PLC0415 (an extra)
    except ImportError:
        return None
    return accountant_curve([(training.noise, training.rate, training.steps)])
