"""What a JAX Privacy run is: what its objects say, and how canaries come into it.

JAX Privacy describes a run to its accountants as an event of dp-accounting: so many
steps with this noise and sampling. What the audit tests is that description, not what
the program was set to: a privatizer with too small a standard deviation contradicts the
event, and that is to be found out.

Canaries are added to sums, or are records among the others.
"""

from dataclasses import dataclass
from math import isfinite
from typing import TypeAlias, final

from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)
from jax_privacy.batch_selection import CyclicPoissonSampling
from jax_privacy.clipping import BoundedSensitivityCallable

from dpaudit.accounting.history import sample_rate as validate_rate
from dpaudit.errors import InvalidInputError

__all__ = [
    "Insertion",
    "Records",
    "Sums",
    "history_of",
    "norm_in_sum",
    "sample_rate",
]


def history_of(event: DpEvent) -> list[tuple[float, float, int]]:
    """Return triples of noise multiplier, sample rate and number of steps.

    Raises:
        InvalidInputError: The event is not made of Gaussian steps, each with Poisson
            sampling or none.

    Example:
        >>> from jax_privacy.experimental.accounting import dpsgd_event
        >>> history_of(dpsgd_event(1.5, 100, sampling_prob=0.1))
        [(1.5, 0.1, 100)]
    """
    match event:
        case NoOpDpEvent():
            return []
        case GaussianDpEvent(noise_multiplier=noise):
            return [(float(noise), 1.0, 1)]
        case PoissonSampledDpEvent(
            sampling_probability=rate, event=GaussianDpEvent(noise_multiplier=noise)
        ):
            return [(float(noise), float(rate), 1)]
        case SelfComposedDpEvent(event=one, count=count):
            return [(s, q, t * int(count)) for s, q, t in history_of(one) if count]
        case ComposedDpEvent(events=events):
            return [triple for part in events for triple in history_of(part)]
        case _:
            raise InvalidInputError(
                "event must be made of Gaussian steps with Poisson sampling, as "
                f"dpsgd_event(...) makes them, got {event!r}; leave it out and hand "
                "finish(claim=...) a curve that holds for it"
            )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """Canaries are added to the clipped sum, just before the noise.

    Nothing but the privatizer is wrapped. Sampling and clipping are not run through.
    """


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Canaries are records: sampled, clipped and summed as all others are.

    Attributes:
        norm: Norm of a canary's gradient before clipping: ``l2_clip_norm`` or more. A
            larger one also shows whether large gradients are clipped.
    """

    norm: float

    def __post_init__(self) -> None:
        if not (isfinite(self.norm) and self.norm > 0):
            raise InvalidInputError(
                f"norm must be finite and > 0, got norm={self.norm!r}; pass the "
                "l2_clip_norm that clipped_grad was given, or more"
            )


Insertion: TypeAlias = Sums | Records


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
