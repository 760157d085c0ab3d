"""``dpaudit-lab benchmark``: what dpaudit shows and costs, beside other tools."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpaudit.cli._engines import (
    AddressOption,
    EngineName,
    EngineOption,
    WorkersOption,
)
from dpaudit.cli._outputs import Output
from dpaudit.cli._shared import (
    JsonOption,
    PictureOption,
    read_text,
)
from dpaudit_lab.cli.sweeping import (
    StoreOption,
    TrialsOption,
    Where,
    filled,
)

if TYPE_CHECKING:
    from dpaudit_lab.benchmark.bounds import Bounds
    from dpaudit_lab.benchmark.row import Comparison, Part, Row
    from dpaudit_lab.power.task import Task

_COMMAND = "dpaudit-lab benchmark"


def benchmark(
    canaries: Annotated[
        str, typer.Option(help="Numbers of canaries, with commas between.")
    ] = "1000,10000,100000,1000000",
    trials: TrialsOption = None,
    pairs: Annotated[
        int,
        typer.Option(
            help="How often methods are timed in turn; 0 for no times and no memory."
        ),
    ] = 20,
    only: Annotated[
        str | None,
        typer.Option(
            help="Parts, with commas between: bounds, guessers, adapters, tables; all "
            "if not given."
        ),
    ] = None,
    small: Annotated[
        bool, typer.Option("--small", help="Smaller tasks in all parts but the bounds.")
    ] = False,
    store: StoreOption = Path("power.sqlite"),
    engine: EngineOption = EngineName.LOCAL,
    address: AddressOption = None,
    workers: WorkersOption = None,
    picture: PictureOption = None,
    csv: Annotated[
        Path | None,
        typer.Option(help="Write the table to this .csv file too."),
        Output(suffixes=(".csv",)),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option("--page", help="Write the tables into this .md page too."),
        Output(suffixes=(".md",)),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compare what dpaudit shows and costs with other tools, on the same data.

    Bounds from the same scores; guessers on the same noisy sums; audited training
    beside plain; tables of scores beside pyarrow. Time, memory, bound, and how often it
    is above a truth that is known. By default bounds are of 200 draws, 50 of more than
    100,000 canaries, fewer by tools that take long; what is not installed is left out.
    Exits with 0, or 2 if something is misused, or 130 if it was stopped.
    """
    from dpaudit_lab.benchmark.row import Part  # noqa: PLC0415
    from dpaudit_lab.cli import _benchmark_shown as shown  # noqa: PLC0415 (slow to import)

    where = Where(
        command=_COMMAND, engine=engine, address=address, workers=workers, store=store
    )
    wanted = _wanted(only)
    template = _template(page, only, small=small)
    tasks = _tasks(canaries, trials, pairs)
    rows: list[Row] = []
    left_out: list[str] = []
    if Part.BOUNDS in wanted:
        bounds = _bounds(where, tasks, trials, pairs)
        with filled(where, bounds.sweeps()) as held:
            rows += bounds.rows(held)
            left_out += bounds.left_out(held)
            if picture is not None:
                shown.draw(bounds.comparison.table(held), tasks[0], picture)
    for compared, own in _others(wanted, where, trials, pairs, small=small):
        with filled(own, compared.sweeps()) as held:
            rows += compared.rows(held)
            left_out += compared.left_out(held)
    if csv is not None:
        shown.write_csv(rows, csv)
    if page is not None:
        shown.write_page(rows, left_out, page, template)
    if json:
        typer.echo(shown.as_json(rows, tasks[0], left_out))
    else:
        shown.show(rows, tasks[0], left_out)


def _wanted(only: str | None) -> "list[Part]":
    from dpaudit.errors import InvalidInputError  # noqa: PLC0415
    from dpaudit_lab.benchmark.row import Part  # noqa: PLC0415

    if only is None:
        return list(Part)
    names = [name.strip() for name in only.split(",")]
    if unknown := [name for name in names if name not in list(Part)]:
        raise InvalidInputError(
            f"--only takes parts with commas between, some of {', '.join(Part)}, got "
            f"{', '.join(map(repr, unknown))}"
        )
    return [part for part in Part if part in names]


def _template(page: Path | None, only: str | None, *, small: bool) -> str:
    """Return a page, if its tables can be written, before anything is measured."""
    if page is None:
        return ""
    from dpaudit.errors import InvalidInputError  # noqa: PLC0415
    from dpaudit_lab.benchmark.page import fill  # noqa: PLC0415

    if small or only is not None:
        given = "--small" if small else f"--only={only}"
        raise InvalidInputError(
            f"a page shows the whole benchmark of one date, and {given} is less; leave "
            f"out {given}, or --page={page}"
        )

    text = read_text(page)
    fill(text, {})
    return text


def _tasks(canaries: str, trials: int | None, pairs: int) -> "list[Task]":
    from dpaudit import _validate  # noqa: PLC0415
    from dpaudit.errors import InvalidInputError  # noqa: PLC0415
    from dpaudit_lab.power.task import Task  # noqa: PLC0415

    _validate.whole_number("--pairs", pairs)
    if trials is not None:
        _validate.whole_number("--trials", trials, least=1)
    try:
        numbers = sorted({int(number) for number in canaries.split(",")})
    except ValueError as error:
        raise InvalidInputError(
            "--canaries takes whole numbers with commas between, such as 1000,10000, "
            f"got {canaries!r}"
        ) from error
    return [Task(canaries=number) for number in numbers]


def _bounds(
    where: Where, tasks: "list[Task]", trials: int | None, pairs: int
) -> "Bounds":
    """Return the comparison of bounds, once the numbers of guesses are planned."""
    from dpaudit_lab.benchmark.bounds import Bounds  # noqa: PLC0415
    from dpaudit_lab.power import sweeps  # noqa: PLC0415
    from dpaudit_lab.power.peers import PEERS  # noqa: PLC0415
    from dpaudit_lab.power.table import Comparison  # noqa: PLC0415

    with filled(where, [sweeps.plan_sweep(tasks)]) as store:
        plans = sweeps.plans(store, tasks)
    there = {name: peer.installed() for name, peer in PEERS.items()}
    comparison = Comparison(
        plans=plans,
        trials={task: trials or sweeps.default_trials(task) for task in tasks},
        pairs=pairs,
        versions={name: there[name] or PEERS[name].measured for name in PEERS},
    )
    installed = tuple(peer for name, peer in PEERS.items() if there[name])
    return Bounds(comparison=comparison, installed=installed)


def _others(
    wanted: "list[Part]", where: Where, trials: int | None, pairs: int, *, small: bool
) -> "list[tuple[Comparison, Where]]":
    """Return the other comparisons, and where each is run."""
    from dpaudit_lab.benchmark import (  # noqa: PLC0415
        adapters,
        guessers,
        tables,
    )
    from dpaudit_lab.benchmark.row import Part  # noqa: PLC0415

    games = guessers.SMALL_GAMES if small else guessers.GAMES
    kinds = adapters.SMALL_KINDS if small else tuple(adapters.KINDS)
    size = tables.SMALL_ROWS if small else tables.ROWS
    # What times whole trainings is run here, and one after the other.
    alone = replace(where, engine=EngineName.LOCAL, address=None, workers=1)
    every: dict[Part, tuple[Comparison, Where]] = {
        Part.GUESSERS: (
            guessers.Guessers(trials=trials or 200, pairs=pairs, games=games),
            where,
        ),
        Part.ADAPTERS: (adapters.adapters(pairs=pairs, kinds=kinds), alone),
        Part.TABLES: (tables.tables(pairs=pairs, rows=size), alone),
    }
    return [every[part] for part in wanted if part in every]
