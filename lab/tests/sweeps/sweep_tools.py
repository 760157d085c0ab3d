"""What tests of sweeps share: an engine of this process, a look into a store."""

import sqlite3
from contextlib import closing


class InOrder:
    """An engine that runs everything here, one after the other."""

    def map(self, function, tasks):
        return map(function, tasks)


def stored(path):
    """Return how many trials a store holds, while a sweep writes to it."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            return connection.execute("select count(*) from trials").fetchone()[0]
    except sqlite3.OperationalError:
        return 0
