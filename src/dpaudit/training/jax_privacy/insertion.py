"""How canaries come into a run: added to sums, or as records among the others."""

from dataclasses import dataclass
from math import isfinite
from typing import TypeAlias, final

from dpaudit.errors import InvalidInputError

__all__ = ["Insertion", "Records", "Sums"]


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
