"""What a column of a table must hold, and how it is said that it does not.

An id is a whole number or text, a bit is 0 or 1, a score is a number. Whatever the
file's format, a breach is told alike: the file, the column, the row (the first row of
data is row 1), what stands there, and what to do.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError

__all__ = [
    "MISSING",
    "MOST_BYTES",
    "SPELLINGS",
    "check_flat",
    "check_size",
    "check_texts",
    "check_unpacked",
    "found",
    "refuse",
    "text_column",
    "to_bits",
    "to_ids",
    "to_scores",
]

# A column may be called by one or by many.
SPELLINGS: Final = MappingProxyType(
    {"id": ("id", "ids"), "bit": ("bit", "bits"), "score": ("score", "scores")}
)
MOST_BYTES: Final = 8 << 30  # that a column may take; so many scores are a billion
_UNPACKED: Final = 256 << 20  # bytes that a small file may grow to
_GROWTH: Final = 100  # times; no column that means something is packed so well
MISSING: Final = (
    "a missing score must be replaced by one that does not depend on the coin, for "
    "example the median; a canary left out was chosen by someone"
)


def refuse(path: Path, column: str, row: int | None, said: str) -> InvalidInputError:
    """Return the error that names a file, a column and, if it is known, a row."""
    place = f"column {column!r}" if row is None else f"column {column!r}, row {row}"
    return InvalidInputError(f"{path}, {place}: {said}")


def found(path: Path, columns: Iterable[str]) -> Mapping[str, str]:
    """Return what the columns that are read are called in a file.

    Raises:
        InvalidInputError: A column is there twice.
    """
    names = list(columns)
    known: dict[str, str] = {}
    for meaning, spellings in SPELLINGS.items():
        here = [name for name in names if name in spellings]
        if len(here) > 1:
            raise refuse(
                path, here[-1], None, f"there are {len(here)} such columns; keep one"
            )
        if here:
            known[meaning] = here[0]
    return known


def check_size(path: Path, column: str, size: int) -> None:
    """Refuse a column that would not fit, before any memory is asked for."""
    if size > MOST_BYTES:
        raise refuse(
            path,
            column,
            None,
            f"it says that it takes {size:,} bytes, and no more than {MOST_BYTES:,} "
            "are read; divide the table",
        )


def check_unpacked(path: Path, column: str, size: int, packed: int) -> None:
    """Refuse a column that would fill memory from a few bytes of a file."""
    if size > _UNPACKED and size > _GROWTH * packed:
        raise refuse(
            path,
            column,
            None,
            f"it would take {size:,} bytes of memory, and only {packed:,} bytes of it "
            "are in the file; write it without compression, or divide the table",
        )


def check_texts(path: Path, column: str, longest: int, rows: int, packed: int) -> None:
    """Refuse texts that would fill memory, as each takes as much as the longest."""
    size = 4 * longest * rows
    if size > MOST_BYTES or (size > _UNPACKED and size > _GROWTH * packed):
        raise refuse(
            path,
            column,
            None,
            f"its longest text has {longest:,} characters, so that {rows:,} rows would "
            f"take {size:,} bytes of memory; use shorter ids, or whole numbers",
        )


def text_column(path: Path, column: str, texts: list[str]) -> NDArray[np.str_]:
    """Return texts as an array, in which all take as much memory as the longest."""
    longest = max(map(len, texts), default=0)
    check_texts(path, column, longest, len(texts), sum(map(len, texts)))
    try:
        return np.array(texts, np.str_)
    except UnicodeEncodeError as error:  # halves of surrogate pairs
        raise refuse(path, column, None, "it is not Unicode text") from error


def check_flat(path: Path, column: str, values: NDArray[Any]) -> None:
    """Refuse a column that is no list."""
    if values.ndim != 1:
        raise refuse(
            path, column, None, f"expected a list, got an array of shape {values.shape}"
        )


def to_ids(path: Path, column: str, values: NDArray[Any]) -> NDArray[Any]:
    """Return ids: whole numbers of 64 bits, or text."""
    kind = values.dtype.kind
    if kind == "S":
        try:
            return np.char.decode(values, "utf-8")
        except UnicodeDecodeError as error:
            raise refuse(path, column, None, "it is not UTF-8 text") from error
    if kind not in "iuU":
        raise refuse(
            path,
            column,
            None,
            f"it holds {values.dtype}, and ids are whole numbers or text",
        )
    return values.astype({"i": np.int64, "u": np.uint64}.get(kind, values.dtype))


def to_bits(
    path: Path, column: str, values: NDArray[Any], *, first: int = 1
) -> NDArray[np.uint8]:
    """Return bits, which may have been written as numbers or as truth values."""
    if values.dtype.kind not in "iufb":
        raise refuse(
            path,
            column,
            None,
            f"it holds {values.dtype}; write 1 for included and 0 for not",
        )
    odd = np.flatnonzero(~((values == 0) | (values == 1)))
    if len(odd):
        raise refuse(
            path,
            column,
            int(odd[0]) + first,
            f"{values[odd[0]]} is neither 0 nor 1; write 1 for included and 0 for not",
        )
    return np.asarray(values == 1, np.uint8)


def to_scores(
    path: Path, column: str, values: NDArray[Any], *, first: int = 1
) -> NDArray[np.float64]:
    """Return scores as floats."""
    if values.dtype.kind not in "iufb":
        raise refuse(
            path, column, None, f"it holds {values.dtype}, and scores are numbers"
        )
    with np.errstate(over="ignore", invalid="ignore"):  # of long doubles
        scores = np.asarray(values, np.float64)
    # NaN is the least of all, for numpy.
    if len(scores) and np.isnan(scores.min()):
        missing = int(np.flatnonzero(np.isnan(scores))[0])
        raise refuse(
            path, column, missing + first, f"the score is not a number; {MISSING}"
        )
    return scores
