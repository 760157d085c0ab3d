"""Reads columns of scores from a file, keyed by their meaning: id, bit and score.

An id is a whole number or text, a bit is 0 or 1, a score is a number. For every file
format an error names the file, the column, the row (the first row of data is row 1),
the value, and what to do.

A CSV file is UTF-8 text with commas, a header, and one row for each canary. Arrays of
.npy and .npz files are read by numpy, without pickle. The size in the header of such an
array is trusted only if the file holds that many bytes, so that a few bytes cannot
request all of a machine's memory. Members of an archive are stored or deflated, as
numpy writes them, and are never written to disk. ``parquet`` reads Parquet files by the
same rules.
"""

import csv
import lzma
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import IO, Final, TypeAlias, cast, final

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError

__all__ = [
    "MISSING",
    "MOST_BYTES",
    "SPELLINGS",
    "USUAL",
    "Column",
    "ColumnNames",
    "Columns",
    "FileColumn",
    "array_names",
    "check_file",
    "check_flat",
    "check_size",
    "check_texts",
    "check_unpacked",
    "found",
    "read_arrays",
    "read_columns",
    "text_column",
    "to_bits",
    "to_ids",
    "to_scores",
]

Column: TypeAlias = NDArray[np.generic]
Columns: TypeAlias = Mapping[str, Column]  # by meaning

# Names that a column may have: singular or plural.
SPELLINGS: Final = MappingProxyType(
    {"id": ("id", "ids"), "bit": ("bit", "bits"), "score": ("score", "scores")}
)
MOST_BYTES: Final = 8 << 30  # per column; enough for a billion scores
_UNPACKED: Final = 256 << 20  # bytes; always allowed, whatever the file's size
_GROWTH: Final = 100  # times; no meaningful column compresses this well
_LONGEST_HEADER: Final = 1 << 16  # bytes; numpy itself takes no more than 10,000
_WRITE_BITS: Final = "write 1 for included and 0 for not"
MISSING: Final = (
    "a missing score must be replaced by one that does not depend on the coin, for "
    "example the median; a canary left out was chosen by someone"
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnNames:
    """The names of a file's columns.

    Attributes:
        id: The column of ids; None for one of the usual names, ``id`` or ``ids``.
        included: The column of coins; None for ``bit`` or ``bits``.
        score: The column of scores; None for ``score`` or ``scores``.

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
        """The names that each column may have, keyed by meaning."""
        return {
            meaning: usual if (name := self._named[meaning]) is None else (name,)
            for meaning, usual in SPELLINGS.items()
        }

    @property
    def _named(self) -> Mapping[str, str | None]:
        return {"id": self.id, "bit": self.included, "score": self.score}

    def check(self, path: Path, columns: Iterable[str]) -> None:
        """Refuse a file that lacks a requested column."""
        here = list(columns)
        for name in self._named.values():
            if name is not None and name not in here:
                raise InvalidInputError(
                    f"{path}: there is no column {name!r}; it has "
                    f"{', '.join(map(repr, here))[:200] or 'none'}"
                )


USUAL: Final = ColumnNames()


@final
@dataclass(frozen=True, slots=True)
class FileColumn:
    """A column of a file, for use in error messages.

    Attributes:
        path: The file.
        name: The column's name.
        first: The row number of the first value being checked.
    """

    path: Path
    name: str
    first: int = 1

    def refuse(self, problem: str, *, row: int | None = None) -> InvalidInputError:
        """Return the error; ``row`` counts from 0 within the values being checked."""
        place = f"column {self.name!r}"
        if row is not None:
            place += f", row {self.first + row}"
        return InvalidInputError(f"{self.path}, {place}: {problem}")


def found(
    path: Path, columns: Iterable[str], named: ColumnNames = USUAL
) -> Mapping[str, str]:
    """Return the names of the file's columns of ids, bits and scores, by meaning.

    Raises:
        InvalidInputError: A column appears twice, or a requested one is missing.
    """
    names = list(columns)
    named.check(path, names)
    known: dict[str, str] = {}
    for meaning, spellings in named.spellings.items():
        here = [name for name in names if name in spellings]
        if len(here) > 1:
            raise FileColumn(path, here[-1]).refuse(
                f"there are {len(here)} such columns; keep one"
            )
        if here:
            known[meaning] = here[0]
    return known


def check_size(column: FileColumn, size: int) -> None:
    """Refuse a column that is too large, before any memory is allocated."""
    if size > MOST_BYTES:
        raise column.refuse(
            f"it declares {size:,} bytes, and no more than {MOST_BYTES:,} "
            "are read; divide the table",
        )


def check_unpacked(column: FileColumn, size: int, packed: int) -> None:
    """Refuse a column that would fill memory from a few bytes of a file."""
    if size > _UNPACKED and size > _GROWTH * packed:
        raise column.refuse(
            f"it would take {size:,} bytes of memory, and only {packed:,} bytes of it "
            "are in the file; write it without compression, or divide the table",
        )


def check_texts(column: FileColumn, longest: int, rows: int, packed: int) -> None:
    """Refuse texts that would fill memory: each takes as much as the longest."""
    size = 4 * longest * rows
    if size > MOST_BYTES or (size > _UNPACKED and size > _GROWTH * packed):
        raise column.refuse(
            f"its longest text has {longest:,} characters, so that {rows:,} rows would "
            f"take {size:,} bytes of memory; use shorter ids, or whole numbers",
        )


def text_column(column: FileColumn, texts: list[str]) -> NDArray[np.str_]:
    """Return texts as an array, where each takes as much memory as the longest.

    Texts ending in NUL are refused: numpy would drop it, and two ids might become one.
    """
    longest = max(map(len, texts), default=0)
    check_texts(column, longest, len(texts), sum(map(len, texts)))
    if odd := [row for row, text in enumerate(texts) if text.endswith("\0")]:
        raise column.refuse("a text ends in a NUL character", row=odd[0])
    try:
        return np.array(texts, np.str_)
    except UnicodeEncodeError as error:  # halves of surrogate pairs
        raise column.refuse("it is not Unicode text") from error


def check_flat(column: FileColumn, values: Column) -> None:
    """Refuse a column that is not one-dimensional."""
    if values.ndim != 1:
        raise column.refuse(f"expected a list, got an array of shape {values.shape}")


def to_ids(column: FileColumn, values: Column) -> Column:
    """Return ids: whole numbers of 64 bits, or text."""
    kind = values.dtype.kind
    if kind == "S":
        try:
            return np.char.decode(cast("NDArray[np.bytes_]", values), "utf-8")
        except UnicodeDecodeError as error:
            raise column.refuse("it is not UTF-8 text") from error
    if kind not in "iuU":
        raise column.refuse(
            f"it holds {values.dtype}, and ids are whole numbers or text"
        )
    return values.astype({"i": np.int64, "u": np.uint64}.get(kind, values.dtype))


def to_bits(column: FileColumn, values: Column) -> NDArray[np.uint8]:
    """Return bits, which may be stored as numbers or as booleans."""
    if values.dtype.kind not in "iufb":
        raise column.refuse(f"it holds {values.dtype}; {_WRITE_BITS}")
    odd = np.flatnonzero(~((values == 0) | (values == 1)))
    if len(odd):
        problem = f"{values[odd[0]]} is neither 0 nor 1; {_WRITE_BITS}"
        raise column.refuse(problem, row=int(odd[0]))
    return np.asarray(values == 1, np.uint8)


def to_scores(column: FileColumn, values: Column) -> NDArray[np.float64]:
    """Return scores as floats."""
    if values.dtype.kind not in "iufb":
        raise column.refuse(f"it holds {values.dtype}, and scores are numbers")
    with np.errstate(over="ignore", invalid="ignore"):  # of long doubles
        scores = np.asarray(values, np.float64)
    # numpy's min returns NaN if there is one.
    if len(scores) and np.isnan(scores.min()):
        missing = int(np.flatnonzero(np.isnan(scores))[0])
        raise column.refuse(f"the score is not a number; {MISSING}", row=missing)
    return scores


_BITS: Final = MappingProxyType(
    {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}
)


def _read_csv(path: Path, named: ColumnNames) -> Columns:
    with _lines(path) as lines:
        header = next(lines, None)
        if header is None:
            raise InvalidInputError(f"{path} is empty; it must begin with a header")
        return _columns(path, header, lines, named)


def _read_csv_list(path: Path, named: ColumnNames) -> Columns:
    """Return one list of scores: one number per line, or a table's score column."""
    with _lines(path) as lines:
        first = next(lines, None)
        if first is None:
            raise InvalidInputError(f"{path} is empty; it must hold a score a line")
        if len(first) == 1 and _is_number(first[0]) and named.score is None:
            rows = _rows(path, lines, fields=1)
            texts = [first[0], *(row[0] for row in rows)]
            return {"score": _scores(FileColumn(path, "score"), texts)}
        columns = _columns(path, first, lines, named)
        if "score" not in columns:
            raise InvalidInputError(
                f"{path}: expected a number a line, or a column 'score', got the "
                f"header {','.join(first)[:80]!r}"
            )
        return columns


@contextmanager
def _lines(path: Path) -> Iterator[Iterator[list[str]]]:
    """Open a CSV file; errors in reading it name the file."""
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
    path: Path, header: list[str], lines: Iterator[list[str]], named: ColumnNames
) -> Columns:
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
        meaning: convert[meaning](FileColumn(path, known[meaning]), texts[meaning])
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


def _ids(column: FileColumn, texts: list[str]) -> Column:
    """Return whole numbers if every id is written as one; text otherwise."""
    if "" in texts:
        raise column.refuse("the id is missing", row=texts.index(""))
    try:
        numbers = np.array(texts, np.int64)
    except (ValueError, OverflowError):
        return text_column(column, texts)
    # 007 and 7 are two ids.
    same = all(map(str.__eq__, map(str, numbers.tolist()), texts))
    return numbers if same else text_column(column, texts)


def _bits(column: FileColumn, texts: list[str]) -> NDArray[np.uint8]:
    try:
        return np.array([_BITS[text.lower()] for text in texts], np.uint8)
    except KeyError:
        row = next(i for i, text in enumerate(texts) if text.lower() not in _BITS)
        problem = f"{texts[row][:40]!r} is neither 0 nor 1; {_WRITE_BITS}"
        raise column.refuse(problem, row=row) from None


def _scores(column: FileColumn, texts: list[str]) -> NDArray[np.float64]:
    try:
        return np.array([_number(text) for text in texts], np.float64)
    except ValueError:
        row = next(i for i, text in enumerate(texts) if not _is_number(text))
        problem = f"{texts[row][:40]!r} is not a number" if texts[row] else "no score"
        raise column.refuse(f"{problem}; {MISSING}", row=row) from None


def _number(text: str) -> float:
    if "_" in text:  # Python would read 1_0 as 10
        raise ValueError(text)
    return float(text)


def _is_number(text: str) -> bool:
    try:
        _number(text)
    except ValueError:
        return False
    return True


def _read_npz(path: Path, named: ColumnNames) -> Columns:
    known = found(path, array_names(path), named)
    arrays = read_arrays(path, tuple(known.values()))
    return {meaning: arrays[name] for meaning, name in known.items()}


def _read_npz_list(path: Path, named: ColumnNames) -> Columns:
    """Return one list of scores: the only array, or the one named ``scores``."""
    names, spellings = array_names(path), named.spellings["score"]
    named.check(path, names)
    chosen = [name for name in names if name in spellings] or list(names)
    if len(chosen) != 1:
        raise InvalidInputError(
            f"{path}: expected one array, or one called 'scores', got "
            f"{', '.join(names)[:200] or 'none'}"
        )
    return {"score": read_arrays(path, (chosen[0],))[chosen[0]]}


def _read_npy_list(path: Path, named: ColumnNames) -> Columns:
    named.check(path, ())
    with path.open("rb") as stream:
        size = path.stat().st_size
        return {"score": _array(FileColumn(path, "score"), stream, size, size)}


def array_names(path: Path) -> tuple[str, ...]:
    """Return the names of the arrays in a .npz file."""
    with _opened(path) as archive:
        return tuple(name.removesuffix(".npy") for name in archive.namelist())


def read_arrays(path: Path, names: tuple[str, ...]) -> dict[str, Column]:
    """Return the named arrays of a .npz file; each must exist exactly once."""
    with _opened(path) as archive:
        arrays = {}
        for name in names:
            column = FileColumn(path, name)
            member = _member(column, archive)
            size, packed = member.file_size, member.compress_size
            with archive.open(member) as stream:
                arrays[name] = _array(column, stream, size, packed)
    return arrays


def _member(column: FileColumn, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    here = [
        each
        for each in archive.infolist()
        if each.filename.removesuffix(".npy") == column.name
    ]
    if len(here) != 1:
        raise column.refuse(f"there are {len(here)} arrays of this name; keep one")
    if here[0].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise column.refuse("it is compressed in another way than numpy's savez does")
    return here[0]


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open an archive; errors in reading it name the file."""
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
        OSError,  # for example an offset before the file's beginning
        RuntimeError,  # encrypted, or compressed by an unknown method
        ValueError,  # names that are not text
    ) as error:
        raise InvalidInputError(
            f"{path} is not a .npz file, or it is cut off ({error}); write it with "
            "numpy.savez"
        ) from error


def _array(column: FileColumn, stream: IO[bytes], size: int, packed: int) -> Column:
    """Return an array that takes ``size`` bytes, or ``packed`` when compressed."""
    shape, dtype, head = _header(column, stream)
    if dtype.hasobject:
        raise column.refuse(
            "its entries are Python objects, which only pickle reads, and pickle can "
            "run anything; save numbers, or text as numpy.array(..., dtype=str)",
        )
    if not dtype.itemsize:
        raise column.refuse("its entries take no bytes")
    declared = prod(shape) * dtype.itemsize
    check_size(column, declared)
    if head + declared != size:
        raise column.refuse(
            f"it declares {declared:,} bytes, and {max(0, size - head):,} "
            "are there; is the file cut off?",
        )
    check_unpacked(column, declared, packed)
    stream.seek(0)
    try:
        with _quietly():
            return npy.read_array(stream, allow_pickle=False)
    except (TypeError, ValueError, OverflowError) as error:
        raise column.refuse(f"it cannot be read ({error})") from error


def _header(
    column: FileColumn, stream: IO[bytes]
) -> tuple[tuple[int, ...], np.dtype[np.generic], int]:
    """Return the shape, the dtype, and the header's length in bytes."""
    try:
        version = npy.read_magic(stream)
        read, width = {
            (1, 0): (npy.read_array_header_1_0, 2),
            (2, 0): (npy.read_array_header_2_0, 4),
        }[version]
        _check_length(int.from_bytes(stream.read(width), "little"))
        stream.seek(npy.MAGIC_LEN)
        with _quietly():
            shape, _, dtype = read(stream)
    except Exception as error:  # a parser of untrusted bytes may raise anything
        raise column.refuse(f"it is not an array that numpy wrote ({error})") from error
    if any(length < 0 for length in shape):
        raise column.refuse(f"its shape is {shape}")
    return shape, dtype, stream.tell()


def _check_length(header: int) -> None:
    """Refuse a header that would take much memory to read."""
    if header > _LONGEST_HEADER:
        raise ValueError(f"a header of {header:,} bytes")


@contextmanager
def _quietly() -> Iterator[None]:
    """Suppress numpy's warnings, such as those about Python 2 headers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _read_parquet(path: Path, named: ColumnNames) -> Columns:
    from dpaudit.tables.parquet import read_parquet  # noqa: PLC0415 (an extra)

    return read_parquet(path, named)


def _read_parquet_list(path: Path, named: ColumnNames) -> Columns:
    columns = _read_parquet(path, named)
    if "score" not in columns:
        raise InvalidInputError(f"{path}: there is no column 'score'")
    return columns


_Readers: TypeAlias = Mapping[str, Callable[[Path, ColumnNames], Columns]]
_TABLES: Final[_Readers] = MappingProxyType(
    {".parquet": _read_parquet, ".csv": _read_csv, ".npz": _read_npz}
)
_LISTS: Final[_Readers] = MappingProxyType(
    {
        ".npy": _read_npy_list,
        ".npz": _read_npz_list,
        ".csv": _read_csv_list,
        ".parquet": _read_parquet_list,
    }
)


def read_columns(
    path: Path, named: ColumnNames = USUAL, *, one_list: bool = False
) -> Columns:
    """Return the columns of a file, keyed by their meaning: id, bit, score.

    Args:
        path: The file.
        named: The names of its columns.
        one_list: Whether it may hold scores alone: one number per line of a .csv file,
            or an array of a .npy or a .npz file.
    """
    readers = _LISTS if one_list else _TABLES
    columns = readers[check_file(path, tuple(readers))](path, named)
    for meaning, column in columns.items():
        check_flat(FileColumn(path, meaning), column)
    return columns


def check_file(path: Path, suffixes: tuple[str, ...]) -> str:
    """Return the suffix of a file's name, if the file exists and can be read."""
    suffix = path.suffix.lower()
    if path.is_dir():
        raise InvalidInputError(f"{path} is a directory; name one file")
    if suffix not in suffixes and (suffix or path.exists()):
        known = " or ".join(suffixes)
        raise InvalidInputError(f"the name must end in {known}, got {path}")
    if not path.is_file():
        raise InvalidInputError(f"there is no file {path}")
    return suffix
