"""``dpaudit bound``: from what was guessed to a lower bound on epsilon."""

from pathlib import Path
from typing import Annotated, final

import typer

from dpaudit import _canonical
from dpaudit._progress import progress_note
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
        int | None, typer.Option(help="Canaries, each included by a fair coin flip.")
    ] = None,
    guesses: Annotated[
        int | None, typer.Option(help="Guesses fixed before the run.")
    ] = None,
    correct: Annotated[int | None, typer.Option(help="Correct guesses.")] = None,
    reading: Annotated[
        Path | None,
        typer.Option(help="A JSON reading instead of the three counts; - for stdin."),
    ] = None,
    delta: DeltaOption = 0.0,
    alpha: AlphaOption = 0.05,
    method: Annotated[
        str | None,
        typer.Option(
            help=f"For counts: {_METHODS}. Default: exact, or adaptive for an "
            "adaptive reading."
        ),
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="Claimed epsilon, to be tested as well.")
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Show every method.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Bound epsilon from below, for any mechanism.

    A claim is tested by the method that gives the bound; without a claim there is no
    verdict. Guesses are inconclusive if they would not refute the claim even if all
    were correct, or if they are no better than chance.
    """
    read = _reading(
        canaries,
        guesses,
        correct,
        reading,
        adaptive=method == "adaptive" and not compare,
    )
    method = _method(read, method, compare=compare, claimed=epsilon is not None)
    with progress_note("bounding epsilon"):
        found = _Bounded(read, method, epsilon, delta, alpha, compare=compare)
    typer.echo(found.json() if json else found.text())
    raise typer.Exit(found.ended.verdict.exit_code if found.ended else 0)


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


@final
class _Bounded:
    """What was found, and the verdict on the claim if there is one."""

    def __init__(
        self,
        read: "lib.Reading",
        method: str | None,
        epsilon: float | None,
        delta: float,
        alpha: float,
        *,
        compare: bool,
    ) -> None:
        self.read, self.method, self.compare = read, method, compare
        self.delta, self.alpha = delta, alpha
        self.bounds = _bounds(read, method, compare=compare, delta=delta, alpha=alpha)
        self.test: lib.ClaimTest | None = None
        self.ended: lib.Decision | None = None
        if epsilon is not None:
            claim = lib.ApproxDP(epsilon=epsilon, delta=delta)
            self.test = _test(read, method, claim, alpha)
            self.ended = _ended(read, method, self.test)

    def json(self) -> str:
        first = lib.encode(self.bounds[0])
        return _canonical.text(
            {
                "format": "dpaudit.bound.1",
                "reading": lib.encode(self.read),
                "bounds": lib.encode(self.bounds),
                "ceiling": self._ceiling(),
                "verdict": self.ended and str(self.ended.verdict),
                "reason": self.ended and lib.reason(self.ended),
                "claim": self._claim(),
                **{name: first[name] for name in ("epsilon_lower",) if name in first},
            }
        )

    def text(self) -> str:
        lines = []
        if self.test and self.ended:
            sentence = str(self.test)
            sentence += f", by the {self.method} method" if self.compare else ""
            first = lib.opening(self.ended.verdict, lib.reason(self.ended))
            lines.append(f"{first} {sentence[0].upper()}{sentence[1:]}.")
        lines += self._table() if self.compare else [f"{self.bounds[0]}"]
        return "\n".join(lines)

    def _table(self) -> list[str]:
        lines = [f"{'method':<10}{'tier':<6}{'epsilon':>8}   for"]
        for found in self.bounds:
            value = getattr(found, "epsilon_lower", None)
            shown = value if value is not None else getattr(found, "model_epsilon", 0.0)
            low, about = lib.rounded_down(shown), lib.ABOUT[found.method]
            lines.append(f"{found.method:<10}{found.tier:<6}{low:>8}   {about}")
        return [
            *lines,
            f"all at delta = {self.delta:g}, alpha = {self.alpha:g}; with every guess "
            f"correct the {self.bounds[0].method} bound would be {self._ceiling():.3f}",
        ]

    def _ceiling(self) -> float | None:
        """Return the bound of the method if every guess were correct."""
        if self.read.counted is None:
            return None
        by = lib.METHODS[self.bounds[0].method]
        by = (
            lib.ExactBound() if isinstance(by, lib.GaussianFamily) else by
        )  # another tier
        best = self.read.counted.perfect()
        return by.epsilon_lower(best, delta=self.delta, alpha=self.alpha).epsilon_lower

    def _claim(self) -> "dict[str, float | bool | str] | None":
        if self.test is None:
            return None
        ((epsilon,), (delta,)) = self.test.claim.points()
        return {
            "epsilon": float(epsilon),
            "delta": float(delta),
            "p_value": self.test.p_value,
            "alpha": self.test.alpha,
            "refuted": self.test.refuted,
            "method": self.method or self.bounds[0].method,
        }


def _bounds(
    read: "lib.Reading",
    method: str | None,
    *,
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


def _test(
    read: "lib.Reading", method: str | None, claim: "lib.Guarantee", alpha: float
) -> "lib.ClaimTest":
    bound = None if method is None else lib.METHODS[method]
    assert not isinstance(bound, lib.GaussianFamily)  # it tests no such claim
    return lib.judge_claim(claim, read, alpha=alpha, bound=bound)


def _ended(
    read: "lib.Reading", method: str | None, test: "lib.ClaimTest"
) -> "lib.Decision":
    """Return the verdict, and why if it is no answer.

    Nothing but the guesses shows that a canary went in, so they have to show it.
    """
    best = _test(read.perfect(), method, test.claim, test.alpha)
    nothing = lib.ApproxDP(epsilon=0.0, delta=0.0)
    silence = _test(read, method, nothing, lib.ALPHA_OF_EFFECT)
    return lib.decide(
        refuted=test.refuted,
        could=test.refuted or best.refuted,
        checks=[lib.better_than_chance(silence)],
    )
