"""How many independent tasks are run: one verb, whatever does the running."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

__all__ = ["Engine"]

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
