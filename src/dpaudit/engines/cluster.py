"""Runs tasks on a Ray cluster: an existing one, or one started for this process.

joblib's Ray backend does not stream results, so the wait loop is written here. As in
the local engine at most two tasks per worker are running or not yet consumed. Tasks
lost with a dead worker are run again, unless they were running in too many deaths.
Tasks whose results are no longer wanted run to their end: cancelling them can crash the
process with Ray (seen with 2.60: "Tried to complete task that was not pending").

Ray connects a process to one cluster at a time. If the process is already connected,
that cluster is used; otherwise the first ``map`` connects, and the process stays
connected until it ends. If the node through which this process is connected dies, all
running tasks are lost: the process reconnects, to the same address or to a new cluster
of its own, and continues. This only works for tasks and results of less than 100 kB:
Ray keeps larger ones on the node, and ends a process that requests them.
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
from dpaudit.engines.engine import ONE_THREAD, Try, again
from dpaudit.errors import MissingExtraError, UnreachableError

try:
    import ray
    from ray import exceptions as ray_errors
except ImportError as error:
    raise MissingExtraError.of("this engine runs its trials with Ray", "ray") from error

__all__ = ["RayEngine"]

T = TypeVar("T")
R = TypeVar("R")

_STORE_BYTES = 2**28  # results are small; Ray would reserve a third of the memory
_KNOCK_SECONDS = 5.0
_PATIENCE_SECONDS = 60.0  # without a first result, until a warning
_WORKER_LOST = (
    ray_errors.WorkerCrashedError,
    ray_errors.NodeDiedError,
    ray_errors.OutOfMemoryError,
    ray_errors.ObjectLostError,
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RayEngine:
    """Runs tasks on a Ray cluster; what they import must be installed on its nodes.

    Attributes:
        workers: Tasks that run at once; None for as many as the cluster has CPUs.
        address: The address of an existing cluster, as for ``ray.init`` ("auto" for
            one on this machine); None for a new one on this machine.
    """

    workers: int | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        if self.workers is not None:
            _validate.whole_number("workers", self.workers, least=1)

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """Yield the function's results as they complete; see ``Engine``."""
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
        """Yield results until all are done or the node is lost; return lost tasks."""
        remote: Any = ray.remote(**_options())(_call)
        most = self._most()
        under_way: dict[Any, Try[T]] = {}
        repeated: list[Try[T]] = []
        any_done = False
        while True:
            if repeated:
                tasks, repeated = chain(repeated, tasks), []
            for each in islice(tasks, most - len(under_way)):
                under_way[remote.remote(function, each.task)] = each
            if not under_way:
                return []
            done = _next_done(list(under_way), patient=any_done)
            try:
                result = ray.get(done)
            except ray_errors.RayTaskError as error:
                raise error.cause from error
            except ray_errors.LocalRayletDiedError:
                return again(under_way.values())
            except _WORKER_LOST:
                repeated = again([under_way.pop(done)])
            except ray_errors.RayError as error:
                raise UnreachableError(
                    "Ray cannot run a task; what tasks import must be installed on "
                    f"every node: {error}"
                ) from error
            else:
                any_done = True
                del under_way[done]
                yield result

    def _most(self) -> int:
        """Return how many tasks may be submitted: twice the CPUs, or fewer ``workers``.

        A cluster with more CPUs than wanted workers would also run waiting tasks.
        """
        resources = ray.cluster_resources()  # type: ignore[no-untyped-call]
        processors = int(resources.get("CPU", 1))
        if self.workers is not None and self.workers < processors:
            return self.workers
        return 2 * max(1, processors)

    def _connect(self) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry
        environment = dict(ONE_THREAD)
        settings: dict[str, Any] = {"address": self.address}
        if self.address is None:
            # Workers on this machine import from the same paths as this process.
            environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
            settings = {
                "address": "local",  # not an existing cluster that Ray may find
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


def _options() -> dict[str, Any]:
    """Return the options of tasks; workers limited to one thread are not replaced.

    Ray starts new workers for tasks whose environment differs from the connection's.
    """
    options: dict[str, Any] = {"num_cpus": 1, "max_retries": 0}
    connected = ray.get_runtime_context().runtime_env.get("env_vars", {})
    if not ONE_THREAD.items() <= connected.items():
        options["runtime_env"] = {"env_vars": dict(ONE_THREAD)}
    return options


def _next_done(under_way: list[Any], *, patient: bool) -> Any:  # noqa: ANN401 (Ray's)
    """Return a task that is done; warn if not patient and it takes long."""
    done, _ = ray.wait(under_way, timeout=None if patient else _PATIENCE_SECONDS)
    if not done:
        logging.getLogger("dpaudit").warning(
            "no trial has ended in %.0f s; has the Ray cluster free CPUs? (ray status)",
            _PATIENCE_SECONDS,
        )
        done, _ = ray.wait(under_way)
    return done[0]


def _knock(address: str | None) -> None:
    """Raise at once if an address does not answer; Ray would try for minutes."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        place = (host.strip("[]"), int(port))
        socket.create_connection(place, timeout=_KNOCK_SECONDS).close()


def _call(function: Callable[[T], R], task: T) -> R:
    return function(task)
