"""``dpaudit benchmark``: what each method shows of the same scores, and its time."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpaudit.cli._shared import JsonOption, PictureOption, check_picture, table_console
from dpaudit.cli._sweeping import (
    AddressOption,
    EngineName,
    EngineOption,
    StoreOption,
    TrialsOption,
    Where,
    WorkersOption,
    filled,
)

if TYPE_CHECKING:
    from dpaudit._canonical import Scalar
    from dpaudit.experiments.power.table import Comparison, Row
    from dpaudit.experiments.power.task import Task

_FORMAT = "dpaudit.benchmark.1"
_COMMAND = "dpaudit benchmark"


def benchmark(
    canaries: Annotated[
        str, typer.Option(help="Numbers of canaries, with commas between.")
    ] = "1000,10000,100000,1000000",
    trials: TrialsOption = None,
    pairs: Annotated[
        int, typer.Option(help="Draws on which methods are timed in turn; 0 for none.")
    ] = 20,
    store: StoreOption = Path("power.sqlite"),
    engine: EngineOption = EngineName.LOCAL,
    address: AddressOption = None,
    workers: WorkersOption = None,
    picture: PictureOption = None,
    csv: Annotated[
        Path | None, typer.Option(help="Write the table to this file too.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compare the bounds that each method gets from the same scores, and its time.

    Scores are N(0, 1) for excluded and N(1, 1) for included canaries, delta is 1e-5
    and alpha 0.05. By default there are 200 draws of up to 100,000 canaries and 50 of
    more. jax-privacy is compared with if it is installed. Exits with 0, or 2 if
    something is misused, or 130 if it was stopped.
    """
    where = Where(
        command=_COMMAND, engine=engine, address=address, workers=workers, store=store
    )
    check_picture(picture)
    tasks = _tasks(canaries, trials, pairs)
    comparison, rows = _measured(where, tasks, trials, pairs)
    _draw(rows, tasks[0], picture)
    _write(rows, csv)
    left_out = _left_out(comparison, rows)
    if json:
        typer.echo(_json(rows, tasks[0], left_out))
    else:
        _print(rows, tasks[0], left_out)


def _tasks(canaries: str, trials: int | None, pairs: int) -> "list[Task]":
    from dpaudit import _validate  # noqa: PLC0415
    from dpaudit.errors import InvalidInputError  # noqa: PLC0415
    from dpaudit.experiments.power.task import Task  # noqa: PLC0415

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


def _measured(
    where: Where, tasks: "list[Task]", trials: int | None, pairs: int
) -> "tuple[Comparison, list[Row]]":
    from dpaudit.experiments.power import peers, sweeps  # noqa: PLC0415
    from dpaudit.experiments.power.table import Comparison  # noqa: PLC0415

    with filled(where, [sweeps.plan_sweep(tasks)]) as store:
        plans = sweeps.plans(store, tasks)
    installed = peers.installed_version()
    comparison = Comparison(
        plans=plans,
        trials={task: trials or sweeps.default_trials(task) for task in tasks},
        pairs=pairs,
        peer=installed or peers.MEASURED_VERSION,
    )
    wanted = comparison.sweeps()
    if installed:
        wanted += comparison.peer_sweeps()
    with filled(where, wanted) as store:
        return comparison, comparison.table(store)


def _left_out(comparison: "Comparison", rows: "list[Row]") -> list[str]:
    """Say which rows are missing, and why."""
    from dpaudit.experiments.power.peers import HOW_TO_GET_IT  # noqa: PLC0415

    said = [
        f"weighted guesses are left out at {task.canaries} canaries: planned, they "
        "are expected to show no more than counting does"
        for task, guesses in comparison.plans.items()
        if guesses.weighted is None
    ]
    if not any(row.method.startswith("jax-privacy") for row in rows):
        said.append(
            "jax-privacy is not installed, so its rows are left out; to get them, in "
            f"an environment of their own: {HOW_TO_GET_IT}"
        )
    return said


def _draw(rows: "list[Row]", task: "Task", picture: Path | None) -> None:
    if picture is None:
        return
    from dpaudit.reporting.power_picture import (  # noqa: PLC0415 (needs its extra)
        Curve,
        Point,
        power_picture,
    )

    names = {row.method: row.ours for row in rows}
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
                for row in rows
                if row.method == name
            ),
        )
        for name, ours in names.items()
    ]
    draws = sorted({row.draws for row in rows})
    caption = (
        f"Scores N(0, 1) and N({task.mu:g}, 1), delta = {task.delta:g}, alpha = "
        f"{task.alpha:g}; the truth is {task.truth:.3f}. {draws[0]}"
        + (f" to {draws[-1]}" if len(draws) > 1 else "")
        + " draws, the same for all methods;\nbars are standard errors."
    )
    power_picture(curves, picture, ceiling=task.ceiling, caption=caption)


def _plain(row: "Row") -> "dict[str, Scalar]":
    ratio = row.ratio
    return {
        "canaries": row.canaries,
        "method": row.method,
        "ours": row.ours,
        "guesses": row.guesses,
        "draws": row.draws,
        "mean": row.mean,
        "error": row.error,
        "seconds": row.seconds,
        "ratio": ratio and ratio.middle,
        "ratio_low": ratio and ratio.low,
        "ratio_high": ratio and ratio.high,
        "pairs": ratio and ratio.pairs,
    }


def _write(rows: "list[Row]", path: Path | None) -> None:
    if path is None:
        return
    import csv  # noqa: PLC0415

    plain = [_plain(row) for row in rows]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, plain[0])
        writer.writeheader()
        writer.writerows(plain)


def _json(rows: "list[Row]", task: "Task", left_out: Sequence[str]) -> str:
    from dpaudit import _canonical  # noqa: PLC0415

    return _canonical.text(
        {
            "format": _FORMAT,
            "mu": task.mu,
            "delta": task.delta,
            "alpha": task.alpha,
            "truth": task.truth,
            "ceiling": task.ceiling,
            "rows": [_plain(row) for row in rows],
            "left_out": left_out,
        }
    )


def _print(rows: "list[Row]", task: "Task", left_out: Sequence[str]) -> None:
    from rich.table import Table  # noqa: PLC0415

    console = table_console()
    shown = Table()
    shown.add_column("canaries", justify="right", no_wrap=True)
    shown.add_column("method")
    for heading in ("guesses", "draws", "mean bound", "CPU s", "of ranked's [95 %]"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        shown.add_row(
            f"{row.canaries}",
            row.method,
            "" if row.guesses is None else f"{row.guesses}",
            f"{row.draws}",
            f"{row.mean:.3f}" + ("" if row.error is None else f" ± {row.error:.3f}"),
            "" if row.seconds is None else f"{row.seconds:.3g}",
            "" if row.ratio is None else f"{row.ratio}",
        )
    console.print(shown)
    console.print(
        f"scores N(0, 1) and N({task.mu:g}, 1), delta = {task.delta:g}, alpha = "
        f"{task.alpha:g}: the truth is {task.truth:.3f}, and no valid audit of one run "
        f"reliably shows more than {task.ceiling:.3f}",
        highlight=False,
    )
    for line in left_out:
        console.print(line, highlight=False)
