"""Two lists of scores, of canaries that were in and of those that were out.

This is what other tools for auditing take (jax_privacy's ``CanaryScoreAuditor``, for
one). Such lists have no ids and no order, so nobody can see from them whether each
canary's coin was thrown by itself. Some breaches do show: lengths that fair coins do
not give, and lengths that are exactly equal, as they are where half of the canaries
were chosen to be in. With the key of a registered design there is one more check: as
many are in as the key's coins say. The key also decides between equal scores. Without
it ties are broken against the auditor: with no ids there is nothing that lots could be
drawn for but a score's place in its list, and which list that is the coin decided, so a
``tie_seed`` decides nothing here (``dpaudit.game.lots``). What stays unseen is said,
not passed over: that every score stands in the list of its own coin, and that no canary
was left out or scored in another way because of it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError, VoidAuditError
from dpaudit.game.coins import Coins, Key
from dpaudit.game.design import Commitment, Design, check_own_coins
from dpaudit.game.lots import Lots
from dpaudit.game.result import Result, effect_seen, judge
from dpaudit.game.score_summary import ScoreSummary
from dpaudit.game.scores import (
    check_assigned,
    check_rows,
    check_scores,
    read_ranks,
    ties_decided,
)
from dpaudit.game.verdict import Control, decided_by_ties
from dpaudit.tables.columns import (
    USUAL,
    ColumnNames,
    array_names,
    check_flat,
    read_arrays,
    read_csv_list,
    read_npy,
    to_scores,
)
from dpaudit.tables.reading import check_file

__all__ = [
    "UNSEEN",
    "UNSEEN_HALF",
    "ScoreLists",
    "audit_score_lists",
    "holds_lists",
    "read_both_lists",
    "read_score_list",
]

UNSEEN: Final = (
    "lists without ids cannot show that every canary's coin was thrown by itself, nor "
    "that every score stands in the list of its own coin; that is the auditor's word"
)
UNSEEN_HALF: Final = (
    "lists without ids cannot show that the included half was drawn uniformly at "
    "random, nor that every score stands in the right list; that is the auditor's word"
)
_BOTH: Final = ("in_scores", "out_scores")


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScoreLists:
    """Scores of canaries that were in, and of those that were out, in any order.

    Attributes:
        included: How much the output speaks for "included", on any scale.
        excluded: The same of the others.
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
        """Audit from these scores; as ``audit_score_lists``."""
        return audit_score_lists(
            self,
            design=design,
            coins=key and Coins(key=key, count=design.canaries),
            coins_were_independent=coins_were_independent,
            not_exercised=not_exercised,
        )

    def unseen(self, result: Result) -> list[str]:
        """Return what a result of these scores rests on that they do not show."""
        return [UNSEEN if result.design.rules.own_coins else UNSEEN_HALF]


def read_score_list(
    path: str | Path, *, columns: ColumnNames = USUAL
) -> NDArray[np.float64]:
    """Return the scores that a .npy, .npz, .csv or .parquet file holds.

    A .csv file has a number a line, or a column ``score``; a .npz file one array, or
    one that is called ``scores``; ``columns`` may name another.
    """
    path = Path(path)
    scores = _READERS[check_file(path, tuple(_READERS))](path, columns)
    check_flat(path, "score", scores)
    return to_scores(path, "score", scores)


def holds_lists(path: Path) -> bool:
    """Return whether a file is a .npz file with lists, not a table."""
    if path.suffix.lower() != ".npz" or not path.is_file():
        return False
    return any(name in _BOTH for name in array_names(path))


def read_both_lists(path: str | Path) -> ScoreLists:
    """Return both lists from one .npz file, ``in_scores`` and ``out_scores``."""
    path = Path(path)
    check_file(path, (".npz",))
    names = array_names(path)
    for needed in _BOTH:
        if names.count(needed) != 1:
            raise InvalidInputError(
                f"{path}: expected one array {needed!r}, got {', '.join(names)[:200]}"
            )
    arrays = read_arrays(path, _BOTH)
    for name, array in arrays.items():
        check_flat(path, name, array)
    included, excluded = (to_scores(path, name, arrays[name]) for name in _BOTH)
    return ScoreLists(included=included, excluded=excluded)


def audit_score_lists(
    lists: ScoreLists,
    *,
    design: Design,
    coins: Coins | None = None,
    coins_were_independent: bool = False,
    not_exercised: tuple[str, ...] = (),
) -> Result:
    """Audit from lists of scores; their order does not matter.

    Args:
        lists: The scores.
        design: As for ``audit_scores``.
        coins: Of the registered key, if there is one: as many canaries must be in as
            they say, the result carries the commitment, and lots from the key decide
            between equal scores. Without a key ties are broken against the auditor.
        coins_were_independent: States that every coin was thrown by itself, should
            there be as many in as out.
        not_exercised: Parts of the mechanism that the audit did not run through.

    Raises:
        VoidAuditError: The lists or the design void what the audit would say.

    Example:
        >>> from dpaudit import ApproxDP, Ranking
        >>> rng = np.random.default_rng(0)
        >>> lists = ScoreLists(
        ...     included=rng.standard_normal(490) + 2, excluded=rng.standard_normal(510)
        ... )
        >>> claim = ApproxDP(epsilon=1.0, delta=1e-5)
        >>> design = Design(canaries=1000, rules=Ranking(guesses=1000), claim=claim)
        >>> audit_score_lists(lists, design=design).claim_test.refuted
        True
    """
    ones, rows = len(lists.included), lists.canaries
    # Sorted, so that the result is the same whatever the order was.
    scores = np.concatenate([np.sort(lists.included), np.sort(lists.excluded)])
    bits = np.repeat(np.array([1, 0], np.uint8), [ones, rows - ones])
    lots = None
    if coins is not None:
        check_own_coins(design)
        _check_number(lists, coins, design)
        lots = Lots.of(design, coins.key)
    else:
        check_rows(rows, design)
        check_assigned(ones, design, said_independent=coins_were_independent)
    check_scores(scores)
    reading = read_ranks(
        scores,
        bits == 1,
        None if lots is None else lots.at(np.arange(rows)),
        design=design,
    )
    ties: tuple[Control, ...] = ()
    if lots is None:
        decided = ties_decided(scores, bits == 1, design=design)
        ties = decided_by_ties(decided, design.guesses)
    return judge(
        reading,
        design=design,
        commitment=None if coins is None else Commitment.to(coins.key, design),
        not_exercised=not_exercised,
        controls=(effect_seen(reading, design=design), *ties),
        scores=ScoreSummary.of(scores, bits),
    )


def _check_number(lists: ScoreLists, coins: Coins, design: Design) -> None:
    """Refuse lists that cannot be those of the key's coins."""
    if not coins.count == design.canaries == lists.canaries:
        raise VoidAuditError(
            f"{lists.canaries} scores and {coins.count} coins for canaries="
            f"{design.canaries}; every canary whose coin was thrown needs a score"
        )
    ones = int(coins.bits().sum())
    if ones != len(lists.included):
        raise VoidAuditError(
            f"{len(lists.included)} canaries are in, but the key's coins put {ones} "
            "in; these are not the scores of the run that was registered"
        )


def _read_npz_list(path: Path, columns: ColumnNames) -> NDArray[Any]:
    names, spellings = array_names(path), columns.spellings["score"]
    columns.check(path, names)
    chosen = [name for name in names if name in spellings] or list(names)
    if len(chosen) != 1:
        raise InvalidInputError(
            f"{path}: expected one array, or one called 'scores', got "
            f"{', '.join(names)[:200] or 'none'}"
        )
    return read_arrays(path, (chosen[0],))[chosen[0]]


def _read_parquet_list(path: Path, columns: ColumnNames) -> NDArray[Any]:
    from dpaudit.tables.parquet import read_parquet  # noqa: PLC0415 (an extra)

    found = read_parquet(path, columns)
    if "score" not in found:
        raise InvalidInputError(f"{path}: there is no column 'score'")
    return found["score"]


def _read_npy_list(path: Path, columns: ColumnNames) -> NDArray[Any]:
    columns.check(path, ())
    return read_npy(path)


_READERS: Final[MappingProxyType[str, Callable[[Path, ColumnNames], NDArray[Any]]]] = (
    MappingProxyType(
        {
            ".npy": _read_npy_list,
            ".npz": _read_npz_list,
            ".csv": read_csv_list,
            ".parquet": _read_parquet_list,
        }
    )
)
