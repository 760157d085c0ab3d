"""The limit of a training run: the largest median bound of any valid audit.

``dpaudit.theory.limit`` for Dirac canaries. In the full batch the sum over all steps is
one Gaussian number, and its likelihood is computed on a fine grid. Otherwise the
likelihoods of sums at a coordinate are simulated, in batches, whose scatter gives the
error. The null of each batch is fitted to the batch before it: a null fitted to the
outputs that it is tested on would be too close to them, and the limit too low. So the
error is on the high side. The number of ones is never drawn; its exact posterior
distribution is used.
"""

from itertools import pairwise

import numpy as np
from scipy import special

from dpaudit import _validate
from dpaudit.dpsgd.planning.guess_distribution import simulated_likelihood
from dpaudit.dpsgd.planning.training import TrainingSetup
from dpaudit.mechanisms.noise import GaussianNoise
from dpaudit.mechanisms.output_likelihood import OutputLikelihood
from dpaudit.mechanisms.sets import CountInSets
from dpaudit.theory.gap_levels import Estimate
from dpaudit.theory.limit import limit

__all__ = ["training_limit"]

_BATCHES = 4
_LEAST, _MOST = 2_000, 20_000  # coordinates of a batch
_CELLS, _DRAWS = 40_000, 50_000_000  # likelihoods of a batch, numbers drawn for it
_QUANTILE = 0.975


def training_limit(
    training: TrainingSetup,
    *,
    coordinates: int,
    per_coordinate: int,
    alpha: float,
    delta: float = 0.0,
    seed: int = 0,
    simulated: int | None = None,
) -> Estimate:
    """Return the epsilon that half of all runs, of any valid audit, stay below.

    Args:
        training: The training run.
        coordinates: The number of coordinates with canaries.
        per_coordinate: Canaries at each.
        alpha: Significance level of an audit's bound.
        delta: Delta of the audited privacy.
        seed: Seed of the simulation.
        simulated: Coordinates of each of four batches; by default chosen so that it
            takes seconds.

    Example:
        >>> one_step = TrainingSetup(steps=1, noise=2.149)
        >>> print(training_limit(one_step, coordinates=1000, per_coordinate=1,
        ...     alpha=0.05))
        0.6616
    """
    _validate.whole_number("coordinates", coordinates, least=1)
    _validate.whole_number("per_coordinate", per_coordinate, least=1)
    if training.rate == 1 and not training.takes_turns:
        sums = CountInSets(
            elements=coordinates * per_coordinate,
            set_size=per_coordinate,
            noise=GaussianNoise(sigma=training.sufficient().noise),
        )
        value = limit(sums.output_likelihood(sums.elements), alpha=alpha, delta=delta)
        return Estimate.exact(value)
    if simulated is None:
        few = min(_CELLS // (per_coordinate + 1), _DRAWS // training.steps)
        simulated = min(max(few, _LEAST), _MOST)
    batches = []
    for batch in range(_BATCHES):
        rng = np.random.default_rng([seed, batch, per_coordinate])
        bits = rng.integers(0, 2, (simulated, per_coordinate), dtype=np.int8)
        likelihood = OutputLikelihood(
            groups=coordinates,
            weights=np.full(simulated, 1 / simulated),
            log_likelihood=simulated_likelihood(training, bits, rng),
        )
        batches.append(likelihood)
    limits: list[float] = []
    for fitted, other in pairwise([batches[-1], *batches]):
        near = limits[0] if limits else None
        limits.append(
            limit([other], alpha=alpha, delta=delta, near=near, fitted=[fitted])
        )
    mean = float(np.mean(limits))
    reach = float(special.stdtrit(_BATCHES - 1, _QUANTILE) * np.std(limits, ddof=1))
    error = reach / _BATCHES**0.5
    return Estimate(value=mean, low=max(0.0, mean - error), high=mean + error)
