"""The rows of Parquet files, some at a time; needs the extra ``tables``.

Files are read one after the other and decoded batch by batch, so memory does not grow
with a file or a row group. Only the columns that are needed are read. What a row may
hold is said in ``columns``; breaches name file, column and row.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError
from dpaudit.tables.columns import found, refuse, to_bits, to_scores
from dpaudit.tables.parquet_files import holds_numbers, opened, values_of

__all__ = ["Batch", "count_rows", "parquet_files", "read_batches"]

_ROWS: Final = 1 << 20  # of a batch; ids in no order are seen faster by the million
_SUFFIX: Final = ".parquet"
_DENSE: Final = (
    "ids are checked where they are whole numbers from 0, and others can be left "
    "unchecked (check_ids=False, or --skip-id-checks)"
)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """Some rows of a file.

    Attributes:
        ids: The canaries, if ids were asked for.
        bits: Their coins, if the file has them.
        scores: Their scores.
    """

    ids: NDArray[np.int64] | None
    bits: NDArray[np.uint8] | None
    scores: NDArray[np.float64]


def parquet_files(paths: Sequence[str | Path]) -> list[Path]:
    """Return the files that are named, and those that directories hold, each once.

    Directories are looked through with all that is in them. As other tools do, what
    begins with a dot or an underscore is passed over.
    """
    files: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = [each for each in path.rglob("*") if _shown(each, path)]
            if not inside:
                raise InvalidInputError(
                    f"{path} holds no {_SUFFIX} file; name a file, or a directory of "
                    "them"
                )
            files += sorted(inside)
        elif path.suffix.lower() != _SUFFIX:
            raise InvalidInputError(
                f"expected {_SUFFIX} files, or a directory of them, got {path}"
            )
        elif not path.is_file():
            raise InvalidInputError(f"there is no file {path}")
        else:
            files.append(path)
    known: set[Path] = set()
    for each in files:
        if each.resolve() in known:
            raise InvalidInputError(f"{each} is named twice")
        known.add(each.resolve())
    return files


def _shown(path: Path, root: Path) -> bool:
    named = path.suffix.lower() == _SUFFIX and path.is_file()
    return named and not any(
        part.startswith((".", "_")) for part in path.relative_to(root).parts
    )


def count_rows(files: Iterable[Path]) -> int:
    """Return how many rows files say that they hold."""
    total = 0
    for path in files:
        with opened(path) as file:
            total += file.metadata.num_rows
    return total


def read_batches(path: Path, *, with_ids: bool) -> Iterator[Batch]:
    """Yield the rows of a file, some at a time."""
    with opened(path) as file:
        known = _columns(path, file.schema_arrow.names, with_ids=with_ids)
        _check_kinds(path, known, file.schema_arrow)
        first = 1
        for rows in file.iter_batches(_ROWS, columns=list(known.values())):
            if rows.num_rows:
                yield _batch(path, first, known, rows)
            first += rows.num_rows


def _columns(path: Path, names: list[str], *, with_ids: bool) -> dict[str, str]:
    known = dict(found(path, names))
    if "score" not in known:
        raise InvalidInputError(f"{path}: there is no column 'score'")
    if not with_ids:
        known.pop("id", None)
    elif "id" not in known:
        raise InvalidInputError(f"{path}: there is no column 'id'")
    return known


def _check_kinds(path: Path, known: dict[str, str], schema: Any) -> None:  # noqa: ANN401 (pyarrow)
    """Refuse text before any of it is decoded: all would take room for the longest."""
    for meaning, name in known.items():
        kind = schema.field(name).type
        if not holds_numbers(kind):
            said = _DENSE if meaning == "id" else f"a {meaning} is a number"
            raise refuse(path, name, None, f"it holds {kind}; {said}")


def _batch(path: Path, first: int, known: dict[str, str], rows: Any) -> Batch:  # noqa: ANN401 (pyarrow)
    read = {
        meaning: values_of(path, name, rows.column(name), first=first)
        for meaning, name in known.items()
    }
    ids, bits = read.get("id"), read.get("bit")
    return Batch(
        ids=None if ids is None else _dense(path, known["id"], ids),
        bits=None if bits is None else to_bits(path, known["bit"], bits, first=first),
        scores=to_scores(path, known["score"], read["score"], first=first),
    )


def _dense(path: Path, name: str, values: NDArray[Any]) -> NDArray[np.int64]:
    if values.dtype.kind not in "iu":
        raise refuse(path, name, None, f"it holds {values.dtype}; {_DENSE}")
    if values.dtype == np.uint64 and values.max() >> 63:
        raise refuse(path, name, None, f"{values.max()} is no id: it is too large")
    return np.asarray(values, np.int64)
