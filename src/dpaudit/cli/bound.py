"""``dpaudit bound``: from what was guessed to a lower bound on epsilon."""

from pathlib import Path
from typing import Annotated

import typer

from dpaudit import _canonical
from dpaudit._patience import patience
from dpaudit.cli import _library as lib
from dpaudit.cli._shared import (
    AlphaOption,
    DeltaOption,
    JsonOption,
    read_text,
)
from dpaudit.errors import InvalidInputError

_METHODS = "exact, pure, adaptive, steinke, separate, gdp"


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
    method: Annotated[
        str | None,
        typer.Option(
            help=f"For counts: {_METHODS}. If not given: adaptive if a reading says "
            "so, or else exact."
        ),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Claimed epsilon, to be tested too.")
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Show every method.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Bound epsilon from below, for any mechanism.

    A claim is tested by the method that gives the bound; without one there is no
    verdict. Exits with 0 if there is none or no violation is found, 1 if the claim is
    refuted, 2 if something is misused, 3 if the guesses are inconclusive: all right
    would not have refuted the claim, or they are not better than chance; 4 if they are
    of a game that does not test the claim.
    """
    read = _reading(
        canaries,
        guesses,
        correct,
        reading,
        adaptive=method == "adaptive" and not compare,
    )
    method = _method(read, method, compare=compare, claimed=epsilon is not None)
    with patience("bounding epsilon"):
        bounds = _bounds(read, method=method, compare=compare, delta=delta, alpha=alpha)
        test = _claim_test(
            read, method=method, epsilon=epsilon, delta=delta, alpha=alpha
        )
        ended = test and _ended(
            read, test, method=method, epsilon=epsilon, delta=delta, alpha=alpha
        )
    if json:
        typer.echo(
            _as_json(read, bounds, test, ended, method, delta=delta, alpha=alpha)
        )
    else:
        _print(
            read, bounds, test, ended, method, compare=compare, delta=delta, alpha=alpha
        )
    raise typer.Exit(ended[0].exit_code if ended else 0)


def _reading(
    canaries: int | None,
    guesses: int | None,
    correct: int | None,
    path: Path | None,
    *,
    adaptive: bool,
) -> "lib.Reading":
    if path is not None:
        if (canaries, guesses, correct) != (None, None, None):
            raise InvalidInputError("give either --reading or the three counts")
        return lib.Reading.from_json(read_text(path))
    if canaries is None or guesses is None or correct is None:
        raise InvalidInputError(
            "give --canaries, --guesses and --correct, or a --reading"
        )
    return lib.Counts(
        canaries=canaries, guesses=guesses, correct=correct, adaptive=adaptive
    )


def _method(
    read: "lib.Reading", asked: str | None, *, compare: bool, claimed: bool
) -> str | None:
    """Return the method for counts; None for a reading that only one bound reads."""
    if asked is not None and asked not in lib.METHODS:
        raise InvalidInputError(f"--method must be one of {_METHODS}, got {asked!r}")
    counts = read.counted
    if counts is None:
        if compare or asked is not None:
            raise InvalidInputError("--method and --compare are for counts")
        return None
    if asked == "gdp" and claimed:
        raise InvalidInputError(
            "--method gdp bounds the mu of a mechanism that is Gaussian-private and "
            "tests no (epsilon, delta) claim; leave out --epsilon, or test the claim "
            "by another method"
        )
    return lib.proved_methods(counts)[0] if asked is None else asked


def _bounds(
    read: "lib.Reading",
    *,
    method: str | None,
    compare: bool,
    delta: float,
    alpha: float,
) -> "list[lib.LowerBound | lib.ParameterBound]":
    counts = read.counted
    if counts is None or method is None:
        return [lib.bound_for(read).epsilon_lower(read, delta=delta, alpha=alpha)]
    names = [method]
    if compare:
        names = [n for n in lib.proved_methods(counts) if n != "pure" or delta == 0]
    return [lib.bound_counts(name, counts, delta=delta, alpha=alpha) for name in names]


def _claim_test(
    read: "lib.Reading",
    *,
    method: str | None,
    epsilon: float | None,
    delta: float,
    alpha: float,
) -> "lib.ClaimTest | None":
    if epsilon is None:
        return None
    bound = None if method is None else lib.METHODS[method]
    assert not isinstance(bound, lib.GaussianFamily)  # it tests no such claim
    claim = lib.ApproxDP(epsilon=epsilon, delta=delta)
    return lib.test_claim(claim, read, alpha=alpha, bound=bound)


def _ended(
    read: "lib.Reading",
    test: "lib.ClaimTest",
    *,
    method: str | None,
    epsilon: float | None,
    delta: float,
    alpha: float,
) -> "tuple[lib.Verdict, str]":
    """Return the verdict, and why if it is no answer.

    Nothing but the guesses shows that a canary went in, so they have to show it.
    """
    best = _claim_test(
        read.perfect(), method=method, epsilon=epsilon, delta=delta, alpha=alpha
    )
    silence = _claim_test(read, method=method, epsilon=0.0, delta=0.0, alpha=lib.SURE)
    assert best is not None  # there is a claim
    assert silence is not None
    return lib.verdict_of(
        refuted=test.refuted,
        could=test.refuted or best.refuted,
        controls=[lib.better_than_chance(silence)],
    )


def _ceiling(
    read: "lib.Reading", method: str, *, delta: float, alpha: float
) -> float | None:
    """Return what the method would have said, had every guess been right."""
    if read.counted is None:
        return None
    by = lib.METHODS[method]
    by = lib.Exact() if isinstance(by, lib.GaussianFamily) else by  # of another tier
    best = read.counted.perfect()
    return by.epsilon_lower(best, delta=delta, alpha=alpha).epsilon_lower


def _as_json(
    read: "lib.Reading",
    bounds: "list[lib.LowerBound | lib.ParameterBound]",
    test: "lib.ClaimTest | None",
    ended: "tuple[lib.Verdict, str] | None",
    method: str | None,
    *,
    delta: float,
    alpha: float,
) -> str:
    first = lib.encode(bounds[0])
    found = (
        {"epsilon_lower": first["epsilon_lower"]} if "epsilon_lower" in first else {}
    )
    return _canonical.text(
        {
            "format": "dpaudit.bound.1",
            "reading": lib.encode(read),
            "bounds": lib.encode(bounds),
            "ceiling": _ceiling(read, bounds[0].method, delta=delta, alpha=alpha),
            "verdict": ended and str(ended[0]),
            "reason": ended and ended[1],
            "claim": _claim_json(test, method or bounds[0].method),
            **found,
        }
    )


def _claim_json(
    test: "lib.ClaimTest | None", method: str
) -> "dict[str, float | bool | str] | None":
    if test is None:
        return None
    ((epsilon,), (delta,)) = test.claim.points()
    return {
        "epsilon": float(epsilon),
        "delta": float(delta),
        "p_value": test.p_value,
        "alpha": test.alpha,
        "refuted": test.refuted,
        "method": method,
    }


def _print(
    read: "lib.Reading",
    bounds: "list[lib.LowerBound | lib.ParameterBound]",
    test: "lib.ClaimTest | None",
    ended: "tuple[lib.Verdict, str] | None",
    method: str | None,
    *,
    compare: bool,
    delta: float,
    alpha: float,
) -> None:
    if test and ended:
        said = str(test) + (f", by the {method} method" if compare else "")
        typer.echo(f"{lib.opening(*ended)} {said[0].upper()}{said[1:]}.")
    if not compare:
        typer.echo(bounds[0])
        return

    typer.echo(f"{'method':<10}{'tier':<6}{'epsilon':>8}   for")
    for found in bounds:
        value = getattr(found, "epsilon_lower", None)
        shown = value if value is not None else getattr(found, "model_epsilon", 0.0)
        low, about = lib.rounded_down(shown), lib.ABOUT[found.method]
        typer.echo(f"{found.method:<10}{found.tier:<6}{low:>8}   {about}")
    ceiling = _ceiling(read, bounds[0].method, delta=delta, alpha=alpha)
    typer.echo(
        f"all at delta = {delta:g}, alpha = {alpha:g}; with every guess right the "
        f"{bounds[0].method} bound would be {ceiling:.3f}"
    )
