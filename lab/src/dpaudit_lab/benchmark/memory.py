"""How much memory something takes: by how much it raises a process's largest memory.

It is measured in a process of its own. First everything is made ready there, with all
that is imported and the input; then the largest resident memory of the process is set
back to what it holds now, and read again when the work is done (``VmHWM`` of Linux).
Elsewhere it cannot be set back, and what making ready took at its peak is not counted.
"""

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from dpaudit.engines.engine import ONE_THREAD
from dpaudit.errors import MissingExtraError

__all__ = ["growth"]

T = TypeVar("T")

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")


def growth(ready: Callable[[], T], work: Callable[[T], object]) -> float:
    """Return by how many MiB some work raises the largest memory of a fresh process.

    Args:
        ready: Imports what is needed and returns the input.
        work: What is measured.
    """
    try:
        import loky  # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise MissingExtraError.of(
            "memory is measured in processes of loky", "sweep"
        ) from error

    pool = loky.ProcessPoolExecutor(max_workers=1, env=dict(ONE_THREAD))
    try:
        return float(pool.submit(_growth_here, ready, work).result())
    finally:
        pool.shutdown(wait=True, kill_workers=True)


def _growth_here(ready: Callable[[], T], work: Callable[[T], object]) -> float:
    prepared = ready()
    gc.collect()
    if _RESET.exists():
        _RESET.write_text("5", encoding="ascii")
    before = _peak()
    work(prepared)
    return _peak() - before


def _peak() -> float:
    """Return the largest resident memory of this process, in MiB."""
    if _STATUS.exists():
        for line in _STATUS.read_text("ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 2**10
    import resource  # noqa: PLC0415 (not everywhere)

    # In kB on Linux, in bytes on macOS.
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
