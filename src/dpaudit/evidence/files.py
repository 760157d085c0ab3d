"""Scores that stay in their files: the evidence names each file and its hash.

A score table may be large, or may not be published with the evidence. Anyone with the
files can check that they are the audited ones and recompute the tallies.

Ties between scores are broken by random numbers that key or design fixed before the run
(``tie_rng``): the same for every verifier, and chosen by nobody. With neither, ties are
broken against the auditor.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from dpaudit import _validate
from dpaudit._codec import Document
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.tables.columns import USUAL, ColumnNames
from dpaudit.tables.sources import ScoreTable, joined_tables, read_score_table

__all__ = ["ScoreFile", "ScoreFiles", "file_digest", "read_score_files", "score_files"]

_BLOCK = 1 << 20
_LONGEST_NAME = 255  # bytes; the limit of common file systems


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreFile:
    """One file of scores.

    Attributes:
        name: Its name, without a folder.
        sha256: The hash of its bytes.
        rows: How many canaries it scores.
    """

    name: str
    sha256: str
    rows: int

    def __post_init__(self) -> None:
        if (
            not isinstance(self.name, str)
            or self.name != Path(self.name).name
            or self.name in ("", "..")
            or "\\" in self.name
            or not self.name.isprintable()
            or len(self.name.encode()) > _LONGEST_NAME
        ):
            raise InvalidInputError(
                "name must be that of a file, without a folder, of characters that can "
                f"be printed and of at most {_LONGEST_NAME} bytes, got "
                f"name={self.name!r}"
            )
        _validate.sha256("sha256", self.sha256)
        if isinstance(self.rows, bool) or not isinstance(self.rows, int):
            raise InvalidInputError(
                f"rows must be a whole number, got rows={self.rows!r}"
            )
        _validate.whole_number("rows", self.rows, least=1)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreFiles(Document):
    """All files of an audit of scores, read in the order of their names.

    Attributes:
        files: Each file, in that order.
        coins_were_independent: The value passed to ``audit_scores``; it matters for
            coins that are in the files and of which exactly half are ones.
        columns: What their columns are called.
        paths: Where the files were when they were hashed; not part of the record.
    """

    files: tuple[ScoreFile, ...]
    coins_were_independent: bool = False
    columns: ColumnNames = USUAL
    paths: tuple[Path, ...] = field(default=(), compare=False, repr=False)

    form = "dpaudit.score-files.1"
    optional = ("columns",)

    def __post_init__(self) -> None:
        names = [file.name for file in self.files]
        if not names or names != sorted(set(names)):
            raise InvalidInputError(
                "files must be one or more, of different names and in the order of "
                f"these, got {names}"
            )
        if not isinstance(self.coins_were_independent, bool):
            raise InvalidInputError(
                "coins_were_independent must be true or false, got "
                f"{self.coins_were_independent!r}"
            )


def score_files(
    paths: Iterable[str | Path],
    *,
    coins_were_independent: bool = False,
    columns: ColumnNames = USUAL,
) -> ScoreFiles:
    """Return the names, hashes and sizes of files of scores.

    Args:
        paths: The files. They are read in the order of their names, so that nobody
            can choose another order.
        coins_were_independent: As passed to ``audit_scores``.
        columns: What their columns are called.
    """
    ordered = tuple(sorted(map(Path, paths), key=lambda path: path.name))
    files = tuple(
        ScoreFile(
            name=path.name,
            sha256=file_digest(path),
            rows=len(read_score_table(path, columns=columns).ids),
        )
        for path in ordered
    )
    return ScoreFiles(
        files=files,
        coins_were_independent=coins_were_independent,
        columns=columns,
        paths=ordered,
    )


def read_score_files(named: ScoreFiles, folder: Path | None = None) -> ScoreTable:
    """Return the scores of all files, each checked against its hash.

    Args:
        named: The files.
        folder: Where they are now; by default they are read from their original paths.

    Raises:
        InvalidRunError: A file is missing, or its hash differs.
    """
    paths = [folder / file.name for file in named.files] if folder else named.paths
    each = zip(named.files, paths, strict=True)
    return joined_tables([_read(file, path, named.columns) for file, path in each])


def _read(file: ScoreFile, path: Path, columns: ColumnNames) -> ScoreTable:
    if not path.is_file():
        raise InvalidRunError(f"{file.name} is not in the folder given")
    if file_digest(path) != file.sha256:
        raise InvalidRunError(
            f"{file.name} is not the file that was audited: its SHA-256 differs"
        )
    table = read_score_table(path, columns=columns)
    if len(table.ids) != file.rows:
        raise InvalidRunError(
            f"{file.name} has {len(table.ids)} rows, and the evidence states "
            f"{file.rows}"
        )
    return table


def file_digest(path: str | Path) -> str:
    """Return the SHA-256 of a file's bytes, in hex digits."""
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
