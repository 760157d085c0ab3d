"""What will be trained, as far as a plan has to know it.

In the full batch (rate 1) the sum over all steps is sufficient, so that ``T`` steps of
noise ``sigma`` are one step of noise ``sigma / sqrt(T)``.
"""

from dataclasses import dataclass
from math import sqrt
from typing import final

from dpaudit import _validate
from dpaudit.dpsgd.joining import Poisson
from dpaudit.dpsgd.sums import DiracSums

__all__ = ["Training"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Steps of DP-SGD with Poisson sampling.

    Attributes:
        steps: How many steps.
        rate: Chance of each record to join a step; 1 for the full batch.
        noise: Standard deviation of the noise, over the clipping norm.
    """

    steps: int
    rate: float
    noise: float

    def __post_init__(self) -> None:
        _validate.whole_number("steps", self.steps, least=1)
        _validate.positive("noise", self.noise)
        _validate.rate("rate", self.rate)
        object.__setattr__(self, "steps", int(self.steps))

    def mechanism(self, *, coordinates: int, per_coordinate: int) -> DiracSums:
        """Return the noisy sums that such training shows of Dirac canaries."""
        return DiracSums(
            coordinates=coordinates,
            per_coordinate=per_coordinate,
            participation=Poisson(rate=self.rate),
            sigma=self.noise,
            steps=self.steps,
        )

    def sufficient(self) -> "Training":
        """Return training that shows as much, in as few steps as are known to do."""
        if self.rate < 1:
            return self
        return Training(steps=1, rate=1.0, noise=self.noise / sqrt(self.steps))

    def louder(self, factor: float) -> "Training":
        """Return the same training with noise divided by a factor."""
        return Training(steps=self.steps, rate=self.rate, noise=self.noise / factor)
