"""Read a JAX Privacy run's configuration from its objects, and how to insert canaries.

JAX Privacy describes a run to its accountants as an event of dp-accounting: a number of
steps with their noise and sampling. The audit tests that description, not the program's
settings: a privatizer with too small a standard deviation contradicts the event, which
the audit is to detect.

Canaries are added to sums, or are records among the others.
"""

from dataclasses import dataclass
from math import isfinite
from types import FunctionType
from typing import Any, Final, TypeAlias, TypeGuard, final

import numpy as np
import optax
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
from jax_privacy.experimental.execution_plan import BandMFExecutionPlanConfig
from jax_privacy.matrix_factorization.streaming_matrix import StreamingMatrix

from dpaudit.accounting.history import sample_rate as validate_rate
from dpaudit.dpsgd.participation import Participation
from dpaudit.dpsgd.strategy import Strategy, Toeplitz
from dpaudit.errors import InvalidInputError
from dpaudit.game.setting import CanaryInsertion, InsertionPoint

__all__ = [
    "Insertion",
    "Records",
    "Sums",
    "check_privatizer",
    "clipping_norm",
    "history_of",
    "noise_of",
    "norm_in_sum",
    "sampling_of",
    "strategy_of",
]

_FIRST_STEPS: Final = 16  # enough to see whether noise is correlated
_CLOSE: Final = 1e-3  # tolerance for what is computed in float32


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

    Only the privatizer is wrapped. Canaries do not pass through sampling and clipping.
    """


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Canaries are records: sampled, clipped and summed as all others are.

    Attributes:
        norm: Norm of a canary's gradient before clipping, in the same unit as
            ``l2_clip_norm``: that norm or more. A larger one also shows whether large
            gradients are clipped.
    """

    norm: float

    def __post_init__(self) -> None:
        if not (isfinite(self.norm) and self.norm > 0):
            raise InvalidInputError(
                f"norm must be finite and > 0, got norm={self.norm!r}; pass the "
                "l2_clip_norm that clipped_grad was given, or more"
            )


Insertion: TypeAlias = Sums | Records


def insertion_setting(insertion: Insertion) -> CanaryInsertion:
    """Return how canaries are inserted, as a design records it."""
    match insertion:
        case Sums():
            return CanaryInsertion(point=InsertionPoint.GRADIENT_SUM)
        case Records(norm=norm):
            return CanaryInsertion(point=InsertionPoint.GRADIENT, gradient_norm=norm)


def norm_in_sum(clipped_grad: BoundedSensitivityCallable) -> float:
    """Return the largest norm of one record's gradient in the sum of a batch.

    It includes rescaling to unit norm and division by ``normalize_by``.

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
    norm = float(clipped_grad.sensitivity())  # under zeroing out a record
    if not (isfinite(norm) and norm > 0):
        raise InvalidInputError(
            f"clipped_grad has sensitivity {norm}; without a finite clipping norm "
            "there is no guarantee to audit"
        )
    return norm


def clipping_norm(clipped_grad: BoundedSensitivityCallable) -> float | None:
    """Return the norm that gradients are clipped to; None if it is not known.

    The sensitivity is a quotient and does not reveal it. JAX Privacy's own functions
    hold it in their closures; for other functions, and for gradients that are
    transformed before clipping, it is not known.

    Example:
        >>> from jax_privacy import clipped_grad
        >>> clipping_norm(clipped_grad(abs, l2_clip_norm=3.0, normalize_by=10.0))
        3.0
    """
    names = _enclosed_by_clipping(clipped_grad.fun)
    transform = names.get("pre_clipping_transform")
    norm = names.get("l2_clip_norm")
    if _is_of_clipping(transform) and isinstance(norm, float | int):
        return float(norm)
    return None


def _enclosed_by_clipping(function: object) -> dict[str, object]:
    """Return the closure variables of JAX Privacy's clipping functions, outer first."""
    variables: dict[str, object] = {}
    if _is_of_clipping(function):
        variables = _enclosed(function)
        for inner in tuple(variables.values()):
            variables = _enclosed_by_clipping(inner) | variables
    return variables


def _enclosed(function: FunctionType) -> dict[str, object]:
    cells = (cell.cell_contents for cell in function.__closure__ or ())
    return dict(zip(function.__code__.co_freevars, cells, strict=True))


def _is_of_clipping(value: object) -> TypeGuard[FunctionType]:
    file = BoundedSensitivityCallable.__call__.__code__.co_filename
    return isinstance(value, FunctionType) and value.__code__.co_filename == file


def sampling_of(
    batch_selection: CyclicPoissonSampling,
) -> tuple[float, Participation | None]:
    """Return the sampling rate, and the participation schedule of the cycles.

    Example:
        >>> sampling_of(CyclicPoissonSampling(sampling_prob=0.1, iterations=100))
        (0.1, None)
        >>> cycles = CyclicPoissonSampling(
        ...     sampling_prob=1.0, iterations=100, cycle_length=4
        ... )
        >>> sampling_of(cycles)
        (1.0, Participation(every=4, cohorts=4, most=None, first=0))
    """
    if not isinstance(batch_selection, CyclicPoissonSampling):
        raise InvalidInputError(
            "batch_selection must be CyclicPoissonSampling(...), got "
            f"{type(batch_selection).__name__}; canaries join steps by Poisson sampling"
        )
    if batch_selection.truncated_batch_size:
        raise InvalidInputError(
            "batch_selection must be without truncation, got truncated_batch_size="
            f"{batch_selection.truncated_batch_size}; canaries that are added to sums "
            "would not be truncated with the others"
        )
    rate = float(batch_selection.sampling_prob)
    validate_rate("sampling_prob", rate)
    cycle = int(batch_selection.cycle_length)
    return rate, Participation(every=cycle, cohorts=cycle) if cycle > 1 else None


def strategy_of(config: BandMFExecutionPlanConfig) -> Toeplitz | None:
    """Return the strategy that correlates a plan's noise; None if it is independent.

    Example:
        >>> config = BandMFExecutionPlanConfig(
        ...     strategy=[1.0, 0.5], iterations=8, epsilon=1.0, delta=1e-5
        ... )
        >>> strategy_of(config).column(0)
        array([1. , 0.5])
    """
    coefficients = np.asarray(config.strategy, np.float64)
    if len(coefficients) == 1:
        return None
    if config.column_normalize:  # to columns of length 1, whatever they were
        coefficients = coefficients / np.linalg.norm(coefficients)
    return Toeplitz(
        coefficients=tuple(coefficients.tolist()),
        steps=int(config.iterations),
        normalized=bool(config.column_normalize),
    )


def noise_of(config: BandMFExecutionPlanConfig) -> float:
    """Return a plan's noise multiplier over a record's norm, before correlation."""
    event = config.plan.dp_event
    ((multiplier, _, _),) = history_of(event)
    return multiplier * float(np.linalg.norm(np.asarray(config.strategy, np.float64)))


def check_privatizer(
    privatizer: optax.GradientTransformation, strategy: Strategy | None
) -> None:
    """Refuse a privatizer whose noise is not correlated by the given strategy.

    The noising matrix ``C^-1`` can be read from JAX Privacy's own privatizers; for any
    other, the given strategy is assumed to be right.

    Raises:
        InvalidInputError: The noise is correlated and no strategy was passed, or not
            by the one that was passed.
    """
    update = privatizer.update
    enclosed = _enclosed(update) if isinstance(update, FunctionType) else {}
    if "noising_matrix" not in enclosed:
        return
    steps = (strategy and strategy.steps) or _FIRST_STEPS
    noising: Any = enclosed["noising_matrix"]
    streamed = isinstance(noising, StreamingMatrix)
    # All steps are compared: normalisation may change the last columns only.
    rows = np.asarray(noising.materialize(steps) if streamed else noising, np.float64)
    correlated = np.abs(rows - np.diag(np.diagonal(rows))).max(initial=0.0) > _CLOSE
    if strategy is None:
        if correlated:
            raise InvalidInputError(
                "this privatizer correlates its noise from step to step; specify how: "
                "JaxAudit.of_plan(config, ...) reads it from an execution plan, "
                "or pass strategy=Toeplitz(coefficients=..., steps=...), or "
                "strategy=Matrix(rows=...) with the matrix whose inverse it multiplies "
                "noise by"
            )
        return
    columns = np.zeros((len(rows), len(rows)))
    for step in range(len(rows)):
        column = strategy.column(step)[: len(rows) - step]
        columns[step : step + len(column), step] = column
    off = np.abs(columns @ rows - np.eye(len(rows))).max()
    if not off < _CLOSE:
        raise InvalidInputError(
            f"this privatizer does not multiply noise by the inverse of {strategy}: "
            f"their product differs from 1 by {off:.2g}; pass the strategy that it "
            "was made from"
        )
