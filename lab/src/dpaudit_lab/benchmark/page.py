"""The benchmark as Markdown, between the markers of a page that says what it means.

``when`` is the line with date, machine and versions, ``bounds`` what methods show of
the same scores, ``costs`` what ours take beside others in all other parts.
"""

from collections.abc import Iterable, Mapping, Sequence

from dpaudit_lab.benchmark.machine import cores, today, versions
from dpaudit_lab.benchmark.row import Part, Row
from dpaudit_lab.pages import fill_page
from dpaudit_lab.power.nulls import Wrong

__all__ = ["ALPHA", "cells", "fill", "headings_of", "tables"]

ALPHA = 0.05  # at which a rate is said to fail

_NAMES = ("when", "bounds", "costs")


def fill(page: str, found: Mapping[str, str]) -> str:
    """Return a page with its tables written anew.

    Args:
        page: Text with markers.
        found: What to write, by name; markers without are left as they are.
    """
    return fill_page(page, _NAMES, found.get)


def tables(rows: Sequence[Row], left_out: Sequence[str]) -> dict[str, str]:
    """Return what belongs between the markers, as far as there are rows for it."""
    bounds = [row for row in rows if row.part is Part.BOUNDS]
    others = [row for row in rows if row.part is not Part.BOUNDS]
    found = {
        "when": _when(left_out),
        "bounds": _bounds(bounds),
        "costs": _costs([row for row in others if row.cost.ratio is not None]),
    }
    return {name: text for name, text in found.items() if text}


def _when(left_out: Sequence[str]) -> str:
    taking_part = ", ".join(f"{name} {number}" for name, number in versions().items())
    said = f"Measured on {today()} on {cores()} cores: {taking_part}."
    return "\n".join([said, "", *(f"- {line}" for line in left_out)]).rstrip()


def _costs(rows: Sequence[Row]) -> str:
    """Return a table with a line for each row: how many times the CPU time."""
    shown = ("size", "method", "ratio [95 %]")
    found = [{"size": row.size} | cells(row) for row in rows]
    return _lines([{name: each[name] for name in shown} for each in found])


def _bounds(rows: Sequence[Row]) -> str:
    """Return a table with a line for each method, its mean bounds side by side.

    Of its times the one at the last of its sizes, of its errors the most frequent.
    """
    by_method: dict[str, list[Row]] = {}
    for row in rows:
        by_method.setdefault(row.method, []).append(row)
    sizes = dict.fromkeys(row.size for row in rows)
    return _lines([_method(found, sizes) for found in by_method.values()])


def _method(rows: Sequence[Row], sizes: Iterable[str]) -> dict[str, str]:
    texts = {row.size: cells(row) for row in rows}
    timed = [row for row in rows if row.cost.ratio is not None]
    wrongs: dict[float, list[Wrong]] = {}
    for wrong in (each for row in rows for each in row.wrong):
        wrongs.setdefault(wrong.epsilon, []).append(wrong)
    return (
        {"method": texts[rows[0].size]["method"]}
        | {size: texts.get(size, {}).get("mean bound", "") for size in sizes}
        | {"ratio [95 %]": f"{timed[-1].cost.ratio}, {timed[-1].size}" if timed else ""}
        | {
            f"wrong at ε = {epsilon:g}, at most": _rate(max(each, key=lambda w: w.rate))
            for epsilon, each in wrongs.items()
        }
    )


def _lines(found: Sequence[Mapping[str, str]]) -> str:
    if not found:
        return ""
    headings = headings_of(found)
    lines = [f"| {' | '.join(headings)} |", "|---" * len(headings) + "|"]
    lines += [
        f"| {' | '.join(each.get(name, '') for name in headings)} |" for each in found
    ]
    return "\n".join(lines)


def headings_of(found: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the headings under which some row has something, in order."""
    named = dict.fromkeys(name for each in found for name in each)
    return [name for name in named if any(each.get(name) for each in found)]


def cells(row: Row) -> dict[str, str]:
    """Return a row as text, by heading, without its size; ours and failures bold."""
    cost, bound, ratio = row.cost, row.bound, row.cost.ratio
    error = "" if bound is None or bound.error is None else f" ± {bound.error:.3f}"
    return {
        "method": f"**{row.method}**" if row.ours else row.method,
        "k": "" if row.guesses is None else f"{row.guesses:,}",
        "mean bound": "" if bound is None else f"{bound.mean:.3f}{error}",
        "draws": "" if bound is None else f"{bound.draws}",
        "CPU s": "" if cost.seconds is None else f"{cost.seconds:.3g}",
        "ratio [95 %]": "" if ratio is None else f"{ratio}",
        "pairs": "" if ratio is None else f"{ratio.pairs}",
        "MiB": "" if cost.memory is None else f"{cost.memory:.1f}",
    } | {f"wrong at ε = {wrong.epsilon:g}": _rate(wrong) for wrong in row.wrong}


def _rate(wrong: Wrong) -> str:
    """Return a rate in per cent with its limits, bold if it fails."""
    low, high = (100 * limit for limit in wrong.limits)
    said = f"{100 * wrong.rate:.1f} % [{low:.1f}, {high:.1f}] of {wrong.draws}"
    return f"**{said}**" if wrong.fails(ALPHA) else said
