"""The interface for running many independent tasks, whatever runs them.

Shared by the engines: a task is retried if its worker dies, and given up if workers die
with it repeatedly.
"""

import reprlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Generic, Protocol, TypeVar

from dpaudit.errors import WorkerDiedError

__all__ = [
    "DEATHS",
    "ONE_THREAD",
    "Engine",
    "Try",
    "again",
]

T = TypeVar("T")
R = TypeVar("R")


class Engine(Protocol):
    """Runs a function on many tasks, in any order, on any number of workers."""

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """Yield the function's results as they complete.

        Tasks are taken from the iterable only as workers become free and results are
        consumed, so neither tasks nor results accumulate.
        """
        ...


DEATHS: Final = 3  # of workers, after which a task is still retried

# For speed, and so that floating-point sums do not depend on the number of workers.
ONE_THREAD: Final = MappingProxyType(
    dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
)


@dataclass(frozen=True, slots=True)
class Try(Generic[T]):
    """A task, and the number of worker deaths while it was running."""

    task: T
    deaths: int = 0


def again(lost: Iterable[Try[T]]) -> list[Try[T]]:
    """Return the next tries of tasks that were running when a worker died.

    Raises:
        WorkerDiedError: Some were running in so many deaths that they may be the cause;
            the error names them.
    """
    tries = [Try(each.task, each.deaths + 1) for each in lost]
    suspects = [each.task for each in tries if each.deaths > DEATHS]
    if suspects:
        raise WorkerDiedError(
            f"workers died {DEATHS + 1} times with the same task under way (killed, or "
            f"out of memory?): {reprlib.repr(suspects[0])}",
            tasks=suspects,
        )
    return tries
