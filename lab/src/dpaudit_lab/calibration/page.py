"""What the rows come to, as Markdown between the markers of a page that explains it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from dpaudit_lab.calibration.table import Part, Row
from dpaudit_lab.pages import fill_page

__all__ = ["TABLES", "fill", "worst"]


def fill(page: str, rows: Sequence[Row]) -> str:
    """Return a page with its tables written anew.

    Args:
        page: Text with markers.
        rows: The rows of rules and whole audits, or of the pipeline, or all. Tables
            that no row belongs to are left as they are.
    """
    of_pipeline = [row for row in rows if row.part is Part.PIPELINE]
    others = [row for row in rows if row.part is not Part.PIPELINE]

    def text_of(name: str) -> str | None:
        chosen = of_pipeline if name in _OF_PIPELINE else others
        return TABLES[name](chosen) if chosen else None

    return fill_page(page, TABLES, text_of)


def worst(rows: Iterable[Row]) -> list[Row]:
    """Return the row of the largest rate for each rule and level, rules in order."""
    found: dict[tuple[str, float], Row] = {}
    for row in rows:
        key = (row.rule, row.alpha)
        if key not in found or row.rate > found[key].rate:
            found[key] = row
    return list(found.values())


def _headline(rows: Sequence[Row]) -> str:
    runs = [row.runs for row in rows if row.runs is not None]
    said = [f"{len(rows)} rows: {len(rows) - len(runs)} exact, {len(runs)} simulated"]
    said[0] += f" ({min(runs):,} to {max(runs):,} audits each)." if runs else "."
    for whose, ours in (("ours", True), ("others'", False)):
        theirs = [row for row in rows if row.ours is ours]
        failing = [row for row in theirs if row.fails]
        rules = len({row.rule for row in theirs})
        bad = len({row.rule for row in failing})
        said.append(
            f"**Of {whose}, {len(failing)} of {len(theirs)} rows fail** "
            f"({bad} of {rules} rules)."
        )
    return " ".join(said)


def _summary(rows: Iterable[Row], name: Callable[[Row], str], heading: str) -> str:
    """Return a line for each name: the largest limits at each level, and a verdict."""
    groups: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: not row.ours):
        groups.setdefault(name(row), []).append(row)
    alphas = sorted({r.alpha for found in groups.values() for r in found}, reverse=True)
    limits = [f"lower, {100 * a:g} % | upper, {100 * a:g} %" for a in alphas]
    lines = [
        f"| {heading} | rows | {' | '.join(limits)} | verdict |",
        "|---" * (3 + 2 * len(alphas)) + "|",
    ]
    for group, found in groups.items():
        cells = [_limits([row for row in found if row.alpha == a]) for a in alphas]
        lines.append(
            f"| {group} | {len(found)} | {' | '.join(cells)} | {_verdict(found)} |"
        )
    return "\n".join(lines)


def _limits(rows: Sequence[Row]) -> str:
    if not rows:
        return " | "
    low, high = max(row.low for row in rows), max(row.high for row in rows)
    return f"{_per_cent(low)} | {_per_cent(high)}"


def _verdict(rows: Sequence[Row]) -> str:
    """Return in how many rows something fails, or how many hold."""
    failing = sum(row.fails for row in rows)
    refusing = sum(row.verdict == "refused" for row in rows)
    said = f"**{failing} fail**" if failing else "holds"
    return f"{said}; {refusing} always refused" if refusing else said


def _pipeline_headline(rows: Sequence[Row]) -> str:
    drawn = [row for row in rows if row.runs is not None]
    most = max(row.designs for row in rows)
    said = [
        f"{len(rows)} rows: {len(rows) - len(drawn)} exact (each the worst of up to "
        f"{most} designs), {len(drawn)} drawn."
    ]
    for whose, ours in (("dpaudit", True), ("dpaudit as it was", False)):
        theirs = [row for row in rows if row.ours is ours]
        failing = sum(row.fails for row in theirs)
        said.append(f"**Of {whose}, {failing} of {len(theirs)} rows fail.**")
    refusing = sum(row.verdict == "refused" for row in rows)
    said.append(f"In {refusing} rows every audit is refused.")
    return " ".join(said)


def _per_cent(rate: float) -> str:
    return f"{100 * rate:.3g}" if rate < 0.01 else f"{100 * rate:.2f}"


def _rule(row: Row) -> str:
    """Return the bound of a rule of ours; another's rule with all of its name."""
    return row.rule.partition(",")[0] if row.ours else row.rule


def _auditor(row: Row) -> str:
    return row.rule.partition(":")[0]


def _road(row: Row) -> str:
    """Return what is audited, without the rules and by which way it came."""
    return row.rule.rpartition(": ")[0].partition(",")[0]


TABLES: Mapping[str, Callable[[Sequence[Row]], str]] = MappingProxyType(
    {
        "headline": _headline,
        "rules": lambda rows: _summary(
            (row for row in rows if row.part is Part.RULES), _rule, "rule"
        ),
        "whole audits": lambda rows: _summary(
            (row for row in rows if row.part is Part.WHOLE), _auditor, "audit"
        ),
        "pipeline headline": _pipeline_headline,
        "pipeline": lambda rows: _summary(rows, _road, "from"),
    }
)
_OF_PIPELINE = ("pipeline headline", "pipeline")
