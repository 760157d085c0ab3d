"""Columns of a CSV file: UTF-8, commas, a header, one row for each canary."""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError
from dpaudit.tables.columns import MISSING, found, refuse, text_column

__all__ = ["read_csv", "read_csv_list"]

_BITS: Final = MappingProxyType(
    {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}
)


def read_csv(path: Path) -> Mapping[str, NDArray[Any]]:
    """Return the columns of a table by their meaning: id, bit, score."""
    with _lines(path) as lines:
        header = next(lines, None)
        if header is None:
            raise InvalidInputError(f"{path} is empty; it must begin with a header")
        return _columns(path, header, lines)


def read_csv_list(path: Path) -> NDArray[Any]:
    """Return one list of scores: a number a line, or the score column of a table."""
    with _lines(path) as lines:
        first = next(lines, None)
        if first is None:
            raise InvalidInputError(f"{path} is empty; it must hold a score a line")
        if len(first) == 1 and _is_number(first[0]):
            rows = _rows(path, lines, fields=1)
            return _scores(path, "score", [first[0], *(row[0] for row in rows)])
        columns = _columns(path, first, lines)
        if "score" not in columns:
            raise InvalidInputError(
                f"{path}: expected a number a line, or a column 'score', got the "
                f"header {','.join(first)[:80]!r}"
            )
        return columns["score"]


@contextmanager
def _lines(path: Path) -> Iterator[Iterator[list[str]]]:
    """Open a file; what cannot be read as CSV is an error that names it."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            yield (row for row in csv.reader(file, strict=True) if row)
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from error
    except csv.Error as error:
        raise InvalidInputError(f"{path} is not a CSV file: {error}") from error


def _columns(
    path: Path, header: Sequence[str], lines: Iterator[list[str]]
) -> Mapping[str, NDArray[Any]]:
    names = [name.strip() for name in header]
    known = found(path, names)
    if not known and len(names) == 1 and any(mark in names[0] for mark in ";\t"):
        raise InvalidInputError(
            f"{path}: columns must be divided by commas, got the header {names[0]!r}"
        )
    places = {meaning: names.index(name) for meaning, name in known.items()}
    texts: dict[str, list[str]] = {meaning: [] for meaning in known}
    for row in _rows(path, lines, fields=len(names)):
        for meaning, place in places.items():
            texts[meaning].append(row[place].strip())
    convert = {"id": _ids, "bit": _bits, "score": _scores}
    return {
        meaning: convert[meaning](path, known[meaning], texts[meaning])
        for meaning in known
    }


def _rows(
    path: Path, lines: Iterable[list[str]], *, fields: int
) -> Iterator[list[str]]:
    for number, row in enumerate(lines, 1):
        if len(row) != fields:
            raise InvalidInputError(
                f"{path}, row {number}: expected {fields} fields, got {len(row)}; is "
                "the file cut off?"
            )
        yield row


def _ids(path: Path, column: str, texts: list[str]) -> NDArray[Any]:
    """Return whole numbers if every id is written as one, or else text."""
    if "" in texts:
        raise refuse(path, column, texts.index("") + 1, "the id is missing")
    try:
        numbers = np.array(texts, np.int64)
    except (ValueError, OverflowError):
        return text_column(path, column, texts)
    # 007 and 7 are two ids.
    same = all(map(str.__eq__, map(str, numbers.tolist()), texts))
    return numbers if same else text_column(path, column, texts)


def _bits(path: Path, column: str, texts: list[str]) -> NDArray[Any]:
    try:
        return np.array([_BITS[text.lower()] for text in texts], np.uint8)
    except KeyError:
        row = next(i for i, text in enumerate(texts) if text.lower() not in _BITS)
        raise refuse(
            path,
            column,
            row + 1,
            f"{texts[row][:40]!r} is neither 0 nor 1; write 1 for included and 0 for "
            "not",
        ) from None


def _scores(path: Path, column: str, texts: list[str]) -> NDArray[Any]:
    try:
        return np.array([_number(text) for text in texts], np.float64)
    except ValueError:
        row = next(i for i, text in enumerate(texts) if not _is_number(text))
        said = f"{texts[row][:40]!r} is not a number" if texts[row] else "no score"
        raise refuse(path, column, row + 1, f"{said}; {MISSING}") from None


def _number(text: str) -> float:
    if "_" in text:  # Python would take 1_0 for 10
        raise ValueError(text)
    return float(text)


def _is_number(text: str) -> bool:
    try:
        _number(text)
    except ValueError:
        return False
    return True
