"""Columns of scores from Parquet files, whole or some rows at a time.

Needs the extra ``tables``. Files are read one after the other and decoded batch by
batch, so memory does not grow with the size of a file or a row group. Only the needed
columns are read. ``columns`` documents what a row may hold; errors name file, column
and row.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError, MissingExtraError
from dpaudit.tables.columns import (
    MISSING,
    USUAL,
    Column,
    ColumnNames,
    Columns,
    FileColumn,
    check_size,
    check_texts,
    check_unpacked,
    found,
    text_column,
    to_bits,
    to_scores,
)

__all__ = [
    "Batch",
    "count_rows",
    "holds_numbers",
    "opened",
    "read_batches",
    "read_parquet",
    "values_of",
]

try:
    import pyarrow as pa
    from pyarrow import parquet
except ImportError as error:
    raise MissingExtraError.of("Parquet is read with pyarrow", "tables") from error

_BUFFER = 1 << 20  # bytes
_SMALL = 256 << 20  # bytes; 2 GiB are at most eight times a larger file


def read_parquet(path: Path, named: ColumnNames = USUAL) -> Columns:
    """Return the columns of a table, keyed by meaning: id, bit, score."""
    with opened(path) as file:
        known = found(path, file.schema_arrow.names, named)
        size = 8 * _rows(path, file)
        place = FileColumn(path, "score")
        check_size(place, size)
        check_unpacked(place, size, path.stat().st_size)
        table = _read(path, file, list(known.values()))
        return {
            meaning: values_of(FileColumn(path, name), table.column(name))
            for meaning, name in known.items()
        }


def _read(path: Path, file: parquet.ParquetFile, names: list[str]) -> pa.Table:
    """Return columns; each distinct text is stored once, however many rows have it.

    Unlike ``opened``, uses no buffer, as everything is read at once anyway.
    """
    kinds = file.schema_arrow
    texts = [name for name in names if _is_text(kinds.field(name).type)]
    with parquet.ParquetFile(path, read_dictionary=texts) as again:
        return again.read(columns=names)


def _rows(path: Path, file: parquet.ParquetFile) -> int:
    """Return the number of rows of a file, if its metadata is consistent."""
    metadata = file.metadata
    parts = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    if min(parts, default=0) < 0 or sum(parts) != metadata.num_rows:
        raise InvalidInputError(
            f"{path} declares {metadata.num_rows} rows, and its parts "
            f"{sum(parts)}; write it again"
        )
    return sum(parts)


@contextmanager
def opened(path: Path) -> Iterator[parquet.ParquetFile]:
    """Open a file; errors of pyarrow in reading it name the file.

    A column of a large file is read through a buffer: pyarrow would otherwise read all
    columns of a file or a row group before it returns the first rows. A small file is
    mapped into memory instead: through a buffer, pyarrow allocates the size that a page
    declares (up to 2 GiB), whatever the file holds.

    Read only the schema and the number of rows from the metadata: pyarrow 26 crashes
    the process on a column whose metadata is broken.
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


def values_of(place: FileColumn, column: pa.Array | pa.ChunkedArray) -> Column:
    """Return the values of a column, or of a batch of its rows."""
    if column.null_count:
        row = column.is_null().index(pa.scalar(value=True)).as_py()
        raise place.refuse(f"there is no value; {MISSING}", row=row)
    kind = column.type
    if pa.types.is_dictionary(kind):
        _check_repeated(place, column)
        column, kind = column.cast(kind.value_type), kind.value_type
    if _is_text(kind):
        return text_column(place, column.to_pylist())
    if not holds_numbers(kind):
        raise place.refuse(f"it holds {kind}; numbers are read, and text")
    return np.asarray(column.to_numpy(zero_copy_only=False))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _check_repeated(place: FileColumn, column: pa.Array | pa.ChunkedArray) -> None:
    """Refuse dictionary-encoded texts that would take too much memory expanded."""
    if not _is_text(column.type.value_type):
        return
    held = [part.dictionary for part in getattr(column, "chunks", [column])]
    longest = max((len(text) for part in held for text in part.to_pylist()), default=0)
    packed = sum(part.nbytes for part in held) + len(column)
    check_texts(place, longest, len(column), packed)


def holds_numbers(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds numbers or booleans."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
    )


_ROWS: Final = 1 << 20  # per batch; unordered ids are checked faster in large batches
_DENSE: Final = (
    "ids are checked where they are whole numbers from 0, and others can be left "
    "unchecked (check_ids=False, or --skip-id-checks)"
)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """Some rows of a file.

    Attributes:
        ids: The canaries, if ids were requested.
        bits: Their coins, if the file has them.
        scores: Their scores.
    """

    ids: NDArray[np.int64] | None
    bits: NDArray[np.uint8] | None
    scores: NDArray[np.float64]


def count_rows(files: Iterable[Path]) -> int:
    """Return the number of rows of files, by their metadata."""
    total = 0
    for path in files:
        with opened(path) as file:
            total += file.metadata.num_rows
    return total


def read_batches(
    path: Path, *, with_ids: bool, columns: ColumnNames = USUAL
) -> Iterator[Batch]:
    """Yield the rows of a file, some at a time."""
    with opened(path) as file:
        known = dict(found(path, file.schema_arrow.names, columns))
        _check_needed(path, known, with_ids=with_ids)
        _check_kinds(path, known, file.schema_arrow)
        first = 1
        for rows in file.iter_batches(_ROWS, columns=list(known.values())):
            if rows.num_rows:
                yield _batch(path, first, known, rows)
            first += rows.num_rows


def _check_needed(path: Path, known: dict[str, str], *, with_ids: bool) -> None:
    """Refuse a file without scores or needed ids; drop ids that are not needed."""
    if "score" not in known:
        raise InvalidInputError(f"{path}: there is no column 'score'")
    if not with_ids:
        known.pop("id", None)
    elif "id" not in known:
        raise InvalidInputError(f"{path}: there is no column 'id'")


def _check_kinds(path: Path, known: dict[str, str], schema: pa.Schema) -> None:
    """Refuse text before decoding it: every row would take the longest one's memory."""
    for meaning, name in known.items():
        kind = schema.field(name).type
        if not holds_numbers(kind):
            expected = _DENSE if meaning == "id" else f"a {meaning} is a number"
            raise FileColumn(path, name).refuse(f"it holds {kind}; {expected}")


def _batch(
    path: Path, first: int, known: dict[str, str], rows: pa.RecordBatch
) -> Batch:
    places = {meaning: FileColumn(path, name, first) for meaning, name in known.items()}
    read = {
        meaning: values_of(place, rows.column(place.name))
        for meaning, place in places.items()
    }
    ids, bits = read.get("id"), read.get("bit")
    return Batch(
        ids=None if ids is None else _dense(places["id"], ids),
        bits=None if bits is None else to_bits(places["bit"], bits),
        scores=to_scores(places["score"], read["score"]),
    )


def _dense(place: FileColumn, values: Column) -> NDArray[np.int64]:
    if values.dtype.kind not in "iu":
        raise place.refuse(f"it holds {values.dtype}; {_DENSE}")
    if values.dtype == np.uint64 and values.max() >> 63:
        raise place.refuse(f"{values.max()} is no id: it is too large")
    return np.asarray(values, np.int64)
