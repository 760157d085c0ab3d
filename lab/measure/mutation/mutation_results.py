"""What became of the mutants, as ``lab/results/mutation.json`` keeps it.

``modules`` has a row of counts for each module: its mutants, how many were tried, and
of these how many a test killed, how many ended in a timeout, survived, or change no
more than wording (``wording``, and ``wording survived``). ``survivors`` has a row for
each function and reason: how many mutants survive for it, what they change, and why.

Nothing here needs mutmut.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

__all__ = ["HEADINGS", "OPEN", "RESULTS", "as_text", "by_package", "line", "reasons"]

RESULTS: Final = Path(__file__).parents[2] / "results" / "mutation.json"
OPEN: Final = "open"  # why a mutant survives of which no reason was found
HEADINGS: Final = (
    "| module | mutants | tried | killed | timeouts | survived | share killed "
    "| without wording |\n|---|---|---|---|---|---|---|---|"
)


def as_text(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return results as JSON, a line for each row."""
    parts = []
    for name, rows in results.items():
        lines = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in rows)
        parts.append(f" {json.dumps(name)}: [\n{lines}\n ]")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def by_package(modules: Iterable[Mapping[str, Any]]) -> str:
    """Return a table with a line for each package, and one for all."""
    lines, everything = [HEADINGS.replace("module", "package", 1)], Counter[str]()
    for package, inside in groupby(modules, lambda row: row["module"].split("/")[0]):
        total = Counter[str]()
        for row in inside:
            total.update({name: row[name] for name in row if name != "module"})
        lines.append(line(package, total))
        everything += total
    return "\n".join([*lines, line("**all**", everything)])


def line(name: str, row: Mapping[str, int]) -> str:
    """Return a line of a table; shares are of those that were tried."""
    share = 1 - row["survived"] / row["tried"]
    said = row["tried"] - row["wording"]
    other = 1 - (row["survived"] - row["wording survived"]) / max(1, said)
    return (
        f"| {name} | {row['mutants']} | {row['tried']} | {row['killed']} | "
        f"{row['timeout']} | {row['survived']} | {share:.1%} | {other:.1%} of {said} |"
    )


def reasons(survivors: Iterable[Mapping[str, Any]]) -> str:
    """Return in a sentence how many survive for which kind of reason."""
    kinds = Counter[str]()
    for row in survivors:
        kinds[_kind(row["why"])] += row["mutants"]
    return (
        f"Of {kinds.total()} survivors {kinds['equivalent']} are equivalent, "
        f"{kinds['wording']} change the wording of a sentence, {kinds['other']} have "
        f"another reason, and {kinds[OPEN]} are open."
    )


def _kind(why: str) -> str:
    if why.startswith(OPEN):
        return OPEN
    if "wording" in why:
        return "wording"
    return "equivalent" if why.startswith("equivalent") else "other"
