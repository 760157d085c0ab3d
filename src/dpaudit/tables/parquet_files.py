"""Columns of a Parquet file; needs the extra ``tables``."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError, MissingExtraError
from dpaudit.tables.columns import (
    MISSING,
    check_size,
    check_texts,
    check_unpacked,
    found,
    refuse,
    text_column,
)

try:
    import pyarrow as pa
    from pyarrow import parquet
except ImportError as error:
    raise MissingExtraError(
        "Parquet is read with pyarrow: pip install 'dpaudit[tables]'"
    ) from error

__all__ = ["holds_numbers", "opened", "read_parquet", "values_of"]

_BUFFER = 1 << 20  # bytes
_SMALL = 256 << 20  # bytes; 2 GiB are no more than eight times a larger file


def read_parquet(path: Path) -> Mapping[str, NDArray[Any]]:
    """Return the columns of a table by their meaning: id, bit, score."""
    with opened(path) as file:
        known = found(path, file.schema_arrow.names)
        size = 8 * _rows(path, file)
        check_size(path, "score", size)
        check_unpacked(path, "score", size, path.stat().st_size)
        table = _read(path, file, list(known.values()))
        return {
            meaning: values_of(path, name, table.column(name))
            for meaning, name in known.items()
        }


def _read(path: Path, file: Any, names: list[str]) -> Any:  # noqa: ANN401 (pyarrow)
    """Return columns; of texts each is kept once, however many rows it stands in.

    Without a buffer, see ``opened``, as all is read at once anyway.
    """
    kinds = file.schema_arrow
    texts = [name for name in names if _is_text(kinds.field(name).type)]
    with parquet.ParquetFile(path, read_dictionary=texts) as again:
        return again.read(columns=names)


def _rows(path: Path, file: Any) -> int:  # noqa: ANN401 (pyarrow)
    """Return how many rows a file has, if it says so in one way."""
    told = file.metadata
    parts = [told.row_group(i).num_rows for i in range(told.num_row_groups)]
    if min(parts, default=0) < 0 or sum(parts) != told.num_rows:
        raise InvalidInputError(
            f"{path} says that it has {told.num_rows} rows, and its parts say "
            f"{sum(parts)}; write it again"
        )
    return sum(parts)


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open a file; what pyarrow cannot read is an error that names it.

    A column of a large file is read through a buffer: pyarrow would otherwise read all
    of a file's columns, or all of a row group's, before it gives out the first rows of
    them. A small file is mapped into memory instead: through a buffer, pyarrow asks for
    as much memory as a page says that it takes (up to 2 GiB), whatever the file holds.

    Of the metadata ask only for the schema and the number of rows: pyarrow 26 ends the
    process over a column whose metadata is broken.
    """
    try:
        small = path.stat().st_size <= _SMALL
        with parquet.ParquetFile(
            path,
            pre_buffer=False,
            buffer_size=0 if small else _BUFFER,
            memory_map=small,
        ) as file:
            yield file
    except InvalidInputError:
        raise
    except (pa.ArrowException, OSError, LookupError, ValueError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidInputError(
            f"{path} is not a Parquet file, or it is cut off ({first})"
        ) from error


def values_of(
    path: Path,
    name: str,
    column: Any,  # noqa: ANN401 (pyarrow)
    *,
    first: int = 1,
) -> NDArray[Any]:
    """Return the values of a column, or of some rows of it from the first on."""
    if column.null_count:
        row = column.is_null().index(pa.scalar(value=True)).as_py()
        raise refuse(path, name, first + row, f"there is no value; {MISSING}")
    kind = column.type
    if pa.types.is_dictionary(kind):
        _check_repeated(path, name, column)
        column, kind = column.cast(kind.value_type), kind.value_type
    if _is_text(kind):
        return text_column(path, name, column.to_pylist())
    if not holds_numbers(kind):
        raise refuse(path, name, None, f"it holds {kind}; numbers are read, and text")
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _is_text(kind: Any) -> bool:  # noqa: ANN401 (pyarrow)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _check_repeated(path: Path, name: str, column: Any) -> None:  # noqa: ANN401 (pyarrow)
    """Refuse values that are held once and would take much memory in every row."""
    if not _is_text(column.type.value_type):
        return
    held = [part.dictionary for part in getattr(column, "chunks", [column])]
    longest = max((len(text) for part in held for text in part.to_pylist()), default=0)
    packed = sum(part.nbytes for part in held) + len(column)
    check_texts(path, name, longest, len(column), packed)


def holds_numbers(kind: Any) -> bool:  # noqa: ANN401 (pyarrow)
    """Return whether a column of this type holds numbers or truth values."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
    )
