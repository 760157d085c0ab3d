"""Arrays of .npy and .npz files, without pickle, and no larger than they are.

The header of such an array says how large it is. It is believed only if the file holds
that many bytes, so that a few bytes cannot ask for a machine's whole memory. Members of
an archive are stored or deflated, as numpy writes them, and are never written to disk.
"""

import lzma
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError
from dpaudit.tables.columns import check_size, check_unpacked, found, refuse

__all__ = ["array_names", "read_arrays", "read_npy", "read_npz"]

_LONGEST_HEADER = 1 << 16  # bytes; numpy itself takes no more than 10,000


def read_npz(path: Path) -> Mapping[str, NDArray[Any]]:
    """Return the columns of a table by their meaning: id, bit, score."""
    known = found(path, array_names(path))
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
