"""A number of the theory: exact, or measured with an interval."""

from dataclasses import dataclass
from math import isnan
from typing import Self, final

from dpaudit.errors import InvalidInputError

__all__ = ["Measured"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A value and an interval that holds the truth; a point if the value is exact.

    Attributes:
        value: The best estimate.
        low: Lower end of the interval.
        high: Upper end; infinite if nothing is known above.

    Example:
        >>> print(Measured.exact(0.75))
        0.75
        >>> print(Measured(value=0.61, low=0.6, high=0.62))
        0.61 [0.6, 0.62]
    """

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if any(map(isnan, (self.low, self.value, self.high))) or not (
            self.low <= self.value <= self.high
        ):
            raise InvalidInputError(
                "expected low <= value <= high, got "
                f"low={self.low!r}, value={self.value!r}, high={self.high!r}"
            )

    @classmethod
    def exact(cls, value: float) -> Self:
        """Return a value that is known exactly."""
        return cls(value=value, low=value, high=value)

    @property
    def is_exact(self) -> bool:
        """Whether the interval is a point."""
        return self.low == self.high

    def __str__(self) -> str:
        if self.is_exact:
            return f"{self.value:.4g}"
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"
