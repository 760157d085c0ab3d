"""The ledger of a training: every road from a record to the model, and who looked.

A record reaches a model by more roads than the noise. It is sampled, its gradient is
computed, clipped and added up, noise is added, steps are counted; and there are other
ways out, such as a buffer that no noise ever touched. An audit that looked at one road
says nothing of the others. So a training's result holds this ledger: each road was
*audited*, with the smallest fault that would have been caught, or *probed*, with what
was seen, or *not looked at*, with the line of code that would.

Three of them no claim can do without: batch sampling, per-record gradients, clipping.
Where one of these was not checked, for whatever reason, a clean verdict would reassure
of something that nobody looked at, so the audit is inconclusive. Whoever opens it may
accept that beforehand, by name; then the ledger says *accepted by the user*.

A *fault found* is no test of the claim: the noise of step 51 being that of step 1 is a
fault whatever epsilon was claimed. It names itself, says what was measured beside what
was claimed, and its likeliest cause. Faults that chance could feign share one budget.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, final

from dpaudit import _validate
from dpaudit._codec import Words
from dpaudit.errors import InvalidInputError

__all__ = ["BUDGET", "Fault", "How", "Ledger", "Look", "Road", "accepted_roads"]

BUDGET: Final = 1e-4  # chance that a training without a fault is said to have one


@final
class Road(StrEnum):
    """A way from a record to the model, in the order in which a record takes them."""

    SAMPLING = "sampling of records"
    GRADIENTS = "per-record gradients"
    CLIPPING = "clipping"
    ADDING = "adding up over micro-batches and ranks"
    NOISE = "scale of the noise"
    INDEPENDENCE = "independence of the noise"
    ACCOUNTING = "steps and rate accounted"
    OTHER_WAYS = "other ways out"

    @property
    def faults(self) -> str:
        """What goes wrong there, as people do it."""
        return _FAULTS[self]


_FAULTS: Final = {
    Road.SAMPLING: "records that come more often than was accounted for, batches of a "
    "fixed size, or a sampler that is seeded anew",
    Road.GRADIENTS: "a gradient that depends on other records of the batch (mixup, "
    "statistics of a batch, a loss over all)",
    Road.CLIPPING: "records that are not clipped, or by a norm that leaves out a layer",
    Road.ADDING: "micro-batches that are clipped once added up, or a mean told as a "
    "sum",
    Road.NOISE: "noise that is too small, or left out of a parameter",
    Road.INDEPENDENCE: "noise that is repeated on resume, in each epoch, or over a row",
    Road.ACCOUNTING: "steps or a rate that the accountant was not told",
    Road.OTHER_WAYS: "a buffer, a weight or a second optimizer that records change "
    "without noise",
}


@final
class How(StrEnum):
    """How a road was looked at."""

    AUDITED = "audited"
    PROBED = "probed"
    NOT_LOOKED_AT = "not looked at"
    ACCEPTED = "not checked, accepted by the user"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One road, and how it was looked at.

    Attributes:
        road: The road.
        how: Whether and how it was looked at.
        said: If audited, the smallest fault that would have been caught; if probed,
            what was seen; if not looked at, what would look at it.
    """

    road: Road
    how: How
    said: Words


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that is wrong, whatever the claim.

    Attributes:
        road: Where.
        said: What is wrong, as a sentence without its full stop.
        measured: What was measured.
        claimed: What it should have been.
        cause: What most likely is behind it.
        chance: The largest chance of it in a training without a fault, over all that
            was tested; 0 if no chance was involved.

    Example:
        >>> print(Fault(
        ...     road=Road.INDEPENDENCE, said="the noise of step 51 is that of step 1",
        ...     measured="correlation 1.000", claimed="independent",
        ...     cause="the generator went back to an earlier state on resume",
        ... ))
        the noise of step 51 is that of step 1 (correlation 1.000, where independent \
is claimed); likely the generator went back to an earlier state on resume
    """

    road: Road
    said: Words
    measured: Words
    claimed: Words
    cause: Words
    chance: float = 0.0

    def __post_init__(self) -> None:
        _validate.probability("chance", self.chance)

    def __str__(self) -> str:
        return (
            f"{self.said} ({self.measured}, where {self.claimed} is claimed); likely "
            f"{self.cause}"
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """All roads of one training.

    Attributes:
        looks: One for each road, in order.
        faults: What was found to be wrong, the surest first.
        budget: The chance that a training without a fault is said to have one.

    Example:
        >>> ledger = Ledger.of([Look(road=Road.NOISE, how=How.AUDITED, said="all")])
        >>> ledger.roads(How.AUDITED)
        ('scale of the noise',)
        >>> len(ledger.looks), ledger.looks[0].how.value
        (8, 'not looked at')
        >>> ledger.unchecked()[:60]
        'not checked: sampling of records and per-record gradients an'
    """

    looks: tuple[Look, ...]
    faults: tuple[Fault, ...] = ()
    budget: float = BUDGET

    def __post_init__(self) -> None:
        if tuple(look.road for look in self.looks) != tuple(Road):
            raise InvalidInputError("a ledger has one look at each road, in order")
        _validate.probability("budget", self.budget)

    @classmethod
    def of(
        cls,
        looks: Iterable[Look],
        faults: Iterable[Fault] = (),
        *,
        accepted: Collection[Road] = (),
        instead: str = "nothing in this kind of audit looks at it",
    ) -> "Ledger":
        """Return the ledger of some looks; of two at one road the stronger counts.

        What both say is kept. A road that nobody looked at is entered as such.

        Args:
            looks: In any order.
            faults: In any order.
            accepted: Roads that need not be looked at, as the user said beforehand.
            instead: Said of roads that are not among them.
        """
        found = {
            road: Look(road=road, how=How.NOT_LOOKED_AT, said=instead) for road in Road
        }
        for look in looks:
            found[look.road] = _both(found[look.road], look)
        for road in accepted:
            if found[road].how is How.NOT_LOOKED_AT:
                found[road] = replace(found[road], how=How.ACCEPTED)
        return cls(
            looks=tuple(found.values()),
            faults=tuple(sorted(faults, key=lambda fault: fault.chance)),
        )

    def unchecked(self) -> str:
        """Return what no claim can do without and was not checked; "" if all was."""
        missing: dict[str, list[str]] = {}  # by what would look
        names = []
        for name, road in _NEEDED.items():
            look = self.looks[list(Road).index(road)]
            if look.how is How.NOT_LOOKED_AT:
                missing.setdefault(look.said, []).append(str(road))
                names.append(f'"{name}"')
        if not missing:
            return ""
        said = "; ".join(
            f"{' and '.join(roads)} ({why})" for why, roads in missing.items()
        )
        listed = ", ".join(names) + "," * (len(names) == 1)
        return (
            f"not checked: {said}. To do without, open the audit with "
            f"unchecked=({listed})"
        )

    def roads(self, how: How) -> tuple[str, ...]:
        """Return the names of the roads that were looked at in this way."""
        return tuple(str(look.road) for look in self.looks if look.how is how)


_NEEDED: Final = {
    "sampling": Road.SAMPLING,
    "gradients": Road.GRADIENTS,
    "clipping": Road.CLIPPING,
}


def accepted_roads(unchecked: Collection[str]) -> tuple[Road, ...]:
    """Return the roads that a user does without, from their names.

    Example:
        >>> accepted_roads(("clipping",))
        (<Road.CLIPPING: 'clipping'>,)
    """
    names = ", ".join(f'"{name}"' for name in _NEEDED)
    if isinstance(unchecked, str) or {*unchecked} - {*_NEEDED}:
        raise InvalidInputError(
            f"unchecked must hold names among {names}, got unchecked={unchecked!r}"
        )
    return tuple(road for name, road in _NEEDED.items() if name in unchecked)


def _both(first: Look, second: Look) -> Look:
    """Return one look that says what two at one road say."""
    if first.how is How.NOT_LOOKED_AT:
        return second
    if second.how is How.NOT_LOOKED_AT:
        return first
    stronger, weaker = sorted((first, second), key=lambda look: look.how)
    return Look(
        road=first.road, how=stronger.how, said=f"{stronger.said}; {weaker.said}"
    )
