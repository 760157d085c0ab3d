"""What commands read: designs from options or files, keys, tables of scores."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from dpaudit import _canonical
from dpaudit.cli import _library as lib
from dpaudit.cli._shared import Observer, naming_file, read_text
from dpaudit.errors import InvalidInputError, InvalidRunError

__all__ = [
    "IdOption",
    "IncludedOption",
    "KeyOption",
    "ScoreOption",
    "SkipIdsOption",
    "design_from_options",
    "read_key",
    "read_registration",
    "registered_design",
]

IdOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--id", help="Column of the canaries' ids, if not id.", metavar="<column>"
    ),
]
IncludedOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--included",
        help="Column that is 1 for included canaries, if not bit.",
        metavar="<column>",
    ),
]
ScoreOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--score", help="Column of scores, if not score.", metavar="<column>"),
]

KeyOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--key", help="The key that the design was registered with."),
]
SkipIdsOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--skip-id-checks",
        help="Do not see that ids are 0, 1, ..., each once; a key needs them.",
    ),
]


def design_from_options(
    *,
    canaries: int,
    epsilon: float,
    delta: float,
    alpha: float,
    guesses: int | None,
    observer: Observer,
    setting: "lib.Setting",
    random_half: bool = False,
) -> "lib.Design":
    """Return the design of an audit of scores; ranked if no guesses are given.

    All are ranked, or as many of the surest as a tally can keep in order. Of a random
    half, as many are guessed as were included.
    """
    rules: lib.Rules = lib.Ranking(guesses=min(canaries, lib.MOST_RANKED))
    if random_half:
        rules = lib.RandomHalf(guesses=canaries // 2 if guesses is None else guesses)
    elif guesses is not None:
        rules = lib.OneRun(guesses=guesses)
    return lib.Design(
        canaries=canaries,
        rules=rules,
        claim=lib.ApproxDP(epsilon=epsilon, delta=delta),
        alpha=alpha,
        threat_model=lib.ThreatModel[observer.name],
        setting=setting,
    )


def read_registration(path: Path) -> "lib.Registration":
    """Return what was registered; a bare design was registered without a key."""
    text = read_text(path)
    with naming_file(path):
        plain = _canonical.parsed(text)
        form = plain.get("format", "") if isinstance(plain, dict) else ""
        if str(form).startswith("dpaudit.design."):
            return lib.Registration(design=lib.read_design(plain), commitment=None)
        return lib.Registration.of_plain(plain)


def read_key(path: Path, registered: "lib.Registration") -> "lib.Key":
    """Return a key, if it is the one that a design was registered with."""
    try:
        key = lib.Key.read(path)
    except OSError as error:
        raise InvalidInputError(f"cannot read {path}: {error.strerror}") from error
    commitment = registered.commitment
    if commitment is not None and not commitment.holds_for(key, registered.design):
        raise InvalidRunError(
            f"{path} is not the key that the design was registered with: the "
            "commitment does not hold for it"
        )
    return key


def registered_design(
    path: Path, key: Path | None
) -> "tuple[lib.Design, lib.Key | None]":
    """Return what was registered, and the key if it was registered with one."""
    registered = read_registration(path)
    if key is not None:
        return registered.design, read_key(key, registered)
    if registered.commitment is not None:
        raise InvalidInputError(
            f"{path} was registered with a key, from which the coins are derived: give "
            "it with --key"
        )
    return registered.design, None
