"""How ``dpaudit-lab benchmark`` shows what it found: text, JSON, CSV, page, picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpaudit import _canonical, _files
from dpaudit_lab.benchmark.machine import cores, today, versions
from dpaudit_lab.benchmark.page import ALPHA, cells, fill, headings_of, tables
from dpaudit_lab.benchmark.results import as_plain, csv_text
from dpaudit_lab.cli.sweeping import table_console

if TYPE_CHECKING:
    from dpaudit_lab.benchmark.row import Row
    from dpaudit_lab.power import table
    from dpaudit_lab.power.nulls import Wrong
    from dpaudit_lab.power.task import Task

__all__ = ["as_json", "draw", "show", "write_csv", "write_page"]

_FORMAT = "dpaudit.benchmark.2"
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
    from dpaudit_lab.pictures.chart import true_and_shown  # noqa: PLC0415
    from dpaudit_lab.pictures.power_picture import (  # noqa: PLC0415 (needs its extra)
        Curve,
        Point,
        power_picture,
    )

    drawn = [row for row in rows if row.key not in _NOT_DRAWN]
    names = {row.method: row.ours for row in drawn}
    curves = [
        Curve(
            name=name,
            ours=ours,
            points=tuple(
                Point(
                    canaries=row.canaries,
                    mean=row.mean,
                    error=row.error,
                    seconds=row.seconds,
                )
                for row in drawn
                if row.method == name
            ),
        )
        for name, ours in names.items()
    ]
    draws = sorted({row.draws for row in drawn})
    caption = (
        f"Scores N(0, 1) and N({task.mu:g}, 1), delta = {task.delta:g}, alpha = "
        f"{task.alpha:g}. {draws[0]}"
        + (f" to {draws[-1]}" if len(draws) > 1 else "")
        + " draws, the same for all methods;\nbars are standard errors."
    )
    limits = true_and_shown(truth=task.truth, ceiling=task.ceiling)
    power_picture(curves, picture, limits=limits, caption=caption)
