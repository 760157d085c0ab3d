"""Tasks that are tried again when a worker dies: what the engines share."""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from dpaudit.errors import WorkerDiedError

__all__ = ["DEATHS", "ONE_THREAD", "Try", "again"]

T = TypeVar("T")

DEATHS: Final = 10  # of workers, that a task is forgiven

# For speed, and so that floating-point sums do not depend on the number of workers.
ONE_THREAD: Final = MappingProxyType(
    dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
)


@dataclass(frozen=True, slots=True)
class Try(Generic[T]):
    """A task, and in how many deaths of a worker it was under way."""

    task: T
    deaths: int = 0


def again(lost: Try[T]) -> Try[T]:
    """Return the next try of a task that was under way when a worker died.

    Raises:
        WorkerDiedError: It was under way in so many deaths that it is taken to be
            their cause.
    """
    if lost.deaths >= DEATHS:
        raise WorkerDiedError(
            f"workers died {lost.deaths + 1} times with the same task under way "
            f"(killed, or out of memory?): {lost.task!r}"
        )
    return Try(lost.task, lost.deaths + 1)
