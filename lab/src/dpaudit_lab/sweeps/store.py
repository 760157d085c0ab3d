"""What a sweep has found so far, in one SQLite file that survives ``kill -9``.

A row is one trial: which function, at which revision, in which setting, which number,
and what came out. It holds nothing that depends on when, where or in which order the
trial was run, so two stores of the same sweep hold the same rows. Beside them stand
trials that raised, with their traceback, until they succeed; and how many trials of
each setting were planned, so that a store alone tells how far it is.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self, TypeAlias, final

from dpaudit import _canonical
from dpaudit.errors import InvalidInputError

__all__ = ["Cell", "Found", "Outcome", "Setting", "State", "Store", "entries"]

Setting: TypeAlias = Mapping[str, _canonical.Scalar]
Outcome: TypeAlias = Mapping[str, _canonical.Scalar]

_FORMAT = 2
_KEY = "name text not null, revision integer not null, setting text not null"
_TRIALS = f"""
create table trials (
    {_KEY}, trial integer not null, outcome text not null,
    primary key (name, revision, setting, trial)
) without rowid
"""
_SINCE_FORMAT_2 = (
    f"""
    create table failures (
        {_KEY}, trial integer not null, traceback text not null,
        primary key (name, revision, setting, trial)
    ) without rowid
    """,
    f"""
    create table plans (
        {_KEY}, trials integer not null, primary key (name, revision, setting)
    ) without rowid
    """,
)
_CELL = (("name", "text"), ("revision", "integer"), ("setting", "text"))
_KINDS = MappingProxyType(
    {
        "trials": (*_CELL, ("trial", "integer"), ("outcome", "text")),
        "failures": (*_CELL, ("trial", "integer"), ("traceback", "text")),
        "plans": (*_CELL, ("trials", "integer")),
    }
)
_PATIENCE_SECONDS = 60
_THIS_CELL = "where name = ? and revision = ? and setting = ?"


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
@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What some trials of a cell came to.

    Attributes:
        cell: Which cell.
        outcomes: Numbers of the trials that succeeded, with their outcomes.
        failures: Numbers of the trials that raised, with their tracebacks.
    """

    cell: Cell
    outcomes: Sequence[tuple[int, Outcome]]
    failures: Sequence[tuple[int, str]] = ()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """How far a cell is.

    Attributes:
        cell: Which cell.
        trials: How many of its trials are in the store.
        failed: How many raised, and have not succeeded since.
        planned: The most that any sweep asked for; None in stores of old.
    """

    cell: Cell
    trials: int
    failed: int
    planned: int | None


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
        self._connection = sqlite3.connect(path, timeout=_PATIENCE_SECONDS)
        try:
            with self._connection:
                self._connection.execute("begin immediate")
                _prepare(self._connection, path, new=True)
        except BaseException:
            self._connection.close()
            raise

    @classmethod
    def copy(cls, path: str | Path) -> Self:
        """Return a copy of a store as it is now, to be looked at and thrown away.

        The file stays as it is, whatever it is, and a sweep that writes to it is kept
        waiting for a moment only.
        """
        found = cls("")  # a file that SQLite removes by itself
        place = f"{Path(path).resolve().as_uri()}?mode=rw"  # rw: to mend after a crash
        source = sqlite3.connect(place, uri=True, timeout=_PATIENCE_SECONDS)
        try:
            source.backup(found._connection)
            with found._connection:
                found._connection.execute("begin immediate")
                _prepare(found._connection, path, new=False)
                _check_kinds(found._connection, path)
        except BaseException:
            found._connection.close()
            raise
        finally:
            source.close()
        return found

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
        self.record([Found(cell=cell, outcomes=list(outcomes))])

    def record(self, batch: Iterable[Found]) -> None:
        """Record what some trials came to, all in one transaction.

        A trial that is there already is left alone, and one that succeeds is no longer
        among those that failed.
        """
        with self._connection:
            for found in batch:
                key = (found.cell.name, found.cell.revision, found.cell.setting)
                self._connection.executemany(
                    "insert or ignore into trials values (?, ?, ?, ?, ?)",
                    [(*key, t, _canonical.text(o)) for t, o in found.outcomes],
                )
                self._connection.executemany(
                    f"delete from failures {_THIS_CELL} and trial = ?",
                    [(*key, trial) for trial, _ in found.outcomes],
                )
                self._connection.executemany(
                    "insert or replace into failures values (?, ?, ?, ?, ?)",
                    [(*key, trial, trace) for trial, trace in found.failures],
                )

    def plan(self, cells: Iterable[Cell], trials: int) -> None:
        """Note that so many trials of each cell are wanted, if not more were before."""
        with self._connection:
            self._connection.executemany(
                "insert into plans values (?, ?, ?, ?) on conflict do update "
                "set trials = max(trials, excluded.trials)",
                [(c.name, c.revision, c.setting, trials) for c in cells],
            )

    def count(self, cell: Cell, trials: int) -> int:
        """Return how many of the trials 0, 1, ... ``trials - 1`` are there."""
        (found,) = self._connection.execute(
            f"select count(*) from trials {_THIS_CELL} and trial < ?",
            (cell.name, cell.revision, cell.setting, trials),
        ).fetchone()
        return int(found)

    def missing(self, cell: Cell, trials: int) -> list[int]:
        """Return which of the trials 0, 1, ... ``trials - 1`` are not there yet."""
        there = {trial for (trial,) in self._select("trial", "trials", cell)}
        return [trial for trial in range(trials) if trial not in there]

    def outcomes(self, cell: Cell, most: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield the outcomes of a cell, all or so many, ordered by trial."""
        rows = islice(self._select("outcome", "trials", cell), most)
        return (entries(outcome) for (outcome,) in rows)

    def failures(self, cell: Cell) -> Iterator[tuple[int, str]]:
        """Yield the trials of a cell that raised, with their tracebacks."""
        return self._select("trial, traceback", "failures", cell)

    def states(self) -> list[State]:
        """Return how far each cell is, in an order that is always the same."""
        key = "name, revision, setting"
        found: dict[Cell, dict[str, int]] = {}
        for column, query in (
            ("trials", f"select {key}, count(*) from trials group by {key}"),
            ("failed", f"select {key}, count(*) from failures group by {key}"),
            ("planned", f"select {key}, trials from plans"),
        ):
            for name, revision, setting, number in self._connection.execute(query):
                cell = Cell(name=name, revision=revision, setting=setting)
                found.setdefault(cell, {})[column] = number
        return [
            State(
                cell=cell,
                trials=numbers.get("trials", 0),
                failed=numbers.get("failed", 0),
                planned=numbers.get("planned"),
            )
            for cell, numbers in sorted(
                found.items(), key=lambda c: (c[0].name, c[0].revision, c[0].setting)
            )
        ]

    def rows(self) -> Iterator[tuple[str, int, str, int, str]]:
        """Yield every outcome, in an order that depends on the content alone."""
        return _fetched(
            self._connection.execute(
                "select name, revision, setting, trial, outcome from trials "
                "order by name, revision, setting, trial"
            )
        )

    def _select(
        self, columns: str, table: str, cell: Cell
    ) -> Iterator[tuple[Any, ...]]:
        return _fetched(
            self._connection.execute(
                f"select {columns} from {table} {_THIS_CELL} order by trial",
                (cell.name, cell.revision, cell.setting),
            )
        )


def _fetched(cursor: sqlite3.Cursor) -> Iterator[tuple[Any, ...]]:
    """Yield rows; one that is left half way says nothing when its store is closed."""
    while (row := cursor.fetchone()) is not None:
        yield row


def _tables(connection: sqlite3.Connection) -> set[str]:
    try:
        rows = connection.execute("select name from sqlite_master where type = 'table'")
        return {name for (name,) in rows}
    except UnicodeDecodeError as error:  # in what SQLite says of a broken schema
        raise sqlite3.DatabaseError("its schema is no text") from error


def entries(text: str) -> dict[str, Any]:
    """Return a setting or an outcome from its JSON.

    Raises:
        InvalidInputError: It is no object of plain values.
    """
    try:
        found = _canonical.parsed(text)
    except InvalidInputError as error:
        raise InvalidInputError(f"a store holds what is not JSON: {error}") from error
    if not isinstance(found, dict) or not all(
        value is None or isinstance(value, str | int | float)
        for value in found.values()
    ):
        raise InvalidInputError(
            f"a store holds {text!r:.80} where names and plain values should be; it "
            "was not written by a sweep"
        )
    return found


def _check_kinds(connection: sqlite3.Connection, path: str | Path) -> None:
    """Refuse a store with values of other kinds than were written; SQLite takes any."""
    for table, columns in _KINDS.items():
        odd = " or ".join(f"typeof({name}) <> '{kind}'" for name, kind in columns)
        query = f"select 1 from {table} where {odd} limit 1"
        if connection.execute(query).fetchone() is not None:
            raise InvalidInputError(
                f"{path} is not the store of a sweep: a column of its table {table} "
                "holds values of another kind; use another file"
            )


def _prepare(connection: sqlite3.Connection, path: str | Path, *, new: bool) -> None:
    """Make the tables that are missing, in a store or, if new, in an empty file."""
    (found,) = connection.execute("pragma user_version").fetchone()
    tables = _tables(connection)
    if new and not tables and found == 0:
        connection.execute(_TRIALS)
    elif found > _FORMAT and "trials" in tables:
        raise InvalidInputError(
            f"{path} is a store of format {found}, this version reads {_FORMAT} and "
            "older ones; use another file"
        )
    elif not (1 <= found <= _FORMAT and "trials" in tables):
        raise InvalidInputError(f"{path} is not the store of a sweep; use another file")
    if found < _FORMAT:
        for statement in _SINCE_FORMAT_2:
            connection.execute(statement)
        connection.execute(f"pragma user_version = {_FORMAT}")
