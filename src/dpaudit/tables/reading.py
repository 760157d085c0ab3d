"""A table of scores from a file: an id, perhaps a coin, and a score for each canary.

Parquet, CSV and .npz say the same in three ways: columns ``id``, ``bit`` and ``score``,
or as ``ColumnNames`` calls them, in any order, the bit being left out where coins are
derived from a key. Other columns are left alone. Several files may hold one table. A
table that cannot be what it should is refused with the file, the column and the row;
whether it makes a valid audit is ``audit_scores``'s to say.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError, VoidAuditError
from dpaudit.game.coins import Coins, Key
from dpaudit.game.design import Design
from dpaudit.game.result import Result
from dpaudit.game.scores import audit_scores
from dpaudit.tables.columns import (
    USUAL,
    ColumnNames,
    check_flat,
    read_csv,
    read_npz,
    refuse,
    to_bits,
    to_ids,
    to_scores,
)

__all__ = [
    "UNSEEN_COINS",
    "ScoreTable",
    "check_file",
    "files_of",
    "joined_tables",
    "read_score_table",
    "shown_files",
    "unseen_coins",
]

UNSEEN_COINS: Final = (
    "that each bit was a fair coin of its own, thrown before the run, is the auditor's "
    "word; `dpaudit register` before the next run lets others check"
)

_UNSEEN_HALF: Final = (
    "that the included half was drawn uniformly at random before the run is the "
    "auditor's word; `dpaudit register` before the next run lets others check"
)

Columns = Mapping[str, NDArray[Any]]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScoreTable:
    """What a file says of each canary; rows may be in any order.

    Attributes:
        ids: The canaries: whole numbers, or text.
        bits: 1 for each that was included and 0 for each that was not; None where the
            file does not say.
        scores: How much the output speaks for "included", on any scale.
        files: What it was read from.
    """

    ids: NDArray[Any]
    bits: NDArray[np.uint8] | None
    scores: NDArray[np.float64]
    files: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        lengths = {len(self.ids), len(self.scores)}
        if self.bits is not None:
            lengths.add(len(self.bits))
        if len(lengths) > 1:
            raise InvalidInputError(
                f"ids, bits and scores must have one length, got {sorted(lengths)}"
            )

    @property
    def canaries(self) -> int:
        """How many canaries there are."""
        return len(self.ids)

    def audit(
        self,
        design: Design,
        key: Key | None = None,
        *,
        coins_were_independent: bool = False,
        not_exercised: tuple[str, ...] = (),
    ) -> Result:
        """Audit from these scores; as ``audit_scores``, with the coins of a key."""
        coins: NDArray[np.uint8] | Coins
        if key is not None:
            coins = Coins(key=key, count=design.canaries)
        elif self.bits is not None:
            coins = self.bits
        else:
            raise InvalidInputError(
                "the table has no column 'bit', so the coins must come from a key: "
                "give a registered design and its key (--design and --key)"
            )
        result = audit_scores(
            self.ids,
            coins,
            self.scores,
            design=design,
            coins_were_independent=coins_were_independent,
            not_exercised=not_exercised,
        )
        if isinstance(coins, Coins):
            self._check_bits(coins)
        return result

    def _check_bits(self, coins: Coins) -> None:
        """Refuse a table whose bits are not the key's coins."""
        if self.bits is None:
            return
        odd = np.flatnonzero(coins.at(self.ids.astype(np.int64)) != self.bits)
        if len(odd):
            row = int(odd[0])
            raise VoidAuditError(
                f"{len(odd)} of {self.canaries} bits are not the key's coins (the "
                f"first in row {row + 1}, id {self.ids[row]}): the run did not follow "
                "them, or the table is of another run"
            )

    def unseen(self, result: Result) -> list[str]:
        """Return what a result of these scores rests on that they do not show."""
        return unseen_coins(result)


def unseen_coins(result: Result) -> list[str]:
    """Return what nobody can see of the coins of a result."""
    if result.commitment is not None:
        return []
    return [UNSEEN_COINS if result.design.rules.own_coins else _UNSEEN_HALF]


def read_score_table(path: str | Path, *, columns: ColumnNames = USUAL) -> ScoreTable:
    r"""Return the table that a .parquet, .csv or .npz file holds.

    Args:
        path: The file. Parquet needs the extra ``tables``.
        columns: What its columns are called, if not ``id``, ``bit`` and ``score``.

    Raises:
        InvalidInputError: It holds no such table; the message says where, and what to
            do.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "scores.csv"
        ...     _ = path.write_text("score,id,bit\n0.5,1,1\n-2,0,0\n")
        ...     table = read_score_table(path)
        >>> table.ids, table.bits, table.scores
        (array([1, 0]), array([1, 0], dtype=uint8), array([ 0.5, -2. ]))
    """
    path = Path(path)
    found = _READERS[check_file(path, tuple(_READERS))](path, columns)
    for needed in ("id", "score"):
        if needed not in found:
            raise InvalidInputError(
                f"{path}: there is no column {needed!r}; a table has the columns id, "
                "score and, unless coins are derived from a key, bit"
            )
    for meaning, column in found.items():
        check_flat(path, meaning, column)
    if not len(found["score"]):
        raise InvalidInputError(f"{path}: there is no row; every canary needs one")
    sizes = {meaning: len(column) for meaning, column in found.items()}
    for meaning, size in sizes.items():
        if size != sizes["score"]:
            raise refuse(
                path, meaning, None, f"{size} rows beside {sizes['score']} scores"
            )
    bits = found.get("bit")
    return ScoreTable(
        ids=to_ids(path, "id", found["id"]),
        bits=None if bits is None else to_bits(path, "bit", bits),
        scores=to_scores(path, "score", found["score"]),
        files=(path,),
    )


def joined_tables(tables: Sequence[ScoreTable]) -> ScoreTable:
    """Return one table of the rows of several.

    Raises:
        VoidAuditError: Some hold coins and others do not.
    """
    bits = [table.bits for table in tables if table.bits is not None]
    if bits and len(bits) < len(tables):
        raise VoidAuditError("some files hold coins and others do not")
    return ScoreTable(
        ids=np.concatenate([table.ids for table in tables]),
        bits=np.concatenate(bits) if bits else None,
        scores=np.concatenate([table.scores for table in tables]),
        files=tuple(file for table in tables for file in table.files),
    )


def files_of(paths: Sequence[str | Path], suffix: str) -> list[Path]:
    """Return the files that are named, and those that directories hold, each once.

    Directories are looked through with all that is in them. As other tools do, what
    begins with a dot or an underscore is passed over.
    """
    files: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = [f for f in shown_files(path) if f.suffix.lower() == suffix]
            if not inside:
                raise InvalidInputError(
                    f"{path} holds no {suffix} file; name a file, or a directory of "
                    "them"
                )
            files += inside
        elif path.suffix.lower() != suffix:
            raise InvalidInputError(
                f"expected {suffix} files, or a directory of them, got {path}"
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


def shown_files(directory: Path) -> list[Path]:
    """Return all files below a directory but hidden ones, in order."""
    return sorted(
        path
        for path in directory.rglob("*")
        if path.is_file()
        and not any(
            part.startswith((".", "_")) for part in path.relative_to(directory).parts
        )
    )


def check_file(path: Path, suffixes: tuple[str, ...]) -> str:
    """Return the ending of a file's name, if the file is there and can be read."""
    suffix = path.suffix.lower()
    if path.is_dir():
        raise InvalidInputError(f"{path} is a directory; name one file")
    if suffix not in suffixes and (suffix or path.exists()):
        known = " or ".join(suffixes)
        raise InvalidInputError(f"the name must end in {known}, got {path}")
    if not path.is_file():
        raise InvalidInputError(f"there is no file {path}")
    return suffix


def _read_parquet(path: Path, columns: ColumnNames) -> Columns:
    from dpaudit.tables.parquet import read_parquet  # noqa: PLC0415 (an extra)

    return read_parquet(path, columns)


_READERS: Final[MappingProxyType[str, Callable[[Path, ColumnNames], Columns]]] = (
    MappingProxyType({".parquet": _read_parquet, ".csv": read_csv, ".npz": read_npz})
)
