"""What one record was seen to change in a clipped sum, and what explains too much.

A probe runs a program's own sum of clipped gradients on real records and asks how far
one of them can move it. Whatever the framework, what is found is the same: a largest
change over the clipping norm C, and what a record puts in by itself, parameter by
parameter, in which causes can be told apart.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import hypot
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _canonical
from dpaudit._codec import decode, encode
from dpaudit.errors import InvalidInputError
from dpaudit.game.findings import Finding, Stage, Status
from dpaudit.game.text.findings import sentence
from dpaudit.training.sentences import old_look

__all__ = [
    "EXERCISED",
    "LEAST",
    "TOGETHER",
    "Alone",
    "Probes",
    "Sensitivity",
    "cause_of",
    "packed",
    "unpacked",
]

LEAST: Final = 1e-3  # of the clipping norm; float32 stays below 1e-5
EXERCISED: Final = 0.9  # of the clipping norm: such a record was clipped
TOGETHER: Final = "the batch is clipped, or divided by its size, and not each record"
_STATE: Final = "probes"
_CLOSE: Final = 0.01  # relative, of a norm to what explains it


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """What one record was seen to change, over the clipping norm.

    Attributes:
        change: The largest change of the sum when one record leaves, at most 1; None
            if none could leave, as the others' random numbers would have moved.
        coupling: The largest change of the other records' part; 0. None if exchanging
            a record always moved the others' random numbers, so that it cannot be told.
        removal: The largest change when a record is really taken out, at most 1; None
            if more than dropout is random, so that it cannot be told.
        tolerance: How much more rounding may explain.
        clipped: The share of the probed records that was large enough for clipping to
            matter, once the loss was multiplied if it could be.
        enlarged: Whether the loss was multiplied, so that records became large.
        layers: For each parameter, the largest change there of any one record.
        records: How many records were probed.
        sums: How many times the step was run.
        ran: What was run.
        beside: What else the step changes, by name; records decide none of it unless a
            fault says so.
        faults: What is wrong.
        unseen: Why nothing can be said; "" if something can.
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
    beside: tuple[str, ...] = ()
    faults: tuple[Finding, ...] = ()
    unseen: str = ""

    def looks(self) -> tuple[Finding, ...]:
        """Return what it says of the roads that it went."""
        if self.unseen:
            return ()
        return tuple(self._looks())

    def _looks(self) -> Iterator[Finding]:
        if self.coupling is not None:
            alone = (
                f"exchanging one changes what the others put in by {self.coupling:.2g} "
                "of the clipping norm"
            )
            yield old_look(road=Stage.GRADIENTS, how=Status.INSPECTED, said=alone)
        if self.change is not None:
            yield self._look_at_clipping()

    def _look_at_clipping(self) -> Finding:
        if self.enlarged and not (self.clipped or self.faults):
            lost = (
                f"of {self.records} records none reached the clipping norm, however "
                f"large the loss was made (at most {self.change:.4g} C): records are "
                "cut to less, or lost before the sum"
            )
            return old_look(road=Stage.CLIPPING, how=Status.NOT_CHECKED, said=lost)
        if not (self.clipped or self.faults):
            small = (
                f"of {self.records} records that were probed none was large enough to "
                f"be clipped; {self.ran}(batch, scale=...) would look at it, or larger "
                "records"
            )
            return old_look(road=Stage.CLIPPING, how=Status.NOT_CHECKED, said=small)
        seen = (
            f"{self.records} records through the user's own {self.ran}, without noise: "
            f"one changes the sum by at most {self.change:.4g} C, the clipping norm"
        )
        large = "made large enough" if self.enlarged else "large enough"
        cut = f"{self.clipped:.0%} of them {large} to be clipped"
        return old_look(
            road=Stage.CLIPPING, how=Status.INSPECTED, said=f"{seen}; {cut}"
        )

    def __str__(self) -> str:
        if self.unseen:
            return f"Not examined: {self.unseen}."
        found = [f"Fault found: {sentence(fault)}." for fault in self.faults]
        return " ".join([*found, *(f"{sentence(look)}." for look in self.looks())])


@final
class Probes:
    """What the probes of one training saw, from checkpoint to checkpoint."""

    def __init__(self) -> None:
        self.looks: list[Finding] = []
        self.faults: list[Finding] = []

    def add(self, found: Sensitivity) -> Sensitivity:
        """Keep what a probe saw, or why it could not."""
        self.looks += found.looks()
        self.faults += [fault for fault in found.faults if fault not in self.faults]
        if found.unseen:
            said = f"a probe could not look at it: {found.unseen}"
            for road in (Stage.GRADIENTS, Stage.CLIPPING):
                self.looks.append(
                    old_look(road=road, how=Status.NOT_CHECKED, said=said)
                )
        return found

    def plain(self) -> dict[str, Any]:
        """Return what was seen, as JSON has it."""
        return {"looks": encode(self.looks), "faults": encode(self.faults)}

    def take_up(self, plain: Mapping[str, Any]) -> None:
        """Go on from what ``plain`` returned."""
        self.looks = list(decode(tuple[Finding, ...], plain["looks"], "looks"))
        self.faults = list(decode(tuple[Finding, ...], plain["faults"], "faults"))

    def saved(self) -> dict[str, NDArray[np.uint8]]:
        """Return what was seen, as an array."""
        return {_STATE: packed(self.plain())}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what ``saved`` returned."""
        self.take_up(unpacked(state, _STATE, {"looks", "faults"}))


def packed(plain: Mapping[str, Any]) -> NDArray[np.uint8]:
    """Return what is kept in words, as an array of a checkpoint."""
    return np.frombuffer(_canonical.text(plain).encode(), np.uint8)


def unpacked(
    state: Mapping[str, NDArray[Any]], name: str, fields: set[str]
) -> Mapping[str, Any]:
    """Return what ``packed`` made of an object with these fields."""
    kept = state.get(name)
    if kept is None or kept.dtype != np.uint8:
        raise InvalidInputError(f"the state does not say what was looked at: {name!r}")
    return _canonical.object_of(
        _canonical.parsed(kept.tobytes().decode()), name, fields
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """What one record puts into the sum by itself, once clipping matters.

    Attributes:
        by_parameter: Its norm in each parameter.
        raw: The norm of its gradient before clipping, as the program has it; None if
            that is not known.
    """

    by_parameter: Sequence[float]
    raw: float | None

    @property
    def whole(self) -> float:
        """Its norm."""
        return hypot(*self.by_parameter)


def cause_of(
    names: Sequence[str],
    alone: Sequence[Alone],
    clip: float,
    *,
    together: bool = False,
    perhaps: str = "",
) -> str:
    """Return what explains that records put in more than the norm.

    Args:
        names: Of the parameters.
        alone: What records put in by themselves.
        clip: The clipping norm.
        together: Whether what a record puts in is another once a second has left.
        perhaps: What may be behind norms that are not those of the gradients.
    """
    alone = [e for e in alone if (e.whole > clip if e.raw is None else e.raw > 0)]
    if not alone:
        return "gradients that are not finite once they are large"
    if _alike([each.whole for each in alone]):
        return f"clipping to {alone[0].whole / clip:.4g} C instead of C"
    factors = [each.whole / each.raw for each in alone if each.raw]
    if factors and _alike(factors):
        return (
            "no clipping of records"
            if _alike([factors[0], 1.0])
            else "one factor for all records: the batch is clipped, and not each record"
        )
    if together:
        return TOGETHER
    for prefix in dict.fromkeys(_prefixes(names)):
        if _alike([*_without(prefix, names, alone), clip]):
            return f"norms that are computed without {prefix!r}"
    parts = [max(part) for part in zip(*(e.by_parameter for e in alone), strict=True)]
    most = f"most of all in {names[parts.index(max(parts))]!r}{perhaps}"
    wrong = "norms that are not those of the gradients"
    if not factors:
        wrong = f"no clipping of records, or {wrong}"
    else:
        wrong = (
            "" if perhaps else _unclipped(names, alone, clip)
        ) or f"{wrong}, {most}"
    return wrong


def _without(prefix: str, names: Sequence[str], alone: Sequence[Alone]) -> list[float]:
    """Return the norm of each record's part outside of some parameters."""
    inside = [_within(name, prefix) for name in names]
    return [
        hypot(*(x for x, i in zip(each.by_parameter, inside, strict=True) if not i))
        for each in alone
    ]


def _unclipped(names: Sequence[str], alone: Sequence[Alone], clip: float) -> str:
    """Return which parameters all that is above the norm is in, if there are any."""
    most = clip * (1 + _CLOSE)
    for prefix in dict.fromkeys(_prefixes(names)):
        rest = max(_without(prefix, names, alone))
        if rest <= most < min(each.whole for each in alone):
            return f"{prefix!r} is not clipped"
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
