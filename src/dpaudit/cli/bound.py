"""``dpaudit bound``: from what was guessed to a lower bound on epsilon."""

import json as json_module
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpaudit.cli._shared import (
    AlphaOption,
    DeltaOption,
    JsonOption,
    patience,
    read_text,
)
from dpaudit.errors import InvalidInputError

if TYPE_CHECKING:
    from dpaudit.bounds.bound import ClaimTest, LowerBound, ParameterBound
    from dpaudit.bounds.reads import Reading

_METHODS = "exact, pure, adaptive, steinke, classic, gdp"


def bound(
    canaries: Annotated[
        int | None, typer.Option(help="Canaries decided by a fair coin each.")
    ] = None,
    guesses: Annotated[
        int | None, typer.Option(help="Guesses fixed before the run.")
    ] = None,
    correct: Annotated[
        int | None, typer.Option(help="Guesses that were right.")
    ] = None,
    reading: Annotated[
        Path | None,
        typer.Option(help="A JSON reading instead of the three counts; - for stdin."),
    ] = None,
    delta: DeltaOption = 0.0,
    alpha: AlphaOption = 0.05,
    method: Annotated[str, typer.Option(help=f"For counts: {_METHODS}.")] = "exact",
    epsilon: Annotated[
        float | None, typer.Option(help="Claimed epsilon, to be tested too.")
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Show every method.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Bound epsilon from below, for any mechanism.

    Exits with 0, or 1 if the claim is refuted, or 2 if something is misused.
    """
    read = _reading(canaries, guesses, correct, reading)
    with patience("bounding epsilon"):
        bounds = _bounds(read, method=method, compare=compare, delta=delta, alpha=alpha)
        test = _claim_test(read, epsilon=epsilon, delta=delta, alpha=alpha)
    if json:
        typer.echo(_as_json(read, bounds, test, delta=delta, alpha=alpha))
    else:
        _print(read, bounds, test, compare=compare, delta=delta, alpha=alpha)
    raise typer.Exit(1 if test and test.refuted else 0)


def _reading(
    canaries: int | None, guesses: int | None, correct: int | None, path: Path | None
) -> "Reading":
    from dpaudit.bounds.reading_json import reading_from_json  # noqa: PLC0415
    from dpaudit.bounds.reads import Counts  # noqa: PLC0415

    if path is not None:
        if (canaries, guesses, correct) != (None, None, None):
            raise InvalidInputError("give either --reading or the three counts")
        return reading_from_json(read_text(path))
    if canaries is None or guesses is None or correct is None:
        raise InvalidInputError(
            "give --canaries, --guesses and --correct, or a --reading"
        )
    return Counts(canaries=canaries, guesses=guesses, correct=correct)


def _bounds(
    read: "Reading", *, method: str, compare: bool, delta: float, alpha: float
) -> "list[LowerBound | ParameterBound]":
    from dpaudit.bounds.methods import METHODS, bound_counts, bound_other  # noqa: PLC0415
    from dpaudit.bounds.reads import Counts  # noqa: PLC0415

    if method not in METHODS:
        raise InvalidInputError(f"--method must be one of {_METHODS}, got {method!r}")
    if not isinstance(read, Counts):
        if compare or method != "exact":
            raise InvalidInputError("--method and --compare are for counts")
        return [bound_other(read, delta=delta, alpha=alpha)]
    names = [n for n in METHODS if n != "pure" or delta == 0] if compare else [method]
    return [bound_counts(name, read, delta=delta, alpha=alpha) for name in names]


def _claim_test(
    read: "Reading", *, epsilon: float | None, delta: float, alpha: float
) -> "ClaimTest | None":
    from dpaudit.bounds.claims import test_claim  # noqa: PLC0415
    from dpaudit.privacy.guarantees import ApproxDP  # noqa: PLC0415

    if epsilon is None:
        return None
    return test_claim(ApproxDP(epsilon=epsilon, delta=delta), read, alpha=alpha)


def _ceiling(read: "Reading", *, delta: float, alpha: float) -> float | None:
    from dpaudit.bounds.ceilings import design_ceiling  # noqa: PLC0415
    from dpaudit.bounds.reads import Counts  # noqa: PLC0415

    if isinstance(read, Counts):
        return design_ceiling(read, delta=delta, alpha=alpha)
    return None


def _as_json(
    read: "Reading",
    bounds: "list[LowerBound | ParameterBound]",
    test: "ClaimTest | None",
    *,
    delta: float,
    alpha: float,
) -> str:
    from dpaudit import _canonical  # noqa: PLC0415
    from dpaudit.bounds.reading_json import reading_to_json  # noqa: PLC0415

    first = asdict(bounds[0])
    found = (
        {"epsilon_lower": first["epsilon_lower"]} if "epsilon_lower" in first else {}
    )
    return _canonical.text(
        {
            "format": "dpaudit.bound.1",
            "reading": json_module.loads(reading_to_json(read)),
            "bounds": [asdict(b) for b in bounds],
            "ceiling": _ceiling(read, delta=delta, alpha=alpha),
            "claim": _claim_json(test),
            **found,
        }
    )


def _claim_json(test: "ClaimTest | None") -> "dict[str, float | bool] | None":
    if test is None:
        return None
    ((epsilon,), (delta,)) = test.claim.points()
    return {
        "epsilon": float(epsilon),
        "delta": float(delta),
        "p_value": test.p_value,
        "alpha": test.alpha,
        "refuted": test.refuted,
    }


def _print(
    read: "Reading",
    bounds: "list[LowerBound | ParameterBound]",
    test: "ClaimTest | None",
    *,
    compare: bool,
    delta: float,
    alpha: float,
) -> None:
    if test:
        said = str(test)
        typer.echo(said[0].upper() + said[1:])
    if not compare:
        typer.echo(bounds[0])
        return
    from dpaudit.bounds.bound import rounded_down  # noqa: PLC0415
    from dpaudit.bounds.methods import ABOUT  # noqa: PLC0415

    typer.echo(f"{'method':<10}{'tier':<6}{'epsilon':>8}   for")
    for found in bounds:
        value = getattr(found, "epsilon_lower", None)
        shown = value if value is not None else getattr(found, "model_epsilon", 0.0)
        low, about = rounded_down(shown), ABOUT[found.method]
        typer.echo(f"{found.method:<10}{found.tier:<6}{low:>8}   {about}")
    ceiling = _ceiling(read, delta=delta, alpha=alpha)
    typer.echo(
        f"all at delta = {delta:g}, alpha = {alpha:g}; with every guess right the "
        f"exact bound would be {ceiling:.3f}"
    )
