"""How many independent tasks are run: one verb, whatever does the running.

What the engines share is here too: a task is tried again when its worker dies, and
given up when workers die with it again and again.
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
        """Yield the function's results as they come.

        Tasks are taken from the iterable only as workers become free and results are
        consumed, so neither tasks nor results pile up.
        """
        ...


DEATHS: Final = 3  # of workers, that a task is forgiven

# For speed, and so that floating-point sums do not depend on the number of workers.
ONE_THREAD: Final = MappingProxyType(
    dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
)


@dataclass(frozen=True, slots=True)
class Try(Generic[T]):
    """A task, and in how many deaths of a worker it was under way."""

    task: T
    deaths: int = 0


def again(lost: Iterable[Try[T]]) -> list[Try[T]]:
    """Return the next tries of tasks that were under way when a worker died.

    Raises:
        WorkerDiedError: Some were under way in so many deaths that they may be their
            cause; the error names them.
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
