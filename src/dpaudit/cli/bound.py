"""``dpaudit bound``: from counts to a lower bound on epsilon."""

from dataclasses import asdict
from typing import Annotated

import typer

from dpaudit import _canonical
from dpaudit.bounds.exact import Exact
from dpaudit.bounds.reads import Counts
from dpaudit.errors import InvalidInputError


def bound(
    canaries: Annotated[int, typer.Option(help="Canaries decided by a fair coin.")],
    guesses: Annotated[int, typer.Option(help="Guesses fixed before the run.")],
    correct: Annotated[int, typer.Option(help="Guesses that were right.")],
    delta: Annotated[float, typer.Option(help="Delta of the bound.")],
    alpha: Annotated[float, typer.Option(help="Chance of being wrong.")] = 0.05,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the lower bound on epsilon that the counts give."""
    try:
        counts = Counts(canaries=canaries, guesses=guesses, correct=correct)
        found = Exact().epsilon_lower(counts, delta=delta, alpha=alpha)
    except InvalidInputError as error:
        typer.echo(f"dpaudit bound: {error}", err=True)
        raise typer.Exit(2) from error
    if json:
        typer.echo(
            _canonical.text(
                {"format": "dpaudit.bound.1", **asdict(counts), **asdict(found)}
            )
        )
    else:
        typer.echo(found)
