"""Tasks on the processes of one machine, through loky (joblib's engine).

No more than two tasks per worker are ever under way or finished and not yet consumed:
joblib's own ``generator_unordered`` goes on pulling tasks while nobody consumes the
results, so the wait loop is written here. Workers are limited to one thread each, for
speed and so that floating-point sums come out the same for any number of workers.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar, final

from dpaudit import _validate
from dpaudit.errors import MissingExtraError

try:
    import loky
except ImportError as error:
    raise MissingExtraError(
        "sweeps run their trials with loky: pip install 'dpaudit[sweep]'"
    ) from error

__all__ = ["LocalEngine"]

T = TypeVar("T")
R = TypeVar("R")

_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"
)

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
        """Yield the function's results as they come; see ``Engine``."""
        # Idle workers end by themselves, so that a killed caller leaves none behind.
        pool = loky.ProcessPoolExecutor(
            max_workers=self.workers, timeout=_IDLE_SECONDS, env=_ONE_THREAD
        )
        waiting = iter(tasks)
        under_way: set[Future[R]] = set()
        try:
            while True:
                free = 2 * self.workers - len(under_way)
                under_way |= {pool.submit(function, t) for t in islice(waiting, free)}
                if not under_way:
                    return
                done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            pool.shutdown(wait=True, kill_workers=True)
