"""Scores as ``dpaudit audit`` takes them: a table, or lists; and what is said of them.

What nobody can see from a file of scores is said in notes beside the verdict.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from dpaudit.cli._designs import note_on_ranking
from dpaudit.cli._tallying import Directory, find_files, tallied
from dpaudit.errors import InvalidInputError, VoidAuditError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dpaudit.game.coins import Coins, Key
    from dpaudit.game.design import Design
    from dpaudit.game.result import Result
    from dpaudit.tables.lists import ScoreLists
    from dpaudit.tables.reading import ScoreTable

__all__ = ["check_source", "has_ids", "judged", "notes_on", "read_source", "spoken"]

# What a library's advice is called on the command line.
_SPOKEN = {
    "pass tie_rng=np.random.default_rng(...)": "give --tie-seed N",
    "leave out check_ids=False": "leave out --skip-id-checks",
    "pass coins_were_independent=True": "give --coins-were-independent",
    ", or be the Coins of the audit": ", or be derived from a --key",
}
_FAR = 4.0  # standard deviations, beyond which scores are said to be turned round


def check_source(
    scores: Path | None, *, evidence: Path | None, skip_id_checks: bool
) -> None:
    """Refuse options that do not go with what is to be read."""
    directory = scores is not None and scores.is_dir()
    if directory and evidence is not None:
        raise InvalidInputError(
            "--evidence names single files of scores. Of a directory, keep the tallies "
            "(dpaudit tally), from which dpaudit merge gives the result again"
        )
    if skip_id_checks and not directory:
        raise InvalidInputError("--skip-id-checks is for a directory of scores")


def read_source(
    scores: Path | None, included: Path | None, excluded: Path | None
) -> "ScoreTable | ScoreLists | Directory":
    """Return what the files named hold; of a directory, which files there are."""
    from dpaudit.tables import lists  # noqa: PLC0415
    from dpaudit.tables.reading import read_score_table  # noqa: PLC0415

    if scores is not None and included is None and excluded is None:
        if scores.is_dir():
            return find_files([scores])
        if lists.holds_lists(scores):
            return lists.read_both_lists(scores)
        return read_score_table(scores)
    if scores is None and included is not None and excluded is not None:
        return lists.ScoreLists(
            included=lists.read_score_list(included),
            excluded=lists.read_score_list(excluded),
        )
    raise InvalidInputError("give either a file of scores, or --in and --out")


def has_ids(source: "ScoreTable | ScoreLists | Directory") -> bool:
    """Return whether scores come in a file with ids; lists do not."""
    from dpaudit.tables.reading import ScoreTable  # noqa: PLC0415 (numpy)

    return isinstance(source, ScoreTable)


def judged(
    source: "ScoreTable | ScoreLists | Directory",
    design: "Design",
    key: "Key | None",
    *,
    independent: bool,
    check_ids: bool,
    not_exercised: tuple[str, ...],
) -> "Result":
    """Return the result of an audit of these scores."""
    from dpaudit.game.coins import Coins  # noqa: PLC0415
    from dpaudit.game.lots import tie_rng  # noqa: PLC0415
    from dpaudit.game.scores import audit_scores  # noqa: PLC0415
    from dpaudit.tables.concluding import LOTS_ADVICE, conclude_scores  # noqa: PLC0415
    from dpaudit.tables.lists import ScoreLists, audit_score_lists  # noqa: PLC0415

    coins = key and Coins(key=key, count=design.canaries)
    try:
        if isinstance(source, Directory):
            return conclude_scores(
                [tallied(source, design, key, check_ids=check_ids)],
                coins_were_independent=independent,
                not_exercised=not_exercised,
            )
        if isinstance(source, ScoreLists):
            return audit_score_lists(
                source,
                design=design,
                coins=coins,
                coins_were_independent=independent,
                not_exercised=not_exercised,
            )
        result = audit_scores(
            source.ids,
            _bits(source) if coins is None else coins,
            source.scores,
            design=design,
            tie_rng=tie_rng(design, key),
            coins_were_independent=independent,
            not_exercised=not_exercised,
        )
    except VoidAuditError as error:
        # Where the design comes from options, a tie seed is one of them.
        advice = "give --tie-seed N, or a design with a key"
        said = str(error).replace(LOTS_ADVICE, advice)
        raise VoidAuditError(spoken(said)) from error
    if coins is not None:
        _check_bits(source, coins)
    return result


def _bits(table: "ScoreTable") -> "NDArray[np.uint8]":
    if table.bits is None:
        raise InvalidInputError(
            "the table has no column 'bit', so the coins must come from a key: give "
            "--design and --key"
        )
    return table.bits


def _check_bits(table: "ScoreTable", coins: "Coins") -> None:
    """Refuse a table whose bits are not the key's coins."""
    import numpy as np  # noqa: PLC0415

    if table.bits is None:
        return
    odd = np.flatnonzero(coins.at(table.ids.astype(np.int64)) != table.bits)
    if len(odd):
        row = int(odd[0])
        raise VoidAuditError(
            f"{len(odd)} of {table.canaries} bits are not the key's coins (the first "
            f"in row {row + 1}, id {table.ids[row]}): the run did not follow them, or "
            "the table is of another run"
        )


def spoken(message: str) -> str:
    """Return advice with the names that it has on the command line."""
    for inside, here in _SPOKEN.items():
        message = message.replace(inside, here)
    return message


def notes_on(
    source: "ScoreTable | ScoreLists | Directory",
    result: "Result",
    *,
    registered: bool,
    ids_checked: bool = True,
) -> list[str]:
    """Return what the numbers rest on that nobody can see from them."""
    from dpaudit.tables.concluding import UNCHECKED_IDS  # noqa: PLC0415
    from dpaudit.tables.lists import UNSEEN, ScoreLists  # noqa: PLC0415

    notes = []
    if not ids_checked:
        notes.append(UNCHECKED_IDS)
    if isinstance(source, ScoreLists):
        notes.append(UNSEEN)
    elif result.commitment is None:
        notes.append(
            "that each bit was a fair coin of its own, thrown before the run, is the "
            "auditor's word; `dpaudit register` before the next run lets others check"
        )
    if not registered:
        notes.append(
            "the verdict holds if claim, alpha and guesses were chosen without looking "
            "at the coins"
        )
    little = note_on_ranking(result.design)
    if little is not None:
        notes.append(little)
    if _turned_round(result):
        notes.append(
            "included canaries score lower than the others. Where a high score speaks "
            'for "excluded", as a loss does, give minus the scores next time; turning '
            "them round now, after a look, would double the chance of being wrong"
        )
    return notes


def _turned_round(result: "Result") -> bool:
    """Return whether included canaries score lower by more than chance explains."""
    from math import sqrt  # noqa: PLC0415

    import numpy as np  # noqa: PLC0415

    seen = result.scores
    if seen is None:
        return False
    ones, zeros = sum(seen.included), sum(seen.excluded)
    if not ones or not zeros:
        return False
    area = float(np.trapezoid(seen.true_positive, seen.false_positive))
    # The area under the ROC curve of scores that say nothing (Mann and Whitney).
    return area < 0.5 - _FAR * sqrt((ones + zeros + 1) / (12 * ones * zeros))
