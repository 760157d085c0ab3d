"""The benchmark's rows as a CSV file, with all digits: ``lab/results/power.csv``.

A line for each row. How often a method was above a truth that is known stands in two
columns of its own for each truth: the share, and of how many draws.
"""

import csv
from collections.abc import Sequence
from io import StringIO

from dpaudit_lab.benchmark.row import Row

__all__ = ["as_plain", "csv_text"]


def as_plain(row: Row) -> dict[str, str | int | float | bool | None]:
    """Return a row, without how often it was wrong, by name."""
    ratio, bound = row.cost.ratio, row.bound
    return {
        "part": row.part.value,
        "size": row.size,
        "method": row.method,
        "ours": row.ours,
        "guesses": row.guesses,
        "draws": bound and bound.draws,
        "mean": bound and bound.mean,
        "error": bound and bound.error,
        "seconds": row.cost.seconds,
        "ratio": ratio and ratio.middle,
        "ratio_low": ratio and ratio.low,
        "ratio_high": ratio and ratio.high,
        "pairs": ratio and ratio.pairs,
        "memory_mib": row.cost.memory,
    }


def csv_text(rows: Sequence[Row]) -> str:
    """Return rows as CSV; what a row does not have is empty.

    Example:
        >>> from dpaudit_lab.benchmark.row import Bound, Cost, Part
        >>> from dpaudit_lab.power.nulls import Wrong
        >>> row = Row(
        ...     part=Part.BOUNDS,
        ...     size="10 canaries",
        ...     method="exact",
        ...     ours=True,
        ...     cost=Cost(seconds=0.5),
        ...     bound=Bound(mean=1.25, error=None, draws=1),
        ...     wrong=(Wrong(epsilon=0.0, draws=4, hits=1),),
        ... )
        >>> print(csv_text([row]).splitlines()[1])
        bounds,10 canaries,exact,True,,1,1.25,,0.5,,,,,,0.25,4
    """
    plain = [{**as_plain(row), **_often(row)} for row in rows]
    names = list(dict.fromkeys(name for each in plain for name in each))
    text = StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(plain)
    return text.getvalue()


def _often(row: Row) -> dict[str, float]:
    found: dict[str, float] = {}
    for wrong in row.wrong:
        name = f"wrong_at_{wrong.epsilon:g}"
        found |= {name: wrong.rate, f"{name}_draws": wrong.draws}
    return found
