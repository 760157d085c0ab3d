"""How far a long run is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

__all__ = ["Progress"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run is.

    Attributes:
        done: Trials in the store, of those wanted.
        failed: Trials that raised, this time.
        total: Trials wanted.
        cells_done: Settings of which no trial is left to run.
        cells: Settings.
        setting: The one that last reported, as JSON; None before the first one does.
        means: Means of its numbers, over all its trials in the store.
    """

    done: int
    failed: int
    total: int
    cells_done: int
    cells: int
    setting: str | None = None
    means: Mapping[str, float] = field(default_factory=dict)
