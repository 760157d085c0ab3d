"""Columns of a Parquet file; needs the extra ``tables``."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError, MissingExtraError
from dpaudit.tables.columns import MISSING, check_size, found, refuse

try:
    import pyarrow as pa
    from pyarrow import parquet
except ImportError as error:
    raise MissingExtraError(
        "Parquet is read with pyarrow: pip install 'dpaudit[tables]'"
    ) from error

__all__ = ["holds_numbers", "opened", "read_parquet", "values_of"]

_BUFFER = 1 << 20  # bytes


def read_parquet(path: Path) -> Mapping[str, NDArray[Any]]:
    """Return the columns of a table by their meaning: id, bit, score."""
    with opened(path) as file:
        known = found(path, file.schema_arrow.names)
        check_size(path, "score", 8 * file.metadata.num_rows)
        table = file.read(columns=list(known.values()))
        return {
            meaning: values_of(path, name, table.column(name))
            for meaning, name in known.items()
        }


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open a file; what pyarrow cannot read is an error that names it.

    A column is read through a buffer: pyarrow would otherwise read all of a file's
    columns, or all of a row group's, before it gives out the first rows of them.

    Of the metadata ask only for the schema and the number of rows: pyarrow 26 ends the
    process over a column whose metadata is broken.
    """
    try:
        with parquet.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER) as file:
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
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return np.array(column.to_pylist(), np.str_)
    if not holds_numbers(kind):
        raise refuse(path, name, None, f"it holds {kind}; numbers are read, and text")
    return np.asarray(column.to_numpy(zero_copy_only=False))


def holds_numbers(kind: Any) -> bool:  # noqa: ANN401 (pyarrow)
    """Return whether a column of this type holds numbers or truth values."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
    )
