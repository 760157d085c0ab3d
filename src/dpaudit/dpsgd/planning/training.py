"""The setup of a training run, as far as a plan needs it.

In the full batch (rate 1) the sum over all steps is sufficient, so that ``T`` steps of
noise ``sigma`` are one step of noise ``sigma / sqrt(T)``.

Training with a participation schedule, or with noise correlated between steps, often
reduces to simpler training. With known participation and no sampling, a canary is seen
in one Gaussian number: one step of noise ``sigma / |C u|``. With sampling, and
participations at least as many steps apart as the strategy has bands, each of them is a
step of its own, of noise ``sigma / |c|`` with ``c`` a column. Other cases, such as
sampling in every step of correlated noise, are simulated without reduction.
"""

from dataclasses import dataclass, replace
from math import sqrt
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.dpsgd.participation import Participation, signals
from dpaudit.dpsgd.sampling import Poisson
from dpaudit.dpsgd.strategy import (
    Independent,
    Strategy,
    length,
    strategy_setting,
)
from dpaudit.dpsgd.sums import DiracSums
from dpaudit.errors import InvalidInputError
from dpaudit.game.setting import Setting

__all__ = ["TrainingSetup"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSetup:
    """Steps of DP-SGD, or rounds of federated training.

    Attributes:
        steps: The number of steps.
        rate: Probability that a record is sampled in a step of its schedule; 1 for the
            full batch.
        noise: Noise multiplier: standard deviation of the noise over the clipping norm;
            for correlated noise, before it is correlated.
        participation: The participation schedule; by default all records in every step.
        strategy: The strategy that correlates noise between steps, if any.

    Example:
        >>> from dpaudit.dpsgd.strategy import Toeplitz
        >>> training = TrainingSetup(
        ...     steps=4,
        ...     noise=4.0,
        ...     participation=Participation(every=2, cohorts=2),
        ...     strategy=Toeplitz(coefficients=(1.0, 1.0), steps=4),
        ... )
        >>> training.sufficient().noise  # each joins twice, and is seen twice
        2.0
    """

    steps: int
    rate: float = 1.0
    noise: float
    participation: Participation | None = None
    strategy: Strategy | None = None

    def __post_init__(self) -> None:
        _validate.whole_number("steps", self.steps, least=1)
        _validate.positive("noise", self.noise)
        _validate.rate("rate", self.rate)
        object.__setattr__(self, "steps", int(self.steps))
        ends = None if self.strategy is None else self.strategy.steps
        if ends not in (None, self.steps):
            raise InvalidInputError(
                f"the strategy is for {ends} steps, and steps={self.steps}; the last "
                "steps of a strategy are unlike the others, so both must be the same"
            )

    def mechanism(self, *, coordinates: int, per_coordinate: int) -> DiracSums:
        """Return the noisy sums of Dirac canaries that the training outputs."""
        plain = self.sufficient() if self.takes_turns else self
        if plain.takes_turns:
            raise InvalidInputError(
                "sampling in turns that correlated noise runs together, or with a cap, "
                "cannot be rehearsed; plans for it can be made"
            )
        return DiracSums(
            coordinates=coordinates,
            per_coordinate=per_coordinate,
            sampling=Poisson(rate=plain.rate),
            sigma=plain.noise,
            steps=plain.steps,
        )

    @property
    def takes_turns(self) -> bool:
        """Whether there is a participation schedule or correlated noise."""
        return self.participation is not None or self.strategy is not None

    @property
    def own_participation(self) -> Participation:
        """The participation schedule; by default all records in every step."""
        return self.participation or Participation()

    @property
    def own_strategy(self) -> Strategy:
        """The strategy of the noise; by default independent noise."""
        return self.strategy or Independent()

    def signals(self) -> NDArray[np.float64]:
        """Return each cohort's signal: the norm of a canary in all its scheduled steps.

        The largest is the sensitivity of the training if no inner product of two
        columns of the strategy is negative; otherwise it is a lower bound.
        """
        return signals(self.own_participation, self.own_strategy, self.steps)

    def sufficient(self) -> "TrainingSetup":
        """Return equivalent training with the fewest steps known to suffice.

        Cohorts may differ, as the end of training cuts some short: those that show most
        stand for all.
        """
        if self.rate == 1:
            most = float(self.signals().max()) if self.takes_turns else sqrt(self.steps)
            return TrainingSetup(steps=1, rate=1.0, noise=self.noise / most)
        participation, strategy = self.own_participation, self.own_strategy
        apart = strategy.bands <= participation.every and participation.most is None
        if not (self.takes_turns and apart):
            return self
        lengths = [
            length(strategy.column(step))
            for step in range(participation.first, self.steps, participation.every)
        ]
        typical = sqrt(float(np.mean(np.square(lengths))))
        return TrainingSetup(
            steps=len(lengths), rate=self.rate, noise=self.noise / typical
        )

    def with_noise_divided_by(self, factor: float) -> "TrainingSetup":
        """Return the same training with noise divided by a factor."""
        return replace(self, noise=self.noise / factor)

    def setting(self) -> Setting:
        """Return the setting that a design records."""
        setting = Setting(
            steps=self.steps,
            rate=self.rate,
            noise=self.noise,
            participation=self.participation,
            strategy=strategy_setting(self.strategy),
        )
        plain = self.sufficient()
        if setting.schedule is None or plain.takes_turns:
            return setting
        return replace(
            setting, equivalent_steps=plain.steps, equivalent_noise=plain.noise
        )

    def __str__(self) -> str:
        steps = f"{self.steps} step{'s' * (self.steps != 1)}"
        if not self.takes_turns:
            return (
                f"DP-SGD of {steps} with sampling rate {self.rate:g} and noise "
                f"multiplier {self.noise:.4g}"
            )
        sampled = f", sampled at rate {self.rate:g}" if self.rate < 1 else ""
        return (
            f"Training of {steps} ({self.own_participation}{sampled}; "
            f"{self.own_strategy}) with noise {self.noise:.4g}"
        )
