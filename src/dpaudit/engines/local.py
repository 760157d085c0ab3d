"""Runs tasks in processes on one machine, through loky (joblib's engine).

At most two tasks per worker are running or not yet consumed: joblib's own
``generator_unordered`` keeps pulling tasks even if results are not consumed, so the
wait loop is written here. Workers are limited to one thread each, for speed and so that
floating-point sums are the same for any number of workers.

If a worker dies, killed or out of memory, loky gives up all its tasks. The pool is then
rebuilt and the lost tasks are run again. Tasks that were running in too many deaths may
be the cause: they end the run with an error that names them.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import chain, islice
from typing import TypeVar, final

from dpaudit import _validate
from dpaudit.engines.engine import ONE_THREAD, Try, again
from dpaudit.errors import MissingExtraError

try:
    import loky
except ImportError as error:
    raise MissingExtraError.of("sweeps run their trials with loky", "sweep") from error

__all__ = ["LocalEngine"]

T = TypeVar("T")
R = TypeVar("R")

_IDLE_SECONDS = 60


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LocalEngine:
    """Runs tasks on ``workers`` processes of this machine.

    Example:
        >>> sorted(LocalEngine(workers=2).map(abs, [-1, -2, -3]))
        [1, 2, 3]
    """

    workers: int

    def __post_init__(self) -> None:
        _validate.whole_number("workers", self.workers, least=1)

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """Yield the function's results as they complete; see ``Engine``."""
        waiting = (Try(task) for task in tasks)
        lost: list[Try[T]] = []
        while True:
            # Deaths are rare: it is not worth keeping the rest of a pool.
            lost = yield from self._until_death(function, chain(lost, waiting))
            if not lost:
                return

    def _until_death(
        self, function: Callable[[T], R], tasks: Iterator[Try[T]]
    ) -> Generator[R, None, list[Try[T]]]:
        """Yield results until all are done or a worker dies; return lost tasks."""
        # Idle workers exit by themselves, so that a killed caller leaves none behind.
        pool = loky.ProcessPoolExecutor(
            max_workers=self.workers, timeout=_IDLE_SECONDS, env=dict(ONE_THREAD)
        )
        under_way: dict[Future[R], Try[T]] = {}
        lost: list[Try[T]] = []
        try:
            while True:
                # A broken pool accepts no more tasks, and soon gives up those it has.
                free = 0 if lost else 2 * self.workers - len(under_way)
                for each in islice(tasks, free):
                    try:
                        under_way[pool.submit(function, each.task)] = each
                    except BrokenProcessPool:
                        lost.append(each)
                        break
                if not under_way:
                    return again(lost)
                for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                    each = under_way.pop(future)
                    try:
                        yield future.result()
                    except BrokenProcessPool:
                        lost.append(each)
        finally:
            pool.shutdown(wait=True, kill_workers=True)
