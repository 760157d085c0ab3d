"""What noisy sums say about a Dirac canary's coin, one step at a time.

A canary alone in its coordinate, in units of the clipping norm: at each step the
coordinate shows ``x = join + noise`` if the canary is included, where ``join`` is 1
with the sampling rate ``q`` and unseen, and ``x = noise`` if it is not. With Gaussian
noise of standard deviation ``s`` the step adds

    ln( 1 - q + q exp((2x - 1) / (2 s^2)) )

to the log-odds of inclusion. Nothing is stored per step. ``s`` is estimated from the
values themselves, by the median absolute deviation over the coordinates of the step:
a guesser that believed the claimed noise would overlook noise that is too small. An
estimate that is off costs power, never validity, as it is a function of the output.

Reference: Keinan, Shenfeld and Ligett, https://arxiv.org/abs/2503.07199, section 5;
subsampling with unseen batches as in docs/developer/decisions/0003-posterior.md.
"""

from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit import _validate

__all__ = ["DiracPosterior", "noise_scale", "step_log_odds"]

_NORMAL_QUARTILE = float(special.ndtri(0.75))
_LEAST_SCALE = 1e-3  # of the clipping norm; keeps noiseless values finite


def step_log_odds(
    sums: NDArray[np.float64], *, scale: float, sample_rate: float
) -> NDArray[np.float64]:
    """Return what one step adds to the log-odds of inclusion.

    Args:
        sums: The noisy sums at the canaries' coordinates, over the clipping norm.
        scale: Standard deviation of the noise, over the clipping norm.
        sample_rate: Chance that an included canary joins a step.
    """
    log_join = float(special.xlogy(1.0, sample_rate))
    log_stay = float(special.xlog1py(1.0, -sample_rate))
    return np.logaddexp(log_stay, log_join + (2 * sums - 1) / (2 * scale**2))


def noise_scale(sums: NDArray[np.float64]) -> float:
    """Return a robust estimate of the noise, over the clipping norm."""
    deviation = float(np.median(np.abs(sums - np.median(sums))))
    return max(deviation / _NORMAL_QUARTILE, _LEAST_SCALE)


@final
class DiracPosterior:
    """Log-odds of inclusion of canaries that each have a coordinate of their own.

    Example:
        >>> posterior = DiracPosterior(canaries=3, sample_rate=1.0)
        >>> posterior.observe(np.array([1.2, -0.3, 0.1]))
        >>> np.sign(posterior.log_odds)
        array([ 1., -1., -1.])
    """

    def __init__(self, *, canaries: int, sample_rate: float) -> None:
        _validate.probability("sample_rate", sample_rate)
        self.log_odds = np.zeros(canaries)
        self._sample_rate = sample_rate

    def observe(self, sums: NDArray[np.float64]) -> None:
        """Add one step's noisy sums, over the clipping norm."""
        scale = noise_scale(sums)
        self.log_odds += step_log_odds(sums, scale=scale, sample_rate=self._sample_rate)
