"""Columns of scores from .csv, .npy and .npz files: spelled, parsed, checked.

What a column of a table must hold, and how it is said that it does not.

An id is a whole number or text, a bit is 0 or 1, a score is a number. Whatever the
file's format, a breach is told alike: the file, the column, the row (the first row of
data is row 1), what stands there, and what to do.

Columns of a CSV file: UTF-8, commas, a header, one row for each canary.

Arrays of .npy and .npz files, without pickle, and no larger than they are.

The header of such an array says how large it is. It is believed only if the file holds
that many bytes, so that a few bytes cannot ask for a machine's whole memory. Members of
an archive are stored or deflated, as numpy writes them, and are never written to disk.
"""

import csv
import lzma
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Final, final

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError

__all__ = [
    "MISSING",
    "MOST_BYTES",
    "SPELLINGS",
    "USUAL",
    "ColumnNames",
    "array_names",
    "check_flat",
    "check_size",
    "check_texts",
    "check_unpacked",
    "found",
    "read_arrays",
    "read_csv",
    "read_csv_list",
    "read_npy",
    "read_npz",
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


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnNames:
    """What the columns of a file are called.

    Attributes:
        id: The column of ids; None for one of the usual names, ``id`` or ``ids``.
        included: Of the coins; None for ``bit`` or ``bits``.
        score: Of the scores; None for ``score`` or ``scores``.

    Example:
        >>> ColumnNames(included="member").spellings["bit"]
        ('member',)
    """

    id: str | None = None
    included: str | None = None
    score: str | None = None

    def __post_init__(self) -> None:
        named = [name for name in self._named.values() if name is not None]
        if not all(isinstance(name, str) for name in named) or "" in named:
            raise InvalidInputError(f"columns are named by text, got {self!r}")
        if len(set(named)) < len(named):
            raise InvalidInputError(
                f"id, included and score are columns of their own, got {self!r}"
            )

    @property
    def spellings(self) -> Mapping[str, tuple[str, ...]]:
        """What each column may be called, by its meaning."""
        return {
            meaning: usual if (name := self._named[meaning]) is None else (name,)
            for meaning, usual in SPELLINGS.items()
        }

    @property
    def _named(self) -> Mapping[str, str | None]:
        return {"id": self.id, "bit": self.included, "score": self.score}

    def check(self, path: Path, columns: Iterable[str]) -> None:
        """Refuse a file that lacks a column that was named."""
        here = list(columns)
        for name in self._named.values():
            if name is not None and name not in here:
                raise InvalidInputError(
                    f"{path}: there is no column {name!r}; it has "
                    f"{', '.join(map(repr, here))[:200] or 'none'}"
                )


USUAL: Final = ColumnNames()


def refuse(path: Path, column: str, row: int | None, said: str) -> InvalidInputError:
    """Return the error that names a file, a column and, if it is known, a row."""
    place = f"column {column!r}" if row is None else f"column {column!r}, row {row}"
    return InvalidInputError(f"{path}, {place}: {said}")


def found(
    path: Path, columns: Iterable[str], named: ColumnNames = USUAL
) -> Mapping[str, str]:
    """Return what the columns that are read are called in a file.

    Raises:
        InvalidInputError: A column is there twice, or one that was named is not there.
    """
    names = list(columns)
    named.check(path, names)
    known: dict[str, str] = {}
    for meaning, spellings in named.spellings.items():
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


_BITS: Final = MappingProxyType(
    {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}
)


def read_csv(path: Path, named: ColumnNames = USUAL) -> Mapping[str, NDArray[Any]]:
    """Return the columns of a table by their meaning: id, bit, score."""
    with _lines(path) as lines:
        header = next(lines, None)
        if header is None:
            raise InvalidInputError(f"{path} is empty; it must begin with a header")
        return _columns(path, header, lines, named)


def read_csv_list(path: Path, named: ColumnNames = USUAL) -> NDArray[Any]:
    """Return one list of scores: a number a line, or the score column of a table."""
    with _lines(path) as lines:
        first = next(lines, None)
        if first is None:
            raise InvalidInputError(f"{path} is empty; it must hold a score a line")
        if len(first) == 1 and _is_number(first[0]) and named.score is None:
            rows = _rows(path, lines, fields=1)
            return _scores(path, "score", [first[0], *(row[0] for row in rows)])
        columns = _columns(path, first, lines, named)
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
    path: Path, header: Sequence[str], lines: Iterator[list[str]], named: ColumnNames
) -> Mapping[str, NDArray[Any]]:
    names = [name.strip() for name in header]
    divided = len(names) > 1 or not any(mark in names[0] for mark in ";\t")
    known = found(path, names, named if divided else USUAL)
    if not known and not divided:
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


_LONGEST_HEADER = 1 << 16  # bytes; numpy itself takes no more than 10,000


def read_npz(path: Path, named: ColumnNames = USUAL) -> Mapping[str, NDArray[Any]]:
    """Return the columns of a table by their meaning: id, bit, score."""
    known = found(path, array_names(path), named)
    arrays = read_arrays(path, tuple(known.values()))
    return {meaning: arrays[name] for meaning, name in known.items()}


def array_names(path: Path) -> tuple[str, ...]:
    """Return what the arrays of a .npz file are called."""
    with _opened(path) as archive:
        return tuple(name.removesuffix(".npy") for name in archive.namelist())


def read_arrays(path: Path, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Return the arrays of a .npz file that are named, which must be there."""
    with _opened(path) as archive:
        arrays = {}
        for name in names:
            member = _member(path, name, archive)
            with archive.open(member) as stream:
                arrays[name] = _array(
                    path, name, stream, member.file_size, member.compress_size
                )
        return arrays


def _member(path: Path, name: str, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    here = [
        each
        for each in archive.infolist()
        if each.filename.removesuffix(".npy") == name
    ]
    if len(here) != 1:
        raise refuse(
            path, name, None, f"there are {len(here)} arrays of this name; keep one"
        )
    if here[0].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise refuse(
            path, name, None, "it is compressed in another way than numpy's savez does"
        )
    return here[0]


def read_npy(path: Path) -> NDArray[Any]:
    """Return the array of a .npy file."""
    with path.open("rb") as stream:
        size = path.stat().st_size
        return _array(path, "score", stream, size, size)


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open an archive; what is wrong with it is an error that names it."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except InvalidInputError:
        raise
    except (
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
        struct.error,
        EOFError,
        OSError,  # a place before the file's beginning, for one
        RuntimeError,  # encrypted, or compressed in an unknown way
        ValueError,  # names that are no text
    ) as error:
        raise InvalidInputError(
            f"{path} is not a .npz file, or it is cut off ({error}); write it with "
            "numpy.savez"
        ) from error


def _array(
    path: Path, name: str, stream: IO[bytes], size: int, packed: int
) -> NDArray[Any]:
    """Return an array of which a file says that it takes so many bytes, packed."""
    shape, by_columns, dtype, head = _header(path, name, stream)
    if dtype.hasobject:
        raise refuse(
            path,
            name,
            None,
            "its entries are Python objects, which only pickle reads, and pickle can "
            "run anything; save numbers, or text as numpy.array(..., dtype=str)",
        )
    if not dtype.itemsize:
        raise refuse(path, name, None, "its entries take no bytes")
    declared = prod(shape) * dtype.itemsize
    check_size(path, name, declared)
    if head + declared != size:
        raise refuse(
            path,
            name,
            None,
            f"it says that it takes {declared:,} bytes, and {max(0, size - head):,} "
            "are there; is the file cut off?",
        )
    check_unpacked(path, name, declared, packed)
    data = stream.read(declared)
    if len(data) != declared:
        raise refuse(path, name, None, "the file ends before it does")
    flat = np.frombuffer(data, dtype) if declared else np.empty(0, dtype)
    try:
        return flat.reshape(shape, order="F" if by_columns else "C")
    except (TypeError, ValueError) as error:
        raise refuse(path, name, None, f"it has no shape, but {shape}") from error


def _header(
    path: Path, name: str, stream: IO[bytes]
) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Return the shape, the order, the type, and how many bytes the header takes."""
    counted = _Counted(stream)
    try:
        version = npy.read_magic(counted)
        read = {
            (1, 0): npy.read_array_header_1_0,
            (2, 0): npy.read_array_header_2_0,
        }[version]
        with warnings.catch_warnings():  # about headers of Python 2, if they are that
            warnings.simplefilter("ignore")
            shape, by_columns, dtype = read(counted)
    except Exception as error:  # whatever a parser of foreign bytes may raise
        raise refuse(
            path, name, None, f"it is not an array that numpy wrote ({error})"
        ) from error
    if any(length < 0 for length in shape):
        raise refuse(path, name, None, f"its shape is {shape}")
    return shape, bool(by_columns), dtype, counted.taken


class _Counted:
    """A stream, and how much was read of it; an archive's cannot say."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self.taken = stream, 0

    def read(self, size: int = -1, /) -> bytes:
        if size > _LONGEST_HEADER:
            raise ValueError(f"a header of {size:,} bytes")
        data = self._stream.read(size)
        self.taken += len(data)
        return data
