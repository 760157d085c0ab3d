"""The rows as a CSV file, with all digits: ``lab/results/calibration.csv``.

A line for each row, with what a ``Row`` holds and its verdict. The file has the two
tables that are corrected for by themselves, rules with whole audits and the pipeline;
either can be written anew without the other.
"""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import fields
from io import StringIO
from typing import Final

from dpaudit.errors import InvalidInputError
from dpaudit_lab.calibration.table import Part, Row

__all__ = ["csv_text", "read_csv", "replaced"]

_NAMES: Final = tuple(field.name for field in fields(Row))
_HEADINGS: Final = (*_NAMES, "verdict")
_OURS: Final = {"True": True, "False": False}


def csv_text(rows: Iterable[Row]) -> str:
    """Return rows as CSV; what was not simulated has no runs.

    Example:
        >>> row = Row(
        ...     part=Part.RULES,
        ...     rule="betting",
        ...     ours=True,
        ...     null="silent",
        ...     epsilon=0.0,
        ...     delta=0.0,
        ...     canaries=100,
        ...     alpha=0.05,
        ...     runs=None,
        ...     rate=0.02,
        ...     low=0.02,
        ...     high=0.02,
        ... )
        >>> print(csv_text([row]).splitlines()[1])
        rules,betting,True,silent,0.0,0.0,100,0.05,,0.02,0.02,0.02,1,0.0,holds
        >>> read_csv(csv_text([row])) == [row]
        True
    """
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_HEADINGS)
    for row in rows:
        writer.writerow([*(getattr(row, name) for name in _NAMES), row.verdict])
    return text.getvalue()


def read_csv(text: str) -> list[Row]:
    """Return the rows of a CSV file.

    Raises:
        InvalidInputError: It is not such a file, or a verdict is not its numbers'.
    """
    lines = csv.reader(StringIO(text))
    headings = tuple(next(lines, ()))
    if headings != _HEADINGS:
        raise InvalidInputError(
            f"a file of calibration has the columns {', '.join(_HEADINGS)}; got "
            f"{', '.join(headings) or 'none'}"
        )
    return [_row(line, number) for number, line in enumerate(lines, 2)]


def _row(line: Sequence[str], number: int) -> Row:
    try:
        of = dict(zip(_HEADINGS, line, strict=True))
        row = Row(
            part=Part(of["part"]),
            rule=of["rule"],
            ours=_OURS[of["ours"]],
            null=of["null"],
            epsilon=float(of["epsilon"]),
            delta=float(of["delta"]),
            canaries=int(of["canaries"]),
            alpha=float(of["alpha"]),
            runs=int(of["runs"]) if of["runs"] else None,
            rate=float(of["rate"]),
            low=float(of["low"]),
            high=float(of["high"]),
            designs=int(of["designs"]),
            refused=float(of["refused"]),
        )
    except (KeyError, ValueError) as error:
        raise InvalidInputError(
            f"line {number} is no row of a calibration: {','.join(line)!r}"
        ) from error
    if of["verdict"] != row.verdict:
        raise InvalidInputError(
            f"line {number} says {of['verdict']!r}, and its numbers {row.verdict!r}"
        )
    return row


def replaced(old: Iterable[Row], new: Sequence[Row]) -> list[Row]:
    """Return new rows, with those of old ones whose table has no new row.

    Rules and whole audits are one table, the pipeline is another.
    """
    written = {row.part is Part.PIPELINE for row in new}
    kept = (row for row in old if (row.part is Part.PIPELINE) not in written)
    return sorted([*kept, *new], key=lambda row: row.part is Part.PIPELINE)
