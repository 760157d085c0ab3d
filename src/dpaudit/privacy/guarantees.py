"""What a mechanism is claimed to satisfy."""

from dataclasses import dataclass
from typing import final

from dpaudit import _validate

__all__ = ["ApproxDP"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ApproxDP:
    """(epsilon, delta)-differential privacy; ``delta = 0`` is pure privacy.

    Attributes:
        epsilon: Largest log-ratio of chances that one record may cause.
        delta: Probability mass exempt from that limit.

    Example:
        >>> print(ApproxDP(epsilon=2.0, delta=1e-5))
        (epsilon = 2, delta = 1e-05)-DP
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        _validate.nonnegative("epsilon", self.epsilon)
        _validate.probability("delta", self.delta)

    def __str__(self) -> str:
        return f"(epsilon = {self.epsilon:g}, delta = {self.delta:g})-DP"
