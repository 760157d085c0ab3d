"""What a sweep has found so far, in one SQLite file that survives ``kill -9``.

A row is one trial: which function, at which revision, in which setting, which number,
and what came out. It holds nothing that depends on when, where or in which order the
trial was run, so two stores of the same sweep hold the same rows.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias, final

from dpaudit import _canonical
from dpaudit.errors import InvalidInputError

__all__ = ["Cell", "Outcome", "Setting", "Store"]

Setting: TypeAlias = Mapping[str, _canonical.Scalar]
Outcome: TypeAlias = Mapping[str, _canonical.Scalar]

_FORMAT = 1
_SCHEMA = """
create table trials (
    name text not null, revision integer not null, setting text not null,
    trial integer not null, outcome text not null,
    primary key (name, revision, setting, trial)
) without rowid
"""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """All trials of one function, at one revision, in one setting.

    Attributes:
        name: Name of the trial function.
        revision: Raised by hand whenever the function's results change.
        setting: Canonical JSON of its setting.
    """

    name: str
    revision: int
    setting: str


@final
class Store:
    """The outcomes of trials, in a file; a context manager that closes it.

    Example:
        >>> cell = Cell(name="coin", revision=1, setting="{}")
        >>> with Store(":memory:") as store:
        ...     store.add(cell, [(0, {"heads": True}), (2, {"heads": False})])
        ...     store.missing(cell, 4), [o["heads"] for o in store.outcomes(cell)]
        ([1, 3], [True, False])
    """

    def __init__(self, path: str | Path) -> None:
        self._connection = sqlite3.connect(path, timeout=60)
        with self._connection:
            self._connection.execute("begin immediate")
            (found,) = self._connection.execute("pragma user_version").fetchone()
            if found == 0:
                self._connection.execute(_SCHEMA)
                self._connection.execute(f"pragma user_version = {_FORMAT}")
        if found not in (0, _FORMAT):
            self._connection.close()
            raise InvalidInputError(
                f"{path} is a store of format {found}, this version reads {_FORMAT}; "
                "use another file"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()

    def add(self, cell: Cell, outcomes: Iterable[tuple[int, Outcome]]) -> None:
        """Add trials in one transaction; one that is there already is left alone."""
        with self._connection:
            self._connection.executemany(
                "insert or ignore into trials values (?, ?, ?, ?, ?)",
                [
                    (cell.name, cell.revision, cell.setting, trial, _canonical.text(o))
                    for trial, o in outcomes
                ],
            )

    def missing(self, cell: Cell, trials: int) -> list[int]:
        """Return which of the trials 0, 1, ... ``trials - 1`` are not there yet."""
        there = {trial for trial, _ in self._rows(cell)}
        return [trial for trial in range(trials) if trial not in there]

    def outcomes(self, cell: Cell) -> Iterator[dict[str, Any]]:
        """Yield the outcomes of a cell, ordered by trial."""
        return (json.loads(outcome) for _, outcome in self._rows(cell))

    def rows(self) -> Iterator[tuple[str, int, str, int, str]]:
        """Yield everything, in an order that depends on the content alone."""
        yield from self._connection.execute(
            "select name, revision, setting, trial, outcome from trials "
            "order by name, revision, setting, trial"
        )

    def _rows(self, cell: Cell) -> Iterator[tuple[int, str]]:
        yield from self._connection.execute(
            "select trial, outcome from trials "
            "where name = ? and revision = ? and setting = ? order by trial",
            (cell.name, cell.revision, cell.setting),
        )
