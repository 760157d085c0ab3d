"""Canary users, and data sets that put them into cohorts.

A canary user holds some real user's data, so that training can treat it like any user:
it is trained on, counted and weighted. The resulting update is discarded in
``postprocessors`` and replaced by the canary's. Whether its coin includes it or not, it
participates in the same rounds, so that no count, weight or message depends on a coin.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol, TypeAlias, final

from numpy.typing import NDArray
from pfl.data.dataset import AbstractDataset
from pfl.data.federated_dataset import FederatedDatasetBase

__all__ = [
    "CanaryUser",
    "RoundEvents",
    "UsersWithCanaries",
    "canary_of",
    "user_id",
    "with_canaries",
]

Seeded: TypeAlias = tuple[AbstractDataset, int]

_NAME: Final = "dpaudit-canary-"


def user_id(canary: int) -> str:
    """Return the user id of a canary.

    Example:
        >>> user_id(7)
        'dpaudit-canary-7'
    """
    return f"{_NAME}{canary}"


def canary_of(user: object) -> int | None:
    """Return the canary with a user id; None for any other user.

    Example:
        >>> canary_of("dpaudit-canary-7"), canary_of("somebody"), canary_of(None)
        (7, None, None)
    """
    if isinstance(user, str) and user.startswith(_NAME):
        return int(user.removeprefix(_NAME))
    return None


@final
class CanaryUser(AbstractDataset):
    """A user's data under a canary's user id.

    Args:
        data: Any user's data set.
        canary: The canary's number.
    """

    def __init__(self, data: AbstractDataset, canary: int) -> None:
        self._data, self._canary = data, canary

    @property
    def raw_data(self) -> Any:  # noqa: ANN401 (what the data are)
        """The underlying data set's."""
        return self._data.raw_data

    @property
    def user_id(self) -> str:
        """The canary's user id."""
        return user_id(self._canary)

    @property
    def metadata(self) -> dict[str, Any]:
        """The underlying data set's."""
        found: dict[str, Any] = self._data.metadata
        return found

    @property
    def train_kwargs(self) -> dict[str, Any]:
        """The underlying data set's."""
        found: dict[str, Any] = self._data.train_kwargs
        return found

    @property
    def eval_kwargs(self) -> dict[str, Any]:
        """The underlying data set's."""
        found: dict[str, Any] = self._data.eval_kwargs
        return found

    def __len__(self) -> int:
        return len(self._data)

    def iter(self, batch_size: int | None) -> Iterable[Any]:
        """Iterate over the underlying data set."""
        found: Iterable[Any] = self._data.iter(batch_size)
        return found

    def split(
        self,
        fraction: float | None = None,
        min_train_size: int | None = None,
        min_val_size: int | None = None,
    ) -> tuple["CanaryUser", "CanaryUser"]:
        """Return the two parts of the data under the canary's user id."""
        parts = self._data.split(fraction, min_train_size, min_val_size)
        left, right = (CanaryUser(part, self._canary) for part in parts)
        return left, right

    def get_worker_partition(self) -> "CanaryUser":
        """Return this worker's part of the data."""
        return CanaryUser(self._data.get_worker_partition(), self._canary)


class RoundEvents(Protocol):
    """The interface of the audit that a data set uses in each round."""

    def begin(self) -> NDArray[Any]:
        """Begin a round, and return the canaries to add to its cohort."""
        ...

    def came(self, user: object) -> None:
        """Record that a user is in the cohort."""
        ...


@final
class UsersWithCanaries(FederatedDatasetBase):
    """A federated data set with canary users in its cohorts.

    Args:
        base: The data set of the real users, or of these and the canaries.
        data: The data of each canary user that is added.
        rounds: Decides which canaries are added.
    """

    def __init__(
        self, base: FederatedDatasetBase, data: AbstractDataset, rounds: RoundEvents
    ) -> None:
        super().__init__()
        self._base, self._data, self._rounds = base, data, rounds

    def __next__(self) -> Seeded:
        found: Seeded = next(self._base)
        return found

    def get_cohort(self, cohort_size: int) -> Iterator[Seeded]:
        """Yield the cohort of real users, then the canaries whose turn it is."""
        added = self._rounds.begin()
        for dataset, seed in self._base.get_cohort(cohort_size):
            self._rounds.came(dataset.user_id)
            yield dataset, seed
        for canary in added:
            user = CanaryUser(self._data, int(canary))
            self._rounds.came(user.user_id)
            yield user, self._get_seed()


def with_canaries(
    make: Callable[[Any], AbstractDataset], data: AbstractDataset
) -> Callable[[Any], AbstractDataset]:
    """Return ``make``, extended to make the data sets of canary users too."""

    def made(user: Any) -> AbstractDataset:  # noqa: ANN401 (as the sampler names them)
        canary = canary_of(user)
        return make(user) if canary is None else CanaryUser(data, canary)

    return made
