"""The table as Markdown, between the markers of a page that says what it means."""

from collections.abc import Iterable, Sequence
from itertools import groupby
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


def _summary(rows: Iterable[Row]) -> str:
    """Return the worst null of each rule, a column for each level."""
    chosen = worst(rows)
    alphas = sorted({row.alpha for row in chosen}, reverse=True)
    lines = [
        "| rule | " + " | ".join(f"alpha {100 * a:g} %" for a in alphas) + " |",
        "|---|" + "---|" * len(alphas),
    ]
    for rule, found in groupby(chosen, key=lambda row: row.rule):
        by_alpha = {row.alpha: row for row in found}
        cells = [_worst_cell(by_alpha.get(alpha)) for alpha in alphas]
        lines.append(f"| {rule} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _worst_cell(row: Row | None) -> str:
    return "" if row is None else f"{_rate(row)}: {row.null}, n = {row.canaries:,}"


def _every_rule(rows: Sequence[Row]) -> str:
    """Return a line for each rule, null and level, the canaries side by side."""
    lines = [
        "| rule | null | true ε, δ | alpha | rate in % (limits), at so many canaries |",
        "|---|---|---|---|---|",
    ]
    ordered = sorted(
        (row for row in rows if row.part is Part.RULES),
        key=lambda row: (not row.ours, row.rule, row.null, -row.alpha, row.canaries),
    )
    for (rule, null, alpha), found in groupby(
        ordered, key=lambda row: (row.rule, row.null, row.alpha)
    ):
        same = list(found)
        truths = ", ".join(dict.fromkeys(map(_truth, same)))
        cells = "; ".join(f"{row.canaries:,}: {_rate(row)}" for row in same)
        lines.append(f"| {rule} | {null} | {truths} | {alpha:g} | {cells} |")
    return "\n".join(lines)


def _every_whole(rows: Sequence[Row]) -> str:
    """Return a line for each whole audit, the largest rates first."""
    lines = [
        "| audit | mechanism | true ε, δ | canaries | rate in % (limits) |",
        "|---|---|---|---|---|",
    ]
    ordered = sorted(
        (row for row in rows if row.part is Part.WHOLE), key=lambda row: -row.rate
    )
    lines += [
        f"| {row.rule} | {row.null} | {_truth(row)} | {row.canaries:,} | {_rate(row)} |"
        for row in ordered
    ]
    return "\n".join(lines)


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


def _every_road(rows: Sequence[Row]) -> str:
    """Return a line for each case of the pipeline, in order, ours first."""
    lines = [
        "| road: rules | null | true ε, δ | canaries | alpha | designs or audits | "
        "rate in % (limits) | refused |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: not row.ours):
        often = f"{row.designs:,} designs" if row.runs is None else f"{row.runs:,} runs"
        refused = (
            "always" if row.verdict == "refused" else f"{_per_cent(row.refused)} %"
        )
        lines.append(
            f"| {row.rule} | {row.null} | {_truth(row)} | {row.canaries:,} | "
            f"{row.alpha:g} | {often} | {_rate(row)} | {refused} |"
        )
    return "\n".join(lines)


def _roads(rows: Sequence[Row]) -> str:
    """Return the row of each road that comes nearest to its level, or beyond."""
    lines = [
        "| road | nearest to its level, rate in % | of | rows | always refused |",
        "|---|---|---|---|---|",
    ]
    by_road: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: not row.ours):
        by_road.setdefault(row.rule.rpartition(": ")[0], []).append(row)
    for road, found in by_road.items():
        row = max(found, key=lambda row: row.rate / row.alpha)
        rules = row.rule.rpartition(": ")[2]
        refusing = sum(each.verdict == "refused" for each in found)
        lines.append(
            f"| {road} | {_rate(row)} of {100 * row.alpha:g}: {rules}, {row.null}, n = "
            f"{row.canaries:,} | {row.how} | {len(found)} | {refusing or ''} |"
        )
    return "\n".join(lines)


def _rate(row: Row) -> str:
    """Return a rate in per cent, with its limits if it has some; bold if it fails."""
    found = _per_cent(row.rate)
    if row.runs is not None:
        found += f" ({_per_cent(row.low)} to {_per_cent(row.high)})"
    return f"**{found}**" if row.fails else found


def _per_cent(rate: float) -> str:
    return f"{100 * rate:.3g}" if rate < 0.01 else f"{100 * rate:.2f}"


def _truth(row: Row) -> str:
    return f"({row.epsilon:.3g}, {row.delta:.2g})"


TABLES = MappingProxyType(
    {
        "headline": _headline,
        "our rules": lambda rows: _summary(
            row for row in rows if row.ours and row.part is Part.RULES
        ),
        "whole audits": lambda rows: _summary(
            row for row in rows if row.part is Part.WHOLE
        ),
        "pipeline headline": _pipeline_headline,
        "pipeline": _roads,
        "others' rules": lambda rows: _summary(row for row in rows if not row.ours),
        "every rule": _every_rule,
        "every whole audit": _every_whole,
        "every road": _every_road,
    }
)
_OF_PIPELINE = ("pipeline headline", "pipeline", "every road")
