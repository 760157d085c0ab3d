"""``dpaudit plan``: what to fix before DP-SGD is audited, and what to expect of it."""

from enum import StrEnum
from math import inf
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
from dpaudit.errors import InvalidInputError, MissingExtraError


class _Purpose(StrEnum):
    FAULTS = "faults"
    BOUND = "bound"


_FORMAT = "dpaudit.plan.1"


def plan(
    delta: DeltaOption,
    steps: Annotated[int, typer.Option(help="Steps of training.")],
    rate: Annotated[float, typer.Option(help="Sampling rate; 1 is the full batch.")],
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="Claimed epsilon; by default what an accountant proves of the noise "
            "(extra accounting)."
        ),
    ] = None,
    coordinates: Annotated[
        int | None, typer.Option(help="Coordinates that can hold canaries.")
    ] = None,
    noise: Annotated[
        float | None,
        typer.Option(
            help="Noise over the clipping norm; by default what the RDP accountant "
            "asks for (extra accounting)."
        ),
    ] = None,
    alpha: AlphaOption = 0.05,
    per_coordinate: Annotated[
        int | None, typer.Option(help="Canaries per coordinate, if that is fixed.")
    ] = None,
    target_epsilon: Annotated[
        float | None,
        typer.Option(help="How many coordinates does a mean bound of this need?"),
    ] = None,
    purpose: Annotated[
        _Purpose | None,
        typer.Option(
            help="What the audit is for: to detect the smallest fault, or the largest "
            "mean bound of a training run without one. If not given: faults, or bound "
            "with --target-epsilon.",
        ),
    ] = None,
    limit: Annotated[
        bool,
        typer.Option(
            help="Also print what no valid audit of these canaries could show, however "
            "it guesses; takes some seconds.",
        ),
    ] = True,
    picture: PictureOption = None,
    json: JsonOption = False,
) -> None:
    """Plan an audit of DP-SGD with Dirac canaries, and state what it would detect.

    The plan uses nothing of the audit's coin flips, so following it keeps the audit
    valid.
    """
    with progress_note("planning the audit"):
        found, needed = _planned(
            (epsilon, delta),
            (steps, rate, noise),
            coordinates,
            alpha,
            per_coordinate,
            target_epsilon,
            purpose or ("faults" if target_epsilon is None else "bound"),
        )
        most = found.limit() if limit else None
        most = None if most and most.high == inf else most
    if picture is not None:
        lib.plan_figure(found, most=most).write(picture)
    shown = _json if json else _text
    typer.echo(shown(found, target_epsilon, needed, most))


def _planned(
    claimed: tuple[float | None, float],
    trained: tuple[int, float, float | None],
    coordinates: int | None,
    alpha: float,
    per_coordinate: int | None,
    target: float | None,
    purpose: str,
) -> "tuple[lib.Plan, lib.Needed | None]":
    (epsilon, delta), (steps, rate, noise) = claimed, trained
    _validate.error_level("alpha", alpha)
    if coordinates is None and target is None:
        raise InvalidInputError(
            "give --coordinates, or --target-epsilon to ask how many are needed"
        )
    if noise is None:
        if epsilon is None:
            raise InvalidInputError("give --epsilon, --noise, or both")
        noise = _noise(epsilon, delta, steps, rate)
    training = lib.TrainingSetup(steps=steps, rate=rate, noise=noise)
    guarantee = _guarantee(training.steps, rate, noise)
    needed = None
    if target is not None:
        needed = lib.canaries_needed(
            training,
            target_epsilon=target,
            delta=delta,
            alpha=alpha,
            per_coordinate=per_coordinate,
        )
    if coordinates is None:
        if needed is None:
            raise InvalidInputError(
                f"no audit of up to a million coordinates is expected to show "
                f"epsilon >= {target:g}; choose a smaller --target-epsilon, or give "
                "--coordinates to see what can be shown"
            )
        coordinates, per_coordinate = needed.coordinates, needed.per_coordinate
    found = lib.plan_audit(
        training,
        claim=_claim(epsilon, delta, guarantee),
        coordinates=coordinates,
        alpha=alpha,
        per_coordinate=per_coordinate,
        guarantee=guarantee,
        purpose=purpose,
    )
    return found, needed


def _claim(
    epsilon: float | None, delta: float, guarantee: "lib.Guarantee | None"
) -> "lib.ApproxDP":
    if epsilon is None:
        if guarantee is None:
            raise MissingExtraError.of(
                "the epsilon of a noise comes from an accountant",
                "accounting",
                ", or give the claim's by --epsilon",
            )
        epsilon = guarantee.epsilon_at(delta)
    return lib.ApproxDP(epsilon=epsilon, delta=delta)


def _noise(epsilon: float, delta: float, steps: int, rate: float) -> float:
    try:
        from dpaudit.accounting import noise_for  # noqa: PLC0415 (an extra)
    except MissingExtraError as error:
        raise MissingExtraError.of(
            "the noise for an epsilon comes from an accountant",
            "accounting",
            ", or give it by --noise",
        ) from error
    return noise_for(epsilon, delta, sample_rate=rate, steps=steps, method="rdp")


def _guarantee(steps: int, rate: float, noise: float) -> "lib.Guarantee | None":
    try:
        from dpaudit.accounting import accountant_curve  # noqa: PLC0415 (an extra)
    except MissingExtraError:
        return None  # the plan states that no accountant was asked
    return accountant_curve([(noise, rate, steps)])


def _text(
    found: "lib.Plan",
    target: float | None,
    needed: "lib.Needed | None",
    most: "lib.Estimate | None",
) -> str:
    lines = [str(found)]
    if most is not None:
        lines.append(lib.no_more_than(most))
    if target is not None:
        lines.append(_answer(found, target, needed))
    return "\n".join([*lines, "", found.table()])


def _answer(found: "lib.Plan", target: float, needed: "lib.Needed | None") -> str:
    """Print how many canaries a target needs."""
    at = f"epsilon >= {target:g} on average at delta = {found.claim.delta:g}"
    if needed is not None:
        return (
            f"For {at} (alpha = {found.alpha:g}) about {needed.coordinates} "
            f"coordinates of {needed.per_coordinate} are needed."
        )
    if found.ceiling is not None and found.ceiling < target:
        return (
            f"For {at} no number of canaries is enough: no one-run audit with alpha = "
            f"{found.alpha:g} reliably shows more than {found.ceiling:.3f}."
        )
    return f"For {at} more than a million coordinates are needed."


def _json(
    found: "lib.Plan",
    target: float | None,
    needed: "lib.Needed | None",
    most: "lib.Estimate | None",
) -> str:
    return _canonical.text(
        {
            "format": _FORMAT,
            "training": lib.encode(found.training.setting()),
            "epsilon": found.claim.epsilon,
            "delta": found.claim.delta,
            "alpha": found.alpha,
            "purpose": str(found.purpose),
            "available": found.available,
            "coordinates": found.coordinates,
            "per_coordinate": found.per_coordinate,
            "rules": lib.encode(found.rules),
            "method": found.method,
            "tier": "A",
            "expected": lib.encode(found.expected),
            "true_epsilon": json_number(found.true_epsilon),
            "ceiling": json_number(found.ceiling),
            "all_right": found.all_right,
            "fault": found.fault,
            "candidates": lib.encode(found.candidates),
            "target_epsilon": target,
            "needed": lib.encode(needed),
            "design": lib.encode(found.design()),
            "text": str(found),
        }
        | ({} if most is None else {"limit": lib.encode(most)})
    )
