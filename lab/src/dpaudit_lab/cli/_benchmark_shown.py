"""How ``dpaudit-lab benchmark`` shows what it found: text, JSON, CSV, page, picture."""

from collections.abc import Sequence
from dataclasses import replace
from math import floor, log10
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpaudit import _canonical, _files
from dpaudit_lab.benchmark.machine import cores, today, versions
from dpaudit_lab.benchmark.page import ALPHA, cells, fill, headings_of, tables
from dpaudit_lab.benchmark.results import as_plain, csv_text
from dpaudit_lab.cli.sweeping import table_console

if TYPE_CHECKING:
    from dpaudit_lab.benchmark.row import Row
    from dpaudit_lab.pictures.chart import Chart
    from dpaudit_lab.power import table
    from dpaudit_lab.power.nulls import Wrong
    from dpaudit_lab.power.task import Task

__all__ = ["as_json", "charts_of", "draw", "show", "write_csv", "write_page"]

_FORMAT = "dpaudit.benchmark.2"
_MOST_TICKS = 4
_NOT_DRAWN = ("published", "privacy_guard")  # the same as another; of another tier


def as_json(rows: "Sequence[Row]", task: "Task", left_out: Sequence[str]) -> str:
    """Return all figures, unrounded."""
    return _canonical.text(
        {
            "format": _FORMAT,
            "date": today(),
            "cores": cores(),
            "versions": versions(),
            "mu": task.mu,
            "delta": task.delta,
            "alpha": task.alpha,
            "truth": task.truth,
            "ceiling": task.ceiling,
            "rows": [
                {**as_plain(row), "wrong": [_rate(wrong) for wrong in row.wrong]}
                for row in rows
            ],
            "left_out": list(left_out),
        }
    )


def _rate(wrong: "Wrong") -> dict[str, Any]:
    low, high = wrong.limits
    return {
        "epsilon": wrong.epsilon,
        "draws": wrong.draws,
        "hits": wrong.hits,
        "low": low,
        "high": high,
        "fails": wrong.fails(ALPHA),
    }


def write_csv(rows: "Sequence[Row]", path: Path) -> None:
    """Write the rows to a file."""
    _files.write(path, csv_text(rows))


def write_page(
    rows: "Sequence[Row]", left_out: Sequence[str], path: Path, template: str
) -> None:
    """Write the tables into a page."""
    _files.write(path, fill(template, tables(rows, left_out)))


def show(rows: "Sequence[Row]", task: "Task", left_out: Sequence[str]) -> None:
    """Print a table for each part."""
    from rich.table import Table  # noqa: PLC0415

    console = table_console()
    for part, size in dict.fromkeys((row.part, row.size) for row in rows):
        found = [cells(row) for row in rows if (row.part, row.size) == (part, size)]
        names = headings_of(found)
        shown = Table(title=f"{part}: {size}", title_justify="left")
        for name in names:
            shown.add_column(name, no_wrap=name != "method")
        for each in found:
            # What is bold on a page is, here, what is wrong too often.
            texts = [each.get(name, "") for name in names]
            texts[1:] = [text.replace("**", "!") for text in texts[1:]]
            shown.add_row(texts[0].strip("*"), *texts[1:])
        console.print(shown)
    if any(row.part == "bounds" for row in rows):
        console.print(_about(task), highlight=False)
    if any(wrong.fails(ALPHA) for row in rows for wrong in row.wrong):
        console.print("a rate between ! is shown to be above alpha", highlight=False)
    for line in left_out:
        console.print(line, highlight=False)


def _about(task: "Task") -> str:
    return (
        f"scores N(0, 1) and N({task.mu:g}, 1), delta = {task.delta:g}, alpha = "
        f"{task.alpha:g}: the truth is {task.truth:.3f}, and no valid audit of one run "
        f"reliably shows more than {task.ceiling:.3f}"
    )


def draw(rows: "Sequence[table.Row]", task: "Task", picture: Path) -> None:
    """Draw bounds and times against the number of canaries."""
    from dpaudit_lab.pictures.curves import draw_panels  # noqa: PLC0415 (its extra)

    drawn = [row for row in rows if row.key not in _NOT_DRAWN]
    draws = sorted({row.draws for row in drawn})
    caption = (
        f"Scores N(0, 1) and N({task.mu:g}, 1), delta = {task.delta:g}, alpha = "
        f"{task.alpha:g}. {draws[0]}"
        + (f" to {draws[-1]}" if len(draws) > 1 else "")
        + " draws, the same for all methods;\nbands are standard errors."
    )
    charts = charts_of(drawn, task)
    title = "What each method shows of the same scores"
    draw_panels(charts, picture, title=title, caption=caption)


def charts_of(rows: "Sequence[table.Row]", task: "Task") -> "list[Chart]":
    """Return the bounds, and the times if any were taken, as charts."""
    from dpaudit_lab.pictures.chart import (  # noqa: PLC0415
        Chart,
        Curve,
        Look,
        Point,
        true_and_shown,
    )

    names = {row.method: row.ours for row in rows}
    curves = tuple(
        Curve(name=name, colour=at, look=Look.MEASURED if ours else Look.OTHERS)
        for at, (name, ours) in enumerate(names.items())
    )
    sizes = sorted({row.canaries for row in rows})
    bounds = Chart(
        title="",
        caption="",
        x_label="canaries",
        y_label="mean lower bound on epsilon",
        curves=curves,
        points=tuple(
            Point(
                curve=row.method,
                x=row.canaries,
                mean=row.mean,
                error=row.error or 0.0,
                repeats=row.draws,
            )
            for row in rows
        ),
        limits=true_and_shown(truth=task.truth, ceiling=task.ceiling),
        ticks=tuple(sizes[:: -(-len(sizes) // _MOST_TICKS)]),
    )
    timed = [(row.method, row.canaries, row.seconds) for row in rows if row.seconds]
    if not timed:
        return [bounds]
    decades = [floor(log10(seconds)) for _, _, seconds in timed]
    times = replace(
        bounds,
        y_label="CPU seconds",
        points=tuple(Point(curve=name, x=n, mean=taken) for name, n, taken in timed),
        limits=(),
        y_ticks=tuple(10.0**each for each in range(min(decades), max(decades) + 2)),
    )
    return [bounds, times]
