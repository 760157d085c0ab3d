"""What JAX Privacy's own objects say of a run, so that nobody need repeat it."""

from math import isfinite

from jax_privacy.batch_selection import CyclicPoissonSampling
from jax_privacy.clipping import BoundedSensitivityCallable

from dpaudit.accounting.history import sample_rate as validate_rate
from dpaudit.errors import InvalidInputError

__all__ = ["norm_in_sum", "sample_rate"]


def norm_in_sum(clipped_grad: BoundedSensitivityCallable) -> float:
    """Return the most that one record's gradient can be in the sum of a batch.

    Rescaling to unit norm and division by ``normalize_by`` are contained in it.

    Example:
        >>> from jax_privacy import clipped_grad
        >>> norm_in_sum(clipped_grad(abs, l2_clip_norm=3.0, normalize_by=10.0))
        0.3
    """
    if not isinstance(clipped_grad, BoundedSensitivityCallable):
        raise InvalidInputError(
            "clipped_grad must be what jax_privacy.clipped_grad(...) returned, got "
            f"{type(clipped_grad).__name__}; pass it before jax.jit, which hides its "
            "sensitivity"
        )
    norm = float(clipped_grad.sensitivity())  # of zeroing a record out
    if not (isfinite(norm) and norm > 0):
        raise InvalidInputError(
            f"clipped_grad has sensitivity {norm}; without a finite clipping norm "
            "there is no guarantee to audit"
        )
    return norm


def sample_rate(batch_selection: CyclicPoissonSampling) -> float:
    """Return the chance of a record to be in a batch.

    Example:
        >>> sample_rate(CyclicPoissonSampling(sampling_prob=0.1, iterations=100))
        0.1
    """
    if not isinstance(batch_selection, CyclicPoissonSampling):
        raise InvalidInputError(
            "batch_selection must be CyclicPoissonSampling(...), got "
            f"{type(batch_selection).__name__}; canaries join steps by Poisson sampling"
        )
    if batch_selection.cycle_length != 1 or batch_selection.truncated_batch_size:
        raise InvalidInputError(
            "batch_selection must be plain Poisson sampling, got cycle_length="
            f"{batch_selection.cycle_length}, truncated_batch_size="
            f"{batch_selection.truncated_batch_size}; cycles and truncation are not "
            "supported, nor is noise that is correlated over steps"
        )
    rate = float(batch_selection.sampling_prob)
    validate_rate("sampling_prob", rate)
    return rate
