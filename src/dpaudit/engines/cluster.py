"""Tasks on a Ray cluster: one that exists, or one made for this process.

joblib's Ray backend has no streaming results, so the wait loop is written here. As in
the local engine no more than two tasks per worker are under way or not yet consumed,
and a task whose worker died is run again, unless it died with too many of them. Tasks
that nobody waits for any more run to their end: taking them back can bring the process
down with Ray (seen with 2.60: "Tried to complete task that was not pending").

Ray connects a process to one cluster at a time. A process that is connected already
stays so, and its cluster is used; otherwise the first ``map`` connects, and the process
stays connected for the next one, until it ends. When the node that this process is
connected through dies, all that was under way is lost: the process connects anew, to
the same address or to a new cluster of its own, and goes on.
"""

import logging
import os
import socket
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, TypeVar, final

from dpaudit import _validate
from dpaudit.engines.tries import ONE_THREAD, Try, again
from dpaudit.errors import MissingExtraError, UnreachableError

try:
    import ray
    from ray import exceptions as ray_errors
except ImportError as error:
    raise MissingExtraError(
        "this engine runs its trials with Ray: pip install 'dpaudit[ray]'"
    ) from error

__all__ = ["RayEngine"]

T = TypeVar("T")
R = TypeVar("R")

_STORE_BYTES = 2**28  # results are small; Ray would reserve a third of the memory
_KNOCK_SECONDS = 5.0
_NODE_LOST = (ray_errors.LocalRayletDiedError, ray_errors.RaySystemError)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RayEngine:
    """Runs tasks on a Ray cluster; what they import must be installed on its nodes.

    Attributes:
        workers: Tasks that run at once; None for as many as the cluster has CPUs.
        address: Of a cluster that exists, as ``ray.init`` takes it ("auto" for one on
            this machine); None for a new one on this machine.
    """

    workers: int | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        if self.workers is not None:
            _validate.whole_number("workers", self.workers, least=1)

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """Yield the function's results as they come; see ``Engine``."""
        waiting = (Try(task) for task in tasks)
        lost: list[Try[T]] = []
        while True:
            if not ray.is_initialized():
                self._connect()
            lost = yield from self._while_connected(function, chain(lost, waiting))
            if not lost:
                return
            ray.shutdown()

    def _while_connected(
        self, function: Callable[[T], R], tasks: Iterator[Try[T]]
    ) -> Generator[R, None, list[Try[T]]]:
        """Yield results until all is done or the node is lost; return what was lost."""
        remote: Any = ray.remote(num_cpus=1, max_retries=0)(_call)
        called = ray.put(function)
        most = 2 * (self.workers or _processors())
        under_way: dict[Any, Try[T]] = {}
        repeated: list[Try[T]] = []
        while True:
            while repeated and len(under_way) < most:
                each = repeated.pop()
                under_way[remote.remote(called, each.task)] = each
            for each in islice(tasks, most - len(under_way)):
                under_way[remote.remote(called, each.task)] = each
            if not under_way:
                return []
            (done,), _ = ray.wait(list(under_way), num_returns=1)
            try:
                found = ray.get(done)
            except ray_errors.RayTaskError as error:
                raise error.cause from error
            except _NODE_LOST:
                return [again(each) for each in [*under_way.values(), *repeated]]
            except ray_errors.RayError:  # its worker, or its worker's node, died
                repeated.append(again(under_way.pop(done)))
                continue
            del under_way[done]
            yield found

    def _connect(self) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # tells nobody
        environment = dict(ONE_THREAD)
        settings: dict[str, Any] = {"address": self.address}
        if self.address is None:
            # On this machine workers find what this process finds.
            environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
            settings = {
                "address": "local",  # not whichever cluster Ray finds here
                "num_cpus": self.workers,
                "include_dashboard": False,
                "object_store_memory": _STORE_BYTES,
            }
        try:
            _knock(self.address)
            ray.init(
                **settings,
                runtime_env={"env_vars": environment},
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        except (OSError, RuntimeError, ValueError) as error:
            where = "on this machine" if self.address is None else f"at {self.address}"
            raise UnreachableError(
                f"no Ray cluster could be reached {where}: {error}"
            ) from error


def _knock(address: str | None) -> None:
    """Raise at once if nobody answers at an address; Ray would try for minutes."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), timeout=_KNOCK_SECONDS).close()


def _call(function: Callable[[T], R], task: T) -> R:
    return function(task)


def _processors() -> int:
    return int(ray.cluster_resources().get("CPU", 1))  # type: ignore[no-untyped-call]
