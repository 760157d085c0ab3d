"""What these scripts share: a sweep run, or resumed, and stores of a line a row."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from dpaudit.engines.local import LocalEngine
from dpaudit_lab.sweeps.progress import watched
from dpaudit_lab.sweeps.store import Store
from dpaudit_lab.sweeps.sweep import Sweep, run


@contextmanager
def filled(planned: Sweep, path: Path, *, workers: int, doing: str) -> Iterator[Store]:
    """Run what the store lacks, and yield it."""
    with Store(path) as store:
        with watched(doing) as progress:
            engine = LocalEngine(workers=workers)
            found = run(planned, engine=engine, store=store, progress=progress)
        if found.failed:
            raise SystemExit(
                f"{found.failed} trials raised: `dpaudit-lab sweep status {path}`"
            )
        yield store


def stored(path: Path) -> int:
    """Return how many trials a store holds, while a sweep writes to it."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            (number,) = connection.execute("select count(*) from trials").fetchone()
    except sqlite3.OperationalError:
        return 0
    return int(number)


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a store that has one in each line; none if it is not there."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def add_line(path: Path, row: dict[str, Any]) -> None:
    """Add a row to such a store, so that it is not made again."""
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")
