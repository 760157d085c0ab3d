"""``dpaudit gaps``: where the epsilon of a claim is lost on the way to a bound."""

from typing import Annotated

import typer

from dpaudit import _canonical, _validate
from dpaudit._progress import progress_note
from dpaudit.cli import _library as lib
from dpaudit.cli._shared import (
    AlphaOption,
    DeltaOption,
    JsonOption,
    PictureOption,
    json_number,
)

_FORMAT = "dpaudit.gaps.1"


def gaps(
    name: Annotated[str, typer.Argument(help="Mechanism, such as xor or count.")],
    n: Annotated[int, typer.Option(help="Canaries of the audit.")] = 100,
    epsilon: Annotated[float, typer.Option(help="Of the mechanism.")] = 1.0,
    sigma: Annotated[
        float, typer.Option(help="Standard deviation of Gaussian noise.")
    ] = 1.0,
    set_size: Annotated[int, typer.Option(help="Elements that share a count.")] = 10,
    probability: Annotated[
        float, typer.Option(help="That the all-or-nothing mechanism reveals its input.")
    ] = 0.1,
    guesses: Annotated[
        int | None, typer.Option(help="Guesses of the audit; all if not given.")
    ] = None,
    delta: DeltaOption = 0.0,
    alpha: AlphaOption = 0.05,
    observed: Annotated[
        float | None, typer.Option(help="A bound from a run, to compare.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of simulations.")] = 0,
    picture: PictureOption = None,
    json: JsonOption = False,
) -> None:
    """Show why the bound of an audit of a mechanism is below its epsilon."""
    parameters = lib.Parameters(
        elements=n,
        epsilon=epsilon,
        sigma=sigma,
        set_size=set_size,
        probability=probability,
    )
    with progress_note("computing the gaps"):
        found = _gaps(name, parameters, guesses, delta, alpha, observed, seed)
    if picture is not None:
        lib.gaps_figure(found, title=name).write(picture)
    typer.echo(_json(name, found) if json else f"{found.table()}\n\n{found}")


def _gaps(
    name: str,
    parameters: "lib.Parameters",
    guesses: int | None,
    delta: float,
    alpha: float,
    observed: float | None,
    seed: int,
) -> "lib.Gaps":
    import numpy as np  # noqa: PLC0415

    _validate.whole_number("--seed", seed)
    if observed is not None:
        _validate.nonnegative("--observed", observed)
    return lib.gaps(
        lib.named(name, parameters),
        elements=parameters.elements,
        guesses=guesses,
        delta=delta,
        alpha=alpha,
        observed=observed,
        rng=np.random.default_rng(seed),
    )


def _json(name: str, found: "lib.Gaps") -> str:
    drops = found.drops
    return _canonical.text(
        {
            "format": _FORMAT,
            "mechanism": name,
            "elements": found.elements,
            "guesses": found.guesses,
            "delta": found.delta,
            "alpha": found.alpha,
            "levels": [
                {**_level(level), "takes": json_number(drops.get(level.name))}
                for level in found.levels
            ],
            "limit": None if found.most is None else found.most.value,
            "knowledge": [_level(level) for level in found.knowledge],
            "spread": found.spread,
            "remainder": found.remainder,
            "largest": found.largest,
            "text": str(found),
        }
    )


def _level(level: "lib.GapLevel") -> dict[str, "_canonical.Json"]:
    return {
        "name": level.name,
        "epsilon": json_number(level.epsilon),
        "low": json_number(level.low),
        "high": json_number(level.high),
        "meaning": level.meaning,
    }
