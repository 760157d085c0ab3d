"""Record which users participate in which round of federated training.

Users, or clients, are identified by names, and how many there are is often unknown.
Each name is numbered when it first occurs, so that the tests of records in batches
(``batch_sampling``) apply to users in cohorts, except those of the cohorts' sizes,
which are often fixed. Canary users that are picked by the run's own sampler are
numbered, and their count is known; they are tested separately.
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
    """Records the participants of each round.

    Args:
        users: Number of users without canaries; None if it is not known.
        canaries: Number of canary users that the run's own sampler picks from.

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
        """Begin a new round; discard one that was not ended."""
        self._now, self._picked = [], []

    def came(self, user: object) -> None:
        """Add a user to the cohort; one without a name is left out."""
        if user is not None:
            name = blake2b(repr(user).encode(), digest_size=_BYTES).digest()
            number = int.from_bytes(name, "big")
            self._now.append(self._numbers.setdefault(number, len(self._numbers)))

    def picked(self, canary: int) -> None:
        """Add a canary user to the cohort."""
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
        """Yield the checks that were made, and the faults.

        Args:
            rate: The sampling rate of users accounted for.
            separation: The least number of rounds from one visit of a user to the next;
                1 if there is no such restriction.
            most: In how many rounds a user may participate; None for any number.
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
                yield from checks  # otherwise the expected frequency is unknown
            yield from faults

    def saved(self) -> State:
        """Return the state as arrays that ``restore`` takes."""
        names = np.fromiter(self._numbers, np.uint64, len(self._numbers))
        picked = {} if self._canaries is None else self._canaries.saved(_PICKED)
        return {_NAMES: names, **self._users.saved(), **picked}

    def restore(self, state: State) -> None:
        """Continue from what ``saved`` returned."""
        names = np.asarray(state.get(_NAMES, ()), np.uint64)
        self._numbers = {name: k for k, name in enumerate(names.tolist())}
        self._users.restore(state)
        if self._canaries is not None:
            self._canaries.restore(state, _PICKED)
        self.begin()
