"""A sweep run, or resumed, with a progress bar: what these scripts share."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpaudit.engines.local import LocalEngine
from dpaudit.engines.store import Store
from dpaudit.engines.sweep import Sweep, run
from dpaudit.reporting.live import watched


@contextmanager
def filled(planned: Sweep, path: Path, *, workers: int, doing: str) -> Iterator[Store]:
    """Run what the store lacks, and yield it."""
    with Store(path) as store:
        with watched(doing) as progress:
            engine = LocalEngine(workers=workers)
            found = run(planned, engine=engine, store=store, progress=progress)
        if found.failed:
            raise SystemExit(
                f"{found.failed} trials raised; `dpaudit sweep status {path}` shows why"
            )
        yield store
