"""A sweep run, or resumed, with a progress bar: what these scripts share."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from dpaudit.engines.local import LocalEngine
from dpaudit.engines.store import Store
from dpaudit.engines.sweep import Sweep, run


@contextmanager
def filled(planned: Sweep, path: Path, *, workers: int, doing: str) -> Iterator[Store]:
    """Run what the store lacks, and yield it."""
    with Store(path) as store:
        with Progress(console=Console(stderr=True)) as bar:
            task = bar.add_task(doing)
            run(
                planned,
                engine=LocalEngine(workers=workers),
                store=store,
                progress=lambda d, t: bar.update(task, completed=d, total=t),
            )
        yield store
