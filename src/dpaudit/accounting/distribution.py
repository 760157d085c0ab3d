"""A pessimistic privacy loss distribution of a training run.

dp-accounting discretises the privacy loss of a step by connecting the dots: between
grid points, the true delta is replaced by its chord in ``e^epsilon``, which lies above
it. Composition preserves that order, and truncated tails are counted as infinite loss.
So every delta of the result is an upper bound, up to rounding in the Fourier transforms
of the composition; this changes sums of probabilities by about 1e-14, and ``ROUNDING``
is added to every delta to cover it.

Steps without subsampling compose without a grid: their inverse variances add up.

Reference: Doroshenko et al., "Connect the dots: tighter discrete approximations of
privacy loss distributions", https://arxiv.org/abs/2207.04380.
"""

from collections.abc import Mapping
from math import sqrt
from typing import Any, Protocol

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld
from numpy.typing import ArrayLike, NDArray

__all__ = ["GRID", "ROUNDING", "Distribution", "composed", "deltas_at"]

GRID = 1e-4  # spacing of the privacy losses
ROUNDING = 1e-12
_TAIL = 1e-15  # mass that one composition may move to infinite loss


class Distribution(Protocol):
    """The methods of dp-accounting's ``PrivacyLossDistribution`` that are used here."""

    def self_compose(
        self, num_times: int, tail_mass_truncation: float
    ) -> "Distribution":
        """Return the distribution of this many such steps."""
        ...

    def compose(
        self, other: "Distribution", tail_mass_truncation: float
    ) -> "Distribution":
        """Return the distribution of both together."""
        ...

    def get_delta_for_epsilon(self, epsilon: float | NDArray[np.float64]) -> ArrayLike:
        """Return the delta at each epsilon."""
        ...

    def get_epsilon_for_delta(self, delta: float) -> float:
        """Return the smallest epsilon; infinity if there is none."""
        ...


def composed(kinds: Mapping[tuple[float, float], int]) -> Distribution:
    """Return the distribution of steps, from their number by (noise, sample rate)."""
    full = sum(steps / noise**2 for (noise, rate), steps in kinds.items() if rate == 1)
    parts = [_step(1 / sqrt(full), 1.0)] if full else []
    parts += [
        _step(noise, rate).self_compose(steps, tail_mass_truncation=_TAIL)
        for (noise, rate), steps in kinds.items()
        if rate < 1
    ]
    total = parts[0]
    for part in parts[1:]:
        total = total.compose(part, tail_mass_truncation=_TAIL)
    return total


def deltas_at(
    distribution: Distribution, epsilons: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the delta at each epsilon, as ``get_delta_for_epsilon`` does.

    It adds the same numbers in the same order, but dp-accounting does so in a loop that
    takes seconds, and its probabilities cannot be read otherwise.
    """
    both: Any = distribution
    remove, add = (
        _deltas(each, epsilons) for each in (both._pmf_remove, both._pmf_add)
    )
    return np.maximum(remove, add)


def _deltas(
    pmf: Any,  # noqa: ANN401 (untyped there)
    epsilons: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the deltas for one order of the neighbours."""
    dense = pmf.to_dense_pmf()
    losses = (np.arange(dense.size) + dense._lower_loss) * dense._discretization
    masses = dense._probs[::-1]
    upper = np.append(dense._infinity_mass, masses).cumsum()
    lower = np.append(0.0, masses * np.exp(-losses[::-1])).cumsum()
    above = dense.size - np.searchsorted(losses, epsilons, side="right")
    return np.asarray(upper[above] - np.exp(epsilons) * lower[above])


def _step(noise: float, rate: float) -> Distribution:
    step: Distribution = pld.from_gaussian_mechanism(
        noise, sampling_prob=rate, value_discretization_interval=GRID
    )
    return step
