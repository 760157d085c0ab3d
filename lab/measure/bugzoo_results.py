"""What the runs with each bug showed, as a file of rows and as the table of its page.

The file, ``lab/results/bugzoo.csv``, has a line for each bug: what is claimed and
spent, what the default audit said of it, and by what; by which canaries an audit made
for it looked, if there is one, and in how many runs it caught it; and what is known
about it. The two audits are measured apart, and each fills its own columns. The page
shows what a reader compares.
"""

import csv
from collections.abc import Iterable, Mapping
from io import StringIO
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[1] / "results" / "bugzoo.csv"
TABLES = "results", "developed", "first", "second"  # of the page
HEADINGS = (
    "bug",
    "title",
    "claim",
    "truth",
    "ratio",
    "stage",
    "default",
    "hypothesis",
    "caught_by",
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
        "| bug | true ε | over the claim | default audit | hypothesis | caught by | "
        "audit made for it |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ratio = float(row["ratio"])
        times = "∞" if ratio == float("inf") else f"{ratio:.3g}"
        runs = row["runs"]
        own = f"{row['canary']}: {row['caught']} of {runs}" if runs else ""
        lines.append(
            f"| {row['title']} | {row['truth']} | {times} | {row['default']} "
            f"| {row['hypothesis']} | {row['caught_by']} | {own} |"
        )
    return "\n".join(lines)


def merged(
    held: Iterable[Mapping[str, str]],
    known: Iterable[Mapping[str, str]],
    found: Mapping[str, Mapping[str, str]],
) -> list[dict[str, str]]:
    """Return a row for each bug: what is known, what was held, and what was found now.

    Args:
        held: Rows of a file.
        known: What is known of each bug, in the order of the zoo.
        found: What runs showed now, by the name of the bug.
    """
    before = {row["bug"]: row for row in held}
    blank = dict.fromkeys(HEADINGS, "")
    return [
        blank | before.get(row["bug"], {}) | row | found.get(row["bug"], {})
        for row in known
    ]
