"""``dpaudit-lab reproduce``: the paper's figures, simulated anew."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpaudit import _files
from dpaudit.cli._engines import (
    AddressOption,
    EngineName,
    EngineOption,
    WorkersOption,
)
from dpaudit.cli._outputs import File, Output, check_apart, check_writable
from dpaudit.errors import InvalidInputError
from dpaudit_lab.cli.sweeping import (
    StoreOption,
    TrialsOption,
    Where,
    filled,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpaudit_lab.paper.figure import Figure
    from dpaudit_lab.paper.summary import Summary
    from dpaudit_lab.sweeps.sweep import Sweep

_COMMAND = "dpaudit-lab reproduce"
_PICTURES = (".svg", ".png", ".pdf")
_SUFFIXES = (*_PICTURES, ".csv", ".json")


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="A figure's name, or all; see --list.")
    ] = None,
    show: Annotated[
        bool, typer.Option("--list", help="Name the figures and what they show.")
    ] = False,
    out: Annotated[
        Path, typer.Option(help="Folder for .svg, .png, .pdf, .csv, .json files.")
    ] = Path("figures"),
    page: Annotated[
        Path | None,
        typer.Option(help="Write a page about them too, this .md file."),
        Output(suffixes=(".md",)),
    ] = None,
    plain: Annotated[
        bool,
        typer.Option(
            "--plain",
            help="Draw the paper's curves only, without title, caption or limits.",
        ),
    ] = False,
    trials: TrialsOption = None,
    store: StoreOption = Path("figures.sqlite"),
    engine: EngineOption = EngineName.LOCAL,
    address: AddressOption = None,
    workers: WorkersOption = None,
) -> None:
    """Simulate and draw a figure of the paper, and compare it with what is printed.

    Repeats are the paper's, and 200 for its one figure without experiments, unless
    --trials gives others. Exits with 0, or 2 if something is misused, or 130 if it was
    stopped.
    """
    where = Where(
        command=_COMMAND, store=store, engine=engine, address=address, workers=workers
    )
    if show:
        typer.echo(_listed())
        return
    if name is None:
        raise InvalidInputError("name a figure, or all; --list shows what there is")
    if plain and page is not None:
        raise InvalidInputError(
            "a page explains what plain pictures leave out; give --plain or --page"
        )
    chosen = _chosen(name, trials, out, store)
    done = [_reproduced(figure, trials, out, where, plain=plain) for figure in chosen]
    if page is not None:
        _write_page(done, out, page)


def _listed() -> str:
    from dpaudit_lab.paper.names import FIGURES  # noqa: PLC0415 (numpy)

    width = max(map(len, FIGURES))
    return "\n".join(
        f"{name:{width}}  {figure.shows}; {figure.repeats} repeats, "
        f"{'which are ours' if figure.paper_repeats is None else 'as in the paper'}"
        for name, figure in FIGURES.items()
    )


def _chosen(
    name: str, trials: int | None, out: Path, store: Path
) -> "tuple[Figure, ...]":
    """Return the figures, having refused beforehand what would fail in the end."""
    import dpaudit_lab.pictures.curves  # noqa: F401, PLC0415 (needs its extra)
    from dpaudit_lab.paper.names import named  # noqa: PLC0415

    chosen = named(name)
    for figure in chosen:
        figure.sweeps(trials)
        _check_drawn([out / f"{figure.name}{suffix}" for suffix in _SUFFIXES], store)
    return chosen


def _check_drawn(paths: "Sequence[Path]", store: Path) -> None:
    read = File(path=store, option="--store")
    check_apart([File(path=path, option="--out") for path in paths], [read])
    for path in paths:
        path.parent.mkdir(exist_ok=True)  # --out names a folder
        check_writable(path, "--out")


def _reproduced(
    figure: "Figure", trials: int | None, out: Path, where: Where, *, plain: bool
) -> "Summary":
    from time import perf_counter  # noqa: PLC0415

    from dpaudit_lab.paper.summary import Summary  # noqa: PLC0415

    sweeps = figure.sweeps(trials)
    lacking = _lacking(sweeps, where)
    start = perf_counter()
    with filled(where, sweeps) as store:
        result = figure.read(store, sweeps)
    summary = Summary(
        figure=figure,
        result=result,
        repeats=figure.repeats if trials is None else trials,
        ran=lacking,
        seconds=perf_counter() - start,
    )
    if lacking == 0:
        summary = _with_earlier_cost(summary, out)
    _write(summary, out, plain=plain)
    typer.echo(f"{summary}\n  drawn: {out / figure.name}{', '.join(_SUFFIXES)}")
    return summary


def _with_earlier_cost(summary: "Summary", out: Path) -> "Summary":
    earlier, points = (out / f"{summary.figure.name}{s}" for s in (".json", ".csv"))
    if not (earlier.is_file() and points.is_file()):
        return summary
    return summary.with_cost_of(
        earlier.read_text(encoding="utf-8"), points.read_text(encoding="utf-8")
    )


def _lacking(sweeps: "Sequence[Sweep]", where: Where) -> int:
    """Return how many trials are still to be run."""
    with filled(where, []) as store:
        return sum(
            sweep.trials - store.count(sweep.cell(setting), sweep.trials)
            for sweep in sweeps
            for setting in sweep.settings
        )


def _write(summary: "Summary", out: Path, *, plain: bool) -> None:
    from dpaudit_lab.pictures.chart import csv_text  # noqa: PLC0415
    from dpaudit_lab.pictures.curves import draw_chart  # noqa: PLC0415

    chart, name = summary.chart, summary.figure.name
    for suffix in _PICTURES:
        draw_chart(chart.plain if plain else chart, out / f"{name}{suffix}")
    _files.write(out / f"{name}.csv", csv_text(chart))
    _files.write(out / f"{name}.json", summary.to_json() + "\n")


def _write_page(done: "Sequence[Summary]", out: Path, path: Path) -> None:
    from os.path import relpath  # noqa: PLC0415

    from dpaudit_lab.paper.summary import page  # noqa: PLC0415

    pictures = Path(relpath(out, path.parent)).as_posix()
    _files.write(path, page(done, pictures))
    typer.echo(f"page: {path}")
