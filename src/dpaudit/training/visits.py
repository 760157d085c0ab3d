"""Who takes part in which round of federated training, by name.

Users, or clients, are known by names and not by numbers, and how many there are is
often not known. A number is given to each name as it first comes, so that all that is
tested of records in batches (``batch_sampling``) is tested of users in cohorts, but for
the cohorts' sizes, which are often fixed. Canary users that the training's own sampler
picks have numbers, and their number is known; they are tested by themselves.
"""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Final, final

import numpy as np

from dpaudit.dpsgd.likelihood import State
from dpaudit.game.findings import Finding
from dpaudit.training.batch_sampling import BatchSampling

__all__ = ["Visits"]

_NAMES: Final = "visits"
_PICKED: Final = "picked"
_BYTES: Final = 8  # of a name's digest


@final
class Visits:
    """Notes who takes part, round by round.

    Args:
        users: How many there are without canaries; None if that is not known.
        canaries: How many canary users the training's own sampler picks from.

    Example:
        >>> visits = Visits()
        >>> for cohort in ("ab", "ca"):
        ...     for user in cohort:
        ...         visits.came(user)
        ...     visits.end()
        >>> check, fault = visits.findings(1.0, most=1)
        >>> fault.code
        'accounting.participations'
    """

    def __init__(self, users: int | None = None, *, canaries: int = 0) -> None:
        self._users = BatchSampling(users)
        self._canaries = BatchSampling(canaries) if canaries else None
        self._numbers: dict[int, int] = {}  # by a digest of the name
        self._now: list[int] = []
        self._picked: list[int] = []

    def begin(self) -> None:
        """Begin a round anew."""
        self._now, self._picked = [], []

    def came(self, user: object) -> None:
        """Take note of a user in the cohort; one without a name is left out."""
        if user is not None:
            name = blake2b(repr(user).encode(), digest_size=_BYTES).digest()
            number = int.from_bytes(name, "big")
            self._now.append(self._numbers.setdefault(number, len(self._numbers)))

    def picked(self, canary: int) -> None:
        """Take note of a canary user in the cohort."""
        self._picked.append(canary)

    def end(self) -> None:
        """End a round."""
        self._users.add(np.array(self._now, np.int64))
        if self._canaries is not None:
            self._canaries.add(np.array(self._picked, np.int64))
        self.begin()

    def findings(
        self, rate: float, *, separation: int = 1, most: int | None = None
    ) -> Iterator[Finding]:
        """Yield what was seen, and what is wrong with it.

        Args:
            rate: At which users take part, as the accountant was told.
            separation: Rounds from one visit of a user to the next at least; 1 for any.
            most: In how many rounds a user may take part; None for any number.
        """
        both = self._canaries is not None and self._users.records is not None
        share = 0.5 if both else 1.0
        if self._canaries is not None:
            yield from self._canaries.found(rate, steady=False, share=share)[1]
        if self._users.most:  # they have names
            checks, faults = self._users.found(
                rate, steady=False, separation=separation, most=most, share=share
            )
            if rate == 1 or self._users.records is not None:
                yield from checks  # or it is not known how often they should come
            yield from faults

    def saved(self) -> State:
        """Return what was noted, as arrays that ``restore`` takes."""
        names = np.fromiter(self._numbers, np.uint64, len(self._numbers))
        picked = {} if self._canaries is None else self._canaries.saved(_PICKED)
        return {_NAMES: names, **self._users.saved(), **picked}

    def restore(self, state: State) -> None:
        """Go on from what ``saved`` returned."""
        names = np.asarray(state.get(_NAMES, ()), np.uint64)
        self._numbers = {name: k for k, name in enumerate(names.tolist())}
        self._users.restore(state)
        if self._canaries is not None:
            self._canaries.restore(state, _PICKED)
        self.begin()
