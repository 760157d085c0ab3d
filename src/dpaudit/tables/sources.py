"""Scores from a table, from two lists, or from a folder of many files.

Each source has a method to audit it and one that lists what its scores cannot show. A
table has an id, optionally a coin, and a score for each canary: columns ``id``, ``bit``
and ``score`` of Parquet, CSV or .npz, or other names given by ``ColumnNames``, in any
order; the bit is omitted if coins are derived from a key. Other columns are ignored.
The .csv files of a folder are read at once as one table; .parquet files are tallied,
however many rows they hold.

Two lists, of included and of excluded canaries, are what other auditing tools take (for
example jax_privacy's ``CanaryScoreAuditor``). They have no ids and no order, so they
cannot show whether each canary's coin was flipped independently. Some violations are
detectable: lengths that fair coins do not give, and lengths that are exactly equal, as
they are if half of the canaries were chosen to be included. The key of a registered
design allows one more check: the number of included canaries must match the key's
coins. The key also breaks ties. Without it ties are broken against the auditor: with no
ids, tie-breaking could only depend on a score's place in its list, and the coin decided
which list that is, so a ``tie_seed`` has no effect (``dpaudit.game.tie_breaking``).
What cannot be checked is reported: that every score is in the list of its own coin, and
that no canary was left out or scored differently because of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.coins import Coins, Key
from dpaudit.game.design import Commitment, Design, check_independent_coins
from dpaudit.game.findings import Finding
from dpaudit.game.result import Result, effect_seen, judge
from dpaudit.game.score_summary import ScoreSummary
from dpaudit.game.scores import (
    audit_scores,
    check_assigned,
    check_rows,
    check_scores,
    read_ranks,
    ties_decided,
)
from dpaudit.game.tie_breaking import TieBreaking
from dpaudit.game.verdict import decided_by_ties
from dpaudit.tables.columns import (
    USUAL,
    Column,
    ColumnNames,
    FileColumn,
    array_names,
    check_flat,
    read_arrays,
    read_columns,
    to_bits,
    to_ids,
    to_scores,
)
from dpaudit.tables.tally import (
    ScoreTally,
    Shard,
    conclude_scores,
    tally_scores,
)

__all__ = [
    "ScoreFolder",
    "ScoreLists",
    "ScoreTable",
    "Scores",
    "files_of",
    "joined_tables",
    "read_folder",
    "read_score_list",
    "read_score_table",
    "read_scores",
    "unseen_in_tallies",
]

_UNSEEN_COINS: Final = (
    "that each bit was a fair coin flip of its own, before the run, is only stated by "
    "the auditor; `dpaudit register` before the next run lets others check"
)
_UNSEEN_HALF: Final = (
    "that the included half was drawn uniformly at random before the run is the "
    "auditor's word; `dpaudit register` before the next run lets others check"
)
_UNCHECKED_IDS: Final = (
    "ids were not checked; that every canary is there, and none twice, is the "
    "auditor's word"
)
_UNSEEN_LISTS: Final = (
    "lists without ids cannot show that every canary's coin was flipped independently, "
    "nor that every score is in the list of its own coin; only the auditor states it"
)
_UNSEEN_HALVES: Final = (
    "lists without ids cannot show that the included half was drawn uniformly at "
    "random, nor that every score stands in the right list; that is the auditor's word"
)
_BOTH: Final = ("in_scores", "out_scores")


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScoreTable:
    """The id, the coin and the score of each canary; rows may be in any order.

    Attributes:
        ids: The canaries: whole numbers, or text.
        bits: 1 for each included canary and 0 for each excluded one; None if the file
            has no such column.
        scores: Larger where the output favours "included", on any scale.
        files: The files it was read from.
    """

    ids: Column
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
        """Audit from these scores, as ``audit_scores``, with the coins of a key."""
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
            raise InvalidRunError(
                f"{len(odd)} of {self.canaries} bits are not the key's coins (the "
                f"first in row {row + 1}, id {self.ids[row]}): the run did not follow "
                "them, or the table is of another run"
            )

    def unseen(self, result: Result) -> list[str]:
        """Return what a result of these scores assumes but they cannot show."""
        return _unseen_coins(result)


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScoreLists:
    """Scores of included canaries, and of excluded canaries, in any order.

    Attributes:
        included: Larger where the output favours "included", on any scale.
        excluded: The same for excluded canaries.
    """

    included: NDArray[np.float64]
    excluded: NDArray[np.float64]

    @property
    def canaries(self) -> int:
        """How many canaries there are."""
        return len(self.included) + len(self.excluded)

    def audit(
        self,
        design: Design,
        key: Key | None = None,
        *,
        coins_were_independent: bool = False,
        not_exercised: tuple[str, ...] = (),
    ) -> Result:
        """Audit from these scores; their order does not matter.

        Args:
            design: As for ``audit_scores``.
            key: The registered key, if there is one: the number of included canaries
                must match its coins, the result carries the commitment, and the key
                breaks ties. Without a key ties are broken against the auditor.
            coins_were_independent: States that the coin flips were independent, in case
                as many canaries are included as excluded.
            not_exercised: Parts of the mechanism that the audit did not exercise.

        Raises:
            InvalidRunError: The lists or the design make the audit invalid.

        Example:
            >>> from dpaudit import ApproxDP, Ranking
            >>> rng = np.random.default_rng(0)
            >>> lists = ScoreLists(
            ...     included=rng.standard_normal(490) + 2,
            ...     excluded=rng.standard_normal(510),
            ... )
            >>> claim = ApproxDP(epsilon=1.0, delta=1e-5)
            >>> design = Design(canaries=1000, rules=Ranking(guesses=1000), claim=claim)
            >>> lists.audit(design).claim_test.refuted
            True
        """
        ones, rows = len(self.included), self.canaries
        # Sorted, so that the result does not depend on their order.
        scores = np.concatenate([np.sort(self.included), np.sort(self.excluded)])
        bits = np.repeat(np.array([1, 0], np.uint8), [ones, rows - ones])
        tie_breaks = None
        if key is not None:
            check_independent_coins(design)
            self._check_number(key, design)
            tie_breaks = TieBreaking.of(design, key)
        else:
            check_rows(rows, design)
            check_assigned(ones, design, stated_independent=coins_were_independent)
        check_scores(scores)
        reading = read_ranks(
            scores,
            bits == 1,
            None if tie_breaks is None else tie_breaks.at(np.arange(rows)),
            design=design,
        )
        ties: tuple[Finding, ...] = ()
        if tie_breaks is None:
            decided = ties_decided(scores, bits == 1, design=design)
            ties = decided_by_ties(decided, design.guesses)
        return judge(
            reading,
            design=design,
            commitment=key and Commitment.to(key, design),
            not_exercised=not_exercised,
            sanity_checks=(effect_seen(reading, design=design), *ties),
            scores=ScoreSummary.of(scores, bits),
        )

    def _check_number(self, key: Key, design: Design) -> None:
        """Refuse lists that do not match the key's coins."""
        if self.canaries != design.canaries:
            raise InvalidRunError(
                f"{self.canaries} scores for canaries={design.canaries}; every canary "
                "whose coin was flipped needs a score"
            )
        ones = int(Coins(key=key, count=design.canaries).bits().sum())
        if ones != len(self.included):
            raise InvalidRunError(
                f"{len(self.included)} canaries are in, but the key's coins put {ones} "
                "in; these are not the scores of the run that was registered"
            )

    def unseen(self, result: Result) -> list[str]:
        """Return what a result of these scores assumes but they cannot show."""
        return [
            _UNSEEN_LISTS if result.design.rules.independent_coins else _UNSEEN_HALVES
        ]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreFolder:
    """Parquet files of scores that form one table, read some rows at a time.

    Attributes:
        files: The files.
        canaries: The number of rows in all files.
        check_ids: Whether to check that ids are 0, 1, ..., each once.
        columns: The names of the columns.
        progress: Called with the number of rows read since the last call.
    """

    files: tuple[Path, ...]
    canaries: int
    check_ids: bool = True
    columns: ColumnNames = USUAL
    progress: Callable[[int], None] = lambda _rows: None

    def tally(self, design: Design, key: Key | None = None) -> ScoreTally:
        """Tally all files in this process."""
        shard = Shard(
            files=self.files,
            design=design,
            key=key,
            check_ids=self.check_ids,
            columns=self.columns,
        )
        return tally_scores(shard, progress=self.progress)

    def audit(
        self,
        design: Design,
        key: Key | None = None,
        *,
        coins_were_independent: bool = False,
        not_exercised: tuple[str, ...] = (),
    ) -> Result:
        """Audit from these scores, as ``conclude_scores``."""
        return conclude_scores(
            [self.tally(design, key)],
            coins_were_independent=coins_were_independent,
            not_exercised=not_exercised,
        )

    def unseen(self, result: Result) -> list[str]:
        """Return what a result of these scores assumes but they cannot show."""
        checked = self.check_ids or result.commitment is not None
        return unseen_in_tallies(result, ids_checked=checked)


def _unseen_coins(result: Result) -> list[str]:
    """Return what cannot be checked about the coins of a result."""
    if result.commitment is not None:
        return []
    return [_UNSEEN_COINS if result.design.rules.independent_coins else _UNSEEN_HALF]


def unseen_in_tallies(result: Result, *, ids_checked: bool) -> list[str]:
    """Return what a result of tallies assumes but they cannot show."""
    ids = [] if ids_checked else [_UNCHECKED_IDS]
    return [*ids, *_unseen_coins(result)]


Scores: TypeAlias = ScoreTable | ScoreLists | ScoreFolder


def read_scores(
    path: Path | None,
    included: Path | None = None,
    excluded: Path | None = None,
    *,
    columns: ColumnNames = USUAL,
) -> Scores:
    """Return the scores of a file, of a folder, or of two lists in a file each."""
    if path is not None and included is None and excluded is None:
        if path.is_dir():
            return _read_directory(path, columns)
        if _holds_lists(path):
            return _read_both_lists(path)
        return read_score_table(path, columns=columns)
    if path is None and included is not None and excluded is not None:
        return ScoreLists(
            included=read_score_list(included, columns=columns),
            excluded=read_score_list(excluded, columns=columns),
        )
    raise InvalidInputError("give either a file of scores, or --in and --out")


def _read_directory(path: Path, columns: ColumnNames) -> ScoreTable | ScoreFolder:
    """Return one table of all .csv files of a directory, or its .parquet files."""
    kinds = {each.suffix.lower() for each in shown_files(path)} & {".csv", ".parquet"}
    if kinds != {".csv"}:
        if ".csv" in kinds:
            raise InvalidInputError(
                f"{path} holds .csv and .parquet files; name a directory of one kind"
            )
        return read_folder([path], columns=columns)
    files = files_of([path], ".csv")
    return joined_tables([read_score_table(file, columns=columns) for file in files])


def read_folder(
    paths: Sequence[Path], *, check_ids: bool = True, columns: ColumnNames = USUAL
) -> ScoreFolder:
    """Return the named Parquet files and those in directories, with their rows."""
    from dpaudit.tables.parquet import count_rows  # noqa: PLC0415 (an extra)

    files = files_of(paths, ".parquet")
    rows = count_rows(files)
    if not rows:
        raise InvalidInputError(f"there is no row in any file of {paths[0]}")
    return ScoreFolder(
        files=tuple(files), canaries=rows, check_ids=check_ids, columns=columns
    )


def read_score_table(path: str | Path, *, columns: ColumnNames = USUAL) -> ScoreTable:
    r"""Return the table that a .parquet, .csv or .npz file holds.

    Args:
        path: The file. Parquet needs the extra ``tables``.
        columns: The names of its columns, if not ``id``, ``bit`` and ``score``.

    Raises:
        InvalidInputError: The file does not hold such a table; the message names the
            place, and what to do.

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
    found = read_columns(path, columns)
    for needed in ("id", "score"):
        if needed not in found:
            raise InvalidInputError(
                f"{path}: there is no column {needed!r}; a table has the columns id, "
                "score and, unless coins are derived from a key, bit"
            )
    if not len(found["score"]):
        raise InvalidInputError(f"{path}: there is no row; every canary needs one")
    sizes = {meaning: len(column) for meaning, column in found.items()}
    for meaning, size in sizes.items():
        if size != sizes["score"]:
            raise FileColumn(path, meaning).refuse(
                f"{size} rows beside {sizes['score']} scores"
            )
    bits = found.get("bit")
    return ScoreTable(
        ids=to_ids(FileColumn(path, "id"), found["id"]),
        bits=None if bits is None else to_bits(FileColumn(path, "bit"), bits),
        scores=to_scores(FileColumn(path, "score"), found["score"]),
        files=(path,),
    )


def joined_tables(tables: Sequence[ScoreTable]) -> ScoreTable:
    """Return one table with the rows of several.

    Raises:
        InvalidRunError: Some tables hold coins and others do not.
    """
    bits = [table.bits for table in tables if table.bits is not None]
    if bits and len(bits) < len(tables):
        raise InvalidRunError("some files hold coins and others do not")
    return ScoreTable(
        ids=np.concatenate([table.ids for table in tables]),
        bits=np.concatenate(bits) if bits else None,
        scores=np.concatenate([table.scores for table in tables]),
        files=tuple(file for table in tables for file in table.files),
    )


def read_score_list(
    path: str | Path, *, columns: ColumnNames = USUAL
) -> NDArray[np.float64]:
    """Return the scores that a .npy, .npz, .csv or .parquet file holds.

    A .csv file has one number per line, or a column ``score``; a .npz file one array,
    or one named ``scores``; ``columns`` may give another name.
    """
    path = Path(path)
    found = read_columns(path, columns, one_list=True)
    return to_scores(FileColumn(path, "score"), found["score"])


def _holds_lists(path: Path) -> bool:
    """Return whether a file is a .npz file of two lists, not of a table."""
    if path.suffix.lower() != ".npz" or not path.is_file():
        return False
    return any(name in _BOTH for name in array_names(path))


def _read_both_lists(path: Path) -> ScoreLists:
    """Return both lists from one .npz file, ``in_scores`` and ``out_scores``."""
    names = array_names(path)
    for needed in _BOTH:
        if names.count(needed) != 1:
            raise InvalidInputError(
                f"{path}: expected one array {needed!r}, got {', '.join(names)[:200]}"
            )
    arrays = read_arrays(path, _BOTH)
    for name, array in arrays.items():
        check_flat(FileColumn(path, name), array)
    included, excluded = (
        to_scores(FileColumn(path, name), arrays[name]) for name in _BOTH
    )
    return ScoreLists(included=included, excluded=excluded)


def files_of(paths: Sequence[str | Path], suffix: str) -> list[Path]:
    """Return the named files, and those that directories hold; refuse duplicates.

    Directories are searched recursively. As in other tools, names that begin with a dot
    or an underscore are skipped.
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
    """Return all files below a directory except hidden ones, sorted."""
    return sorted(
        path
        for path in directory.rglob("*")
        if path.is_file()
        and not any(
            part.startswith((".", "_")) for part in path.relative_to(directory).parts
        )
    )
