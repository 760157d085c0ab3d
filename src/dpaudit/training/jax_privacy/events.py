"""What a ``DpEvent`` says of a run: so many steps with this noise and sampling.

JAX Privacy describes a run to its accountants as an event of dp-accounting. What the
audit tests is that description, not what the program was set to: a privatizer with too
small a standard deviation contradicts the event, and that is to be found out.
"""

from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    NoOpDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)

from dpaudit.errors import InvalidInputError

__all__ = ["history_of"]


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
