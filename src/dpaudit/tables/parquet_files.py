"""Columns of a Parquet file; needs the extra ``tables``."""

from collections.abc import Mapping
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

__all__ = ["read_parquet"]


def read_parquet(path: Path) -> Mapping[str, NDArray[Any]]:
    """Return the columns of a table by their meaning: id, bit, score."""
    try:
        with parquet.ParquetFile(path) as file:
            known = found(path, file.schema_arrow.names)
            # Not more of the metadata: pyarrow 26 ends the process over a bad column's.
            check_size(path, "score", 8 * file.metadata.num_rows)
            table = file.read(columns=list(known.values()))
            return {
                meaning: _array(path, name, table.column(name))
                for meaning, name in known.items()
            }
    except InvalidInputError:
        raise
    except (pa.ArrowException, OSError, LookupError, ValueError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidInputError(
            f"{path} is not a Parquet file, or it is cut off ({first})"
        ) from error


def _array(path: Path, name: str, column: Any) -> NDArray[Any]:  # noqa: ANN401 (pyarrow)
    if column.null_count:
        row = column.is_null().index(pa.scalar(value=True)).as_py()
        raise refuse(path, name, row + 1, f"there is no value; {MISSING}")
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return np.array(column.to_pylist(), np.str_)
    if not (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
    ):
        raise refuse(path, name, None, f"it holds {kind}; numbers are read, and text")
    return np.asarray(column.to_numpy())
