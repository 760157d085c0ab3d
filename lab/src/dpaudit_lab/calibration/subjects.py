"""What whole audits are about: mechanisms, and what is exactly true of them.

Most satisfy their claim with equality. *Attaining* makes the number of right guesses at
which its claim is refuted as likely as any mechanism can. *Shared score* is exactly
1-GDP, and all its answers are good or bad together. *Seldom randomised response* runs
one of epsilon 4 once in a thousand runs. The runs of DP-SGD are described in
``training``; how seldom each is heard is what its guesser still refutes. *1 in 10*
speaks twice as often as an audit may be wrong: there an audit that ignores delta is
found out, and a valid one must be silent.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.bounds.exact import ExactBound
from dpaudit.bounds.readings import Counts
from dpaudit.game.mechanism import FixedPosterior
from dpaudit.game.pairs import Pairs
from dpaudit.mechanisms.exposure import AllOrNothing, NameAndShame
from dpaudit.mechanisms.local import (
    LocalGaussian,
    LocalLaplace,
    LocalRandomisedResponse,
)
from dpaudit.mechanisms.noise import GaussianNoise, GeometricNoise, LaplaceNoise
from dpaudit.mechanisms.noisy_max import NoisyMax
from dpaudit.mechanisms.parity import XorRandomisedResponse
from dpaudit.mechanisms.sets import CountInSets, count
from dpaudit.privacy.guarantees import Adjacency, ApproxDP, GaussianDP
from dpaudit_lab.calibration.nulls import Attaining
from dpaudit_lab.calibration.training import SeldomTraining

__all__ = [
    "ALPHA",
    "CANARIES",
    "OFTEN",
    "PLACE",
    "SUBJECTS",
    "TRAININGS",
    "Attains",
    "SharedLoss",
    "Silent",
    "Subject",
    "small_mechanism",
    "subject",
]

ALPHA: Final = 0.05
CANARIES: Final = 100
PLACE: Final = 1  # which record of a small data set classic auditing exchanges
_TRAINED: Final = 1000  # canaries of training
_DELTA: Final = 1e-3
_N: Final = CANARIES


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Silent:
    """Says nothing: private with epsilon 0."""

    pairs = Pairs(x=0, y=1)

    def run(self, data: NDArray[Any], rng: np.random.Generator) -> None:
        """Return nothing."""

    def log_odds(self, output: None) -> NDArray[np.float64]:  # noqa: ARG002 (silent)
        """Return that nothing is known."""
        return np.zeros(CANARIES)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Attains:
    """Makes one number of right guesses as likely as its claim allows."""

    null: Attaining
    pairs = Pairs(x=np.int8(-1), y=np.int8(1))

    def run(self, data: NDArray[Any], rng: np.random.Generator) -> NDArray[np.int8]:
        """Return signs, of which as many are true as the law says."""
        law = self.null.law()
        right = rng.choice(len(law), p=law / law.sum())
        told = np.array(data)
        told[rng.permutation(len(data))[right:]] *= -1
        return told

    def log_odds(self, output: NDArray[np.int8]) -> NDArray[np.float64]:
        """Return the output's signs as if each were worth its claim."""
        return self.null.claim.epsilon * output.astype(float)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLoss:
    """One loss, drawn from the law of mu-GDP, is how true every answer is.

    The output is the log-odds of every coin, so each coin sees exactly N(0, 1) against
    N(mu, 1), but all are loud or quiet together.
    """

    mu: float
    pairs = Pairs(x=np.int8(-1), y=np.int8(1))

    @property
    def guarantee(self) -> GaussianDP:
        """Gaussian privacy, exactly."""
        return GaussianDP(mu=self.mu, adjacency=Adjacency.REPLACE_ONE)

    def run(self, data: NDArray[Any], rng: np.random.Generator) -> NDArray[np.float64]:
        """Return signs of one size, each true with the odds that the size says."""
        size = abs(rng.normal(self.mu**2 / 2, self.mu))
        true = rng.random(len(data)) < special.expit(size)
        return size * np.where(true, data, -data)

    def log_odds(self, output: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the output."""
        return output

    def posterior(self, output: NDArray[np.float64]) -> FixedPosterior:
        """Return what an output says; coins revealed say nothing of others."""
        return FixedPosterior(output)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A mechanism, what is exactly true of it, and how many canaries it takes."""

    mechanism: Any
    claim: ApproxDP
    canaries: int = CANARIES


def _claim(epsilon: float, delta: float) -> ApproxDP:
    return ApproxDP(epsilon=epsilon, delta=delta, adjacency=Adjacency.REPLACE_ONE)


def _pure(mechanism: Any) -> Subject:  # noqa: ANN401 (any mechanism)
    claim = _claim(mechanism.guarantee.epsilon, 0.0)
    return Subject(mechanism=mechanism, claim=claim)


def _approximate(mechanism: Any, delta: float) -> Subject:  # noqa: ANN401 (any mechanism)
    claim = _claim(mechanism.guarantee.epsilon_at(delta), delta)
    return Subject(mechanism=mechanism, claim=claim)


def _seldom(chance: float) -> Subject:
    """Randomised response of epsilon 4, run seldom, under a claim of epsilon 1."""
    inner = LocalRandomisedResponse(epsilon=4.0)
    delta = chance * inner.guarantee.delta_at(1.0)
    mechanism = AllOrNothing(elements=CANARIES, probability=chance, inner=inner)
    return Subject(mechanism=mechanism, claim=_claim(1.0, delta))


def _trained(null: SeldomTraining) -> Subject:
    mechanism = null.mechanism(_TRAINED)
    return Subject(mechanism=mechanism, claim=null.claim, canaries=_TRAINED)


def _attaining() -> Subject:
    """The law that spends delta at the least count that refutes its claim."""
    claim = _claim(1.0, 1e-4)
    critical = next(
        v
        for v in range(CANARIES + 1)
        if ExactBound().log_p_value(
            Counts(canaries=CANARIES, guesses=CANARIES, correct=v),
            epsilon=claim.epsilon,
            delta=claim.delta,
        )
        <= np.log(ALPHA)
    )
    null = Attaining(claim=claim, canaries=CANARIES, guesses=CANARIES, correct=critical)
    return Subject(mechanism=Attains(null=null), claim=claim)


SUBJECTS: MappingProxyType[str, Callable[[], Subject]] = MappingProxyType(
    {
        "silent": lambda: Subject(mechanism=Silent(), claim=_claim(0.0, 0.0)),
        "local randomised response": lambda: _pure(
            LocalRandomisedResponse(epsilon=1.0)
        ),
        "local Laplace": lambda: _pure(LocalLaplace(epsilon=1.0)),
        "local Gaussian": lambda: _approximate(LocalGaussian(sigma=1.0), _DELTA),
        "name and shame": lambda: _approximate(NameAndShame(elements=_N), 1 / _N),
        "shared score": lambda: _approximate(SharedLoss(mu=1.0), ALPHA / 2),
        "all or nothing": lambda: _approximate(
            AllOrNothing(elements=_N, probability=0.01), 0.01
        ),
        "all or nothing, 1 in 10": lambda: _approximate(
            AllOrNothing(elements=_N, probability=2 * ALPHA), 2 * ALPHA
        ),
        "seldom randomised response": lambda: _seldom(1e-3),
        "xor randomised response": lambda: _pure(
            XorRandomisedResponse(elements=_N, epsilon=1.0)
        ),
        "count, geometric": lambda: _pure(count(_N, GeometricNoise(epsilon=1.0))),
        "count, Laplace": lambda: _pure(count(_N, LaplaceNoise(epsilon=1.0))),
        "count, Gaussian": lambda: _approximate(
            count(_N, GaussianNoise(sigma=1.0)), _DELTA
        ),
        "sets, geometric": lambda: _pure(
            CountInSets(elements=_N, set_size=5, noise=GeometricNoise(epsilon=1.0))
        ),
        "sets, Gaussian": lambda: _approximate(
            CountInSets(elements=_N, set_size=5, noise=GaussianNoise(sigma=1.0)),
            _DELTA,
        ),
        "noisy max": lambda: _pure(NoisyMax(elements=_N, epsilon=1.0)),
        "attaining": _attaining,
    }
)
OFTEN: Final = "DP-SGD, heard 1 in 10"
TRAININGS: MappingProxyType[str, SeldomTraining] = MappingProxyType(
    {
        OFTEN: SeldomTraining(epsilon=0.5, chance=2 * ALPHA),
        "DP-SGD, heard 12 in 1000": SeldomTraining(epsilon=0.5, chance=0.012),
        "DP-SGD, heard 10 in 1000": SeldomTraining(epsilon=0.5, chance=0.01),
        "DP-SGD, heard 6 in 1000": SeldomTraining(epsilon=4.0, chance=0.006),
        "DP-SGD, heard 4 in 1000": SeldomTraining(epsilon=5.0, chance=0.004),
        "DP-SGD, heard 2 in 1000": SeldomTraining(epsilon=4.0, chance=0.002),
    }
)


@cache
def subject(name: str) -> Subject:
    """Return a subject by its name."""
    if name in TRAININGS:
        return _trained(TRAININGS[name])
    return SUBJECTS[name]()


def small_mechanism(name: str) -> Any:  # noqa: ANN401 (any mechanism)
    """Return the mechanism of a subject for the three records of classic auditing."""
    return _SMALL.get(name, SUBJECTS[name]().mechanism)


_SMALL: MappingProxyType[str, Any] = MappingProxyType(
    {
        "xor randomised response": XorRandomisedResponse(elements=3, epsilon=1.0),
        "count, geometric": count(3, GeometricNoise(epsilon=1.0)),
        "count, Laplace": count(3, LaplaceNoise(epsilon=1.0)),
        "count, Gaussian": count(3, GaussianNoise(sigma=1.0)),
    }
)
