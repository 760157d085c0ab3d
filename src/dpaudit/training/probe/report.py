"""The report of a sensitivity probe, and the likely cause of too large a change.

A probe runs a program's own sum of clipped gradients on real records and measures how
much one of them can change it. The result is the same in every framework: the largest
change over the clipping norm C, and each record's own contribution, parameter by
parameter, from which causes can be distinguished.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import hypot
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _canonical
from dpaudit._canonical import Scalar
from dpaudit.dpsgd.likelihood import State
from dpaudit.errors import InvalidInputError
from dpaudit.game.findings import Finding, Stage, fault, inspected, not_checked
from dpaudit.game.text.findings import sentence

__all__ = [
    "EXERCISED",
    "LEAST",
    "Alone",
    "Sensitivity",
    "packed",
    "too_large",
    "unpacked",
]

LEAST: Final = 1e-3  # of the clipping norm; float32 stays below 1e-5
EXERCISED: Final = 0.9  # of the clipping norm: above it, a record was clipped
_CLOSE: Final = 0.01  # relative tolerance between a norm and its explanation


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """The measured effect of one record on the sum, over the clipping norm.

    Attributes:
        change: The largest change of the sum when one record is removed; should be at
            most 1. None if none could be removed without changing the others' random
            numbers.
        coupling: The largest change of the other records' part; should be 0. None if
            exchanging a record always changed the others' random numbers.
        removal: The largest change when a record is really removed, not masked; should
            be at most 1. None if more than dropout is random.
        tolerance: The excess that rounding may explain.
        clipped: The share of the probed records that was large enough for clipping to
            matter, after the loss was multiplied if it could be.
        enlarged: Whether the loss was multiplied, so that records became large.
        layers: For each parameter, the largest change there by any one record.
        records: Number of probed records.
        sums: How many times the step was run.
        ran: The name of what was run.
        own_rows: Whether the step makes more or fewer gradients than there are records.
        reworked: Whether the step changes the noisy sum before it is applied.
        beside: What else the step changes, by name; it does not depend on records
            unless there is a fault about it.
        faults: The faults found.
        unseen: Why nothing was checked; None if something was.
    """

    change: float | None = 0.0
    coupling: float | None = None
    removal: float | None = None
    tolerance: float = LEAST
    clipped: float = 0.0
    enlarged: bool = True
    layers: Mapping[str, float] = field(default_factory=dict)
    records: int = 0
    sums: int = 0
    ran: str = "step"
    own_rows: bool = False
    reworked: bool = False
    beside: tuple[str, ...] = ()
    faults: tuple[Finding, ...] = ()
    unseen: Finding | None = None

    @property
    def checks(self) -> tuple[Finding, ...]:
        """The checks of the stages that records pass in a step."""
        if self.unseen is None:
            return tuple(self._checks())
        why = self.unseen
        return tuple(
            not_checked(stage, "probe.unseen", why=why.code, **why.numbers)
            for stage in (Stage.GRADIENTS, Stage.CLIPPING)
        )

    def _checks(self) -> Iterator[Finding]:
        if self.coupling is not None:
            yield inspected(Stage.GRADIENTS, "probe.exchanged", coupling=self.coupling)
        if self.change is None:
            return
        numbers: dict[str, Scalar] = {
            "records": self.records,
            "change": self.change,
            "ran": self.ran,
        }
        if self.own_rows and self.removal is not None:
            yield inspected(Stage.GRADIENTS, "probe.taken_out", **numbers)
        if self.clipped or self.faults:
            numbers |= {"clipped": self.clipped, "enlarged": self.enlarged}
            yield inspected(Stage.CLIPPING, "probe.clipped", **numbers)
            return
        none = "probe.none_reached" if self.enlarged else "probe.none_large"
        yield not_checked(Stage.CLIPPING, none, **numbers)

    def __str__(self) -> str:
        if self.unseen is not None:
            return f"Not examined: {sentence(self.unseen)}."
        sentences = [f"Fault found: {sentence(fault)}." for fault in self.faults]
        return " ".join([*sentences, *(f"{sentence(check)}." for check in self.checks)])


def packed(plain: Mapping[str, Any]) -> NDArray[np.uint8]:
    """Return a mapping in its text form, as an array for a checkpoint."""
    return np.frombuffer(_canonical.text(plain).encode(), np.uint8)


def unpacked(state: State, name: str, fields: set[str]) -> Mapping[str, Any]:
    """Return the mapping with these fields that ``packed`` stored."""
    kept = state.get(name)
    if kept is None or kept.dtype != np.uint8:
        raise InvalidInputError(f"the state does not record what was probed: {name!r}")
    return _canonical.object_of(
        _canonical.parsed(kept.tobytes().decode()), name, fields
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """The contribution of one record to the sum, when clipping matters.

    Attributes:
        by_parameter: Its norm in each parameter.
        raw: The norm of the record's gradient before clipping, as the program computes
            it; None if it is not known.
    """

    by_parameter: Sequence[float]
    raw: float | None

    @property
    def whole(self) -> float:
        """Its norm."""
        return hypot(*self.by_parameter)


def too_large(
    names: Sequence[str],
    alone: Sequence[Alone],
    clip: float,
    *,
    change: float,
    together: bool = False,
    shared: bool = False,
) -> Finding:
    """Return the fault that contributions exceed the norm, with its likely cause.

    Args:
        names: Of the parameters.
        alone: The contributions of single records.
        clip: The clipping norm.
        change: The largest change of the sum by one record, over the clipping norm.
        together: Whether removing another record changes a record's contribution.
        shared: Whether layers that share weights may have norms of their own.
    """
    cause, subject, norm = _cause(names, alone, clip, together=together, shared=shared)
    numbers = {"norm": norm} if cause == "other_norm" else {}
    return fault(
        Stage.CLIPPING,
        "probe.too_large",
        subject,
        change=change,
        cause=cause,
        **numbers,
    )


def _cause(  # noqa: PLR0911 (one for each cause)
    names: Sequence[str],
    alone: Sequence[Alone],
    clip: float,
    *,
    together: bool,
    shared: bool,
) -> tuple[str, tuple[str, ...], float]:
    """Return a cause, the affected parameters, and the norm of a record."""
    alone = [e for e in alone if (e.whole > clip if e.raw is None else e.raw > 0)]
    if not alone:
        return "not_finite", (), 0.0
    norm = alone[0].whole / clip
    if _alike([each.whole for each in alone]):
        return "other_norm", (), norm
    factors = [each.whole / each.raw for each in alone if each.raw]
    if factors and _alike(factors):
        same = _alike([factors[0], 1.0])
        return "not_clipped" if same else "one_factor", (), norm
    if together:
        return "clipped_or_divided", (), norm
    for prefix in dict.fromkeys(_prefixes(names)):
        if _alike([*_without(prefix, names, alone), clip]):
            return "norm_without", (prefix,), norm
    if not factors:
        return "no_clipping_or_norms", (), norm
    if not shared and (prefix := _unclipped(names, alone, clip)):
        return "part_not_clipped", (prefix,), norm
    parts = [max(part) for part in zip(*(e.by_parameter for e in alone), strict=True)]
    most = names[parts.index(max(parts))]
    return "shared_layer" if shared else "other_norms", (most,), norm


def _without(prefix: str, names: Sequence[str], alone: Sequence[Alone]) -> list[float]:
    """Return the norm of each contribution outside the parameters under a prefix."""
    inside = [_within(name, prefix) for name in names]
    return [
        hypot(*(x for x, i in zip(each.by_parameter, inside, strict=True) if not i))
        for each in alone
    ]


def _unclipped(names: Sequence[str], alone: Sequence[Alone], clip: float) -> str:
    """Return the prefix of the parameters that cause all excess; "" if none do."""
    most = clip * (1 + _CLOSE)
    for prefix in dict.fromkeys(_prefixes(names)):
        rest = max(_without(prefix, names, alone))
        if rest <= most < min(each.whole for each in alone):
            return prefix
    return ""


def _alike(values: Sequence[float]) -> bool:
    return max(values) - min(values) <= _CLOSE * max(values)


def _prefixes(names: Sequence[str]) -> Iterator[str]:
    """Yield the names of parameters, and of the modules that they are in."""
    for name in names:
        parts = name.split(".")
        for k in range(len(parts), 0, -1):
            yield ".".join(parts[:k])


def _within(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(f"{prefix}.")
