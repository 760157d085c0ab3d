"""What the runs with each bug showed, as a file of rows and as the table of its page.

The file, ``lab/results/bugzoo.csv``, has a line for each bug: what is claimed and
spent, by which canaries it was looked for, in how many runs it was caught, and what is
known about it. The page shows what a reader compares.
"""

import csv
from collections.abc import Iterable, Mapping
from io import StringIO
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[1] / "results" / "bugzoo.csv"
HEADINGS = (
    "bug",
    "title",
    "claim",
    "truth",
    "ratio",
    "canary",
    "canaries",
    "runs",
    "caught",
    "low",
    "high",
    "median_p",
    "simulated",
    "story",
    "truth_because",
    "seen_by",
    "remark",
)


def csv_text(rows: Iterable[Mapping[str, str]]) -> str:
    """Return the rows as the text of a file."""
    text = StringIO()
    writer = csv.DictWriter(text, HEADINGS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def read_csv(text: str) -> list[dict[str, str]]:
    """Return the rows of a file."""
    return list(csv.DictReader(StringIO(text)))


def table(rows: Iterable[Mapping[str, str]]) -> str:
    """Return the page's table: a line for each bug."""
    lines = [
        "| bug | true ε | over the claim | canary; insertion | caught |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        ratio = float(row["ratio"])
        times = "∞" if ratio == float("inf") else f"{ratio:.3g}"
        lines.append(
            f"| {row['title']} | {row['truth']} | {times} | {row['canary']} "
            f"| {row['caught']} of {row['runs']} |"
        )
    return "\n".join(lines)
