"""A run of DP-SGD with far too little noise, made seldom enough for its claim.

With chance ``c`` a run of DP-SGD with Dirac canaries is seen, else nothing. As silence
shows which of the two it was, the whole curve is scaled: ``delta(epsilon)`` is ``c``
times that of the run.

Of the run no more is needed than a bound that is nearly sharp. Let ``J`` be the steps
that a canary joins, ``|J| ~ Bin(T, q)``. Given ``J``, and given what all other canaries
do, its presence shifts the sums of those steps by one clipping norm each, in noise of
deviation ``sigma``: a Gaussian mechanism of ``mu = sqrt(|J|) / sigma``. Not knowing
``J`` is a mixture over it, and delta is jointly convex, so

    delta(epsilon) <= sum over k of P[Bin(T, q) = k] delta_Gauss(sqrt(k)/sigma)(epsilon)

in both directions. For the full batch (q = 1), and one canary per coordinate, that is
an equality; with little noise it is nearly one for any q: the sums then show whether
the canary joined any step, and both sides tend to ``1 - (1 - q)^T``. Several canaries
at a coordinate hide each other, which only lowers the left side. Adjacency is the
game's: a canary is there, or it is not.

Reference: Keinan, Shenfeld and Ligett, https://arxiv.org/abs/2503.07199, section 6, for
the canaries; the curve of the Gaussian mechanism: Balle and Wang,
https://arxiv.org/abs/1805.06530, theorem 8.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np

from dpaudit import _validate
from dpaudit.dpsgd.sampling import Poisson, log_binomial
from dpaudit.dpsgd.sums import DiracSums
from dpaudit.errors import InvalidInputError
from dpaudit.mechanisms.exposure import AllOrNothing
from dpaudit.privacy.guarantees import ApproxDP, GaussianDP, PrivacyCurve
from dpaudit_lab.calibration.draws import (
    Draws,
    every_guess,
    fair_coins,
)

__all__ = ["SeldomTraining", "training_delta"]

_CURVE = 200  # points of the claim that is a curve
_CURVE_END = 1e-12


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SeldomTraining:
    """With some chance a run of DP-SGD with too little noise, else silence.

    Attributes:
        epsilon: Of the claim.
        chance: That the run is seen.
        per_coordinate: Canaries at each coordinate.
        steps: Of the run.
        rate: Sampling rate.
        sigma: Noise over the clipping norm.
    """

    epsilon: float
    chance: float
    per_coordinate: int = 2
    steps: int = 16
    rate: float = 0.5
    sigma: float = 0.3

    def __post_init__(self) -> None:
        _validate.nonnegative("epsilon", self.epsilon)
        _validate.probability("chance", self.chance)

    @property
    def claim(self) -> ApproxDP:
        """What it satisfies, and next to nothing better at this epsilon."""
        return ApproxDP(epsilon=self.epsilon, delta=self.delta_at(self.epsilon))

    @property
    def curve(self) -> PrivacyCurve:
        """What it satisfies at every epsilon."""
        largest = GaussianDP(mu=self.steps**0.5 / self.sigma).epsilon_at(_CURVE_END)
        epsilons = np.linspace(0.0, largest, _CURVE)
        deltas = np.array([self.delta_at(float(e)) for e in epsilons])
        return PrivacyCurve(epsilons=epsilons, deltas=deltas)

    def delta_at(self, epsilon: float) -> float:
        """Return a delta that it satisfies at an epsilon."""
        run = training_delta(
            epsilon, steps=self.steps, rate=self.rate, sigma=self.sigma
        )
        return self.chance * run

    def mechanism(self, canaries: int) -> AllOrNothing:
        """Return it as a mechanism that can be audited."""
        return AllOrNothing(
            elements=canaries, probability=self.chance, inner=self._run(canaries)
        )

    def draw(self, rng: np.random.Generator, *, canaries: int, audits: int) -> Draws:
        """Simulate audits; the guesser states the exact log-odds."""
        bits = fair_coins(rng, (audits, canaries))
        run, log_odds = self._run(canaries), np.zeros(bits.shape)
        for audit in np.flatnonzero(rng.random(audits) < self.chance):
            log_odds[audit] = run.log_odds(run.run(bits[audit], rng))
        return every_guess(log_odds, bits)

    def _run(self, canaries: int) -> DiracSums:
        if canaries % self.per_coordinate:
            raise InvalidInputError(
                f"canaries must be a multiple of per_coordinate="
                f"{self.per_coordinate}, got canaries={canaries}"
            )
        return DiracSums(
            coordinates=canaries // self.per_coordinate,
            per_coordinate=self.per_coordinate,
            sampling=Poisson(rate=self.rate),
            sigma=self.sigma,
            steps=self.steps,
        )


@lru_cache(maxsize=4096)
def training_delta(epsilon: float, *, steps: int, rate: float, sigma: float) -> float:
    """Return a bound on the delta of a run of DP-SGD, sharp where noise is little.

    Example:
        >>> full = training_delta(1.0, steps=4, rate=1.0, sigma=2.0)
        >>> round(full / GaussianDP(mu=1.0).delta_at(1.0), 9)
        1.0
    """
    joined = np.exp(log_binomial(steps, rate)[steps])
    deltas = [GaussianDP(mu=k**0.5 / sigma).delta_at(epsilon) for k in range(steps + 1)]
    return float(joined @ np.array(deltas))
