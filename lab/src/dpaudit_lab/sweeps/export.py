"""A store as one flat table, for spreadsheets and data frames: CSV or Parquet.

A row is a trial; the columns are the function's name, its revision, the number of the
trial, and then one for each entry of the settings (``setting.x``) and of the outcomes
(``outcome.y``) that occurs. A column's type is the narrowest that holds all its values;
where a row has none it is empty. Rows are read twice, once to know the columns, so the
store must not change meanwhile: give a copy of one that is in use.
"""

import csv
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from dpaudit._files import whole_file
from dpaudit.errors import InvalidInputError, MissingExtraError
from dpaudit_lab.sweeps.store import Store, entries

__all__ = ["export"]

_FIXED: Final = MappingProxyType({"name": str, "revision": int, "trial": int})
_CHUNK: Final = 10_000


def _suffix(path: str | Path) -> str:
    """Return the ending of a table's name, if it is one that can be written."""
    suffix = Path(path).suffix.lower()
    if suffix not in _WRITERS:
        raise InvalidInputError(f"the name must end in .csv or .parquet, got {path}")
    return suffix


def export(store: Store, path: str | Path) -> int:
    """Write every trial of a store to a ``.csv`` or ``.parquet`` file.

    Returns:
        How many rows were written.
    """
    write = _WRITERS[_suffix(path)]
    columns = _columns(_rows(store))
    counted = _Counted(_rows(store))
    with whole_file(path) as draft:
        write(draft, columns, counted)
    return counted.rows


class _Counted:
    """Rows, and how many went by."""

    def __init__(self, rows: Iterable[dict[str, Any]]) -> None:
        self._iterator, self.rows = iter(rows), 0

    def chunks(self) -> Iterator[list[dict[str, Any]]]:
        while chunk := list(islice(self._iterator, _CHUNK)):
            self.rows += len(chunk)
            yield chunk


def _rows(store: Store) -> Iterator[dict[str, Any]]:
    for name, revision, setting, trial, outcome in store.rows():
        row = {"name": name, "revision": revision, "trial": trial}
        row |= {f"setting.{k}": v for k, v in entries(setting).items()}
        row |= {f"outcome.{k}": v for k, v in entries(outcome).items()}
        yield row


def _columns(rows: Iterable[dict[str, Any]]) -> dict[str, type]:
    """Return the columns: the fixed ones, settings, outcomes, each in order of name."""
    found: dict[str, type | None] = {}
    for row in rows:
        for name, value in row.items():
            found[name] = _wider(found.get(name), value)
    others = sorted(found.keys() - _FIXED.keys(), key=lambda n: (n[0] != "s", n))
    return {**_FIXED, **{name: found[name] or str for name in others}}


def _wider(kind: type | None, value: object) -> type | None:
    """Return the narrowest type that holds a value too."""
    if value is None:
        return kind
    own = type(value)
    if own is int and not -(2**63) <= int(str(value)) < 2**63:
        own = str
    if kind is None or kind is own:
        return own
    return float if {kind, own} == {int, float} else str


def _cell(value: object, kind: type) -> Any:  # noqa: ANN401 (any scalar)
    if value is None or isinstance(value, kind):
        return value
    return float(str(value)) if kind is float else str(value)


def _csv(draft: Path, columns: dict[str, type], rows: _Counted) -> None:
    with draft.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(columns), lineterminator="\n")
        writer.writeheader()
        for chunk in rows.chunks():
            writer.writerows(chunk)


def _parquet(draft: Path, columns: dict[str, type], rows: _Counted) -> None:
    try:
        import pyarrow as pa  # noqa: PLC0415 (needs its extra)
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError.of(
            "Parquet is written with pyarrow", "tables"
        ) from error
    kinds = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    schema = pa.schema([(name, kinds[kind]) for name, kind in columns.items()])
    with parquet.ParquetWriter(draft, schema, compression="zstd") as writer:
        for chunk in rows.chunks():
            plain = [
                {name: _cell(row.get(name), kind) for name, kind in columns.items()}
                for row in chunk
            ]
            writer.write_table(pa.Table.from_pylist(plain, schema=schema))


_WRITERS: Final[MappingProxyType[str, Callable[..., None]]] = MappingProxyType(
    {".csv": _csv, ".parquet": _parquet}
)
