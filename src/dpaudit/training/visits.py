"""Who takes part in which round of federated training, by name.

Users, or clients, are known by names and not by numbers, and how many there are is
often not known. A number is given to each name as it first comes, so that all that is
tested of records in batches (``batch_sampling``) is tested of users in cohorts.
"""

from hashlib import blake2b
from typing import Final, final

import numpy as np

from dpaudit.dpsgd.likelihood import State
from dpaudit.training.batch_sampling import BatchSampling

__all__ = ["Visits"]

_NAMES: Final = "visits"
_BYTES: Final = 8  # of a name's digest


@final
class Visits:
    """Notes who takes part, round by round.

    Args:
        users: How many there are to come; None if that is not known.

    Attributes:
        sampling: Counts their visits.

    Example:
        >>> visits = Visits()
        >>> for cohort in ("ab", "ca"):
        ...     for user in cohort:
        ...         visits.came(user)
        ...     visits.end()
        >>> [fault.code for fault in visits.sampling.found(1.0, most=1)[1]]
        ['accounting.participations']
    """

    def __init__(self, users: int | None = None) -> None:
        self.sampling = BatchSampling(users)
        self._numbers: dict[int, int] = {}  # by a digest of the name
        self._now: list[int] = []

    def begin(self) -> None:
        """Begin a round anew."""
        self._now = []

    def came(self, user: object) -> None:
        """Take note of a user in the cohort; one without a name is left out."""
        if user is not None:
            name = blake2b(repr(user).encode(), digest_size=_BYTES).digest()
            number = int.from_bytes(name, "big")
            self._now.append(self._numbers.setdefault(number, len(self._numbers)))

    def end(self) -> None:
        """End a round."""
        self.sampling.add(np.array(self._now, np.int64))
        self._now = []

    def saved(self) -> State:
        """Return what was noted, as arrays that ``restore`` takes."""
        names = np.fromiter(self._numbers, np.uint64, len(self._numbers))
        return {_NAMES: names, **self.sampling.saved()}

    def restore(self, state: State) -> None:
        """Go on from what ``saved`` returned."""
        names = np.asarray(state.get(_NAMES, ()), np.uint64)
        self._numbers = {name: k for k, name in enumerate(names.tolist())}
        self.sampling.restore(state)
        self._now = []
