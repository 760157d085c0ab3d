"""``dpaudit register``: fix a design, flip the coins, commit to both."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from dpaudit._files import SECRET, new_file
from dpaudit._progress import progress_note
from dpaudit.cli import _library as lib
from dpaudit.cli._inputs import design_from_options
from dpaudit.cli._outputs import Output
from dpaudit.cli._shared import (
    AlphaOption,
    JsonOption,
    Observer,
    ObserverOption,
)
from dpaudit.errors import InvalidInputError


def register(
    canaries: Annotated[
        int, typer.Option(help="Number of canaries, each with its own coin flip.")
    ],
    epsilon: Annotated[float, typer.Option(help="Claimed epsilon.")],
    delta: Annotated[float, typer.Option(help="Claimed delta; 0 for pure privacy.")],
    key: Annotated[Path, typer.Option(help="New file for the secret key."), Output()],
    design: Annotated[
        Path,
        typer.Option(help="New .json file for design and commitment."),
        Output(suffixes=(".json",)),
    ] = Path("design.json"),
    alpha: AlphaOption = 0.05,
    guesses: Annotated[
        int | None,
        typer.Option(
            help="Number of guesses, the most confident ones from both ends of the "
            "scores; by default guesses are ranked and no number has to be fixed."
        ),
    ] = None,
    observer: ObserverOption = None,
    coins: Annotated[
        Path | None,
        typer.Option(help="New .csv file for id and bit of every canary; secret too."),
        Output(suffixes=(".csv",)),
    ] = None,
    program: Annotated[
        Path | None,
        typer.Option(
            help="The file that will be audited, program or model, or sha256: and its "
            "digest; the digest becomes part of the design.",
            metavar="<path>",
        ),
    ] = None,
    nonce: Annotated[
        str | None,
        typer.Option(
            help="A text chosen by a verifier; it becomes part of the design and shows "
            "that the design is newer than the text.",
            metavar="<text>",
        ),
    ] = None,
    pooled_runs: Annotated[
        int | None,
        typer.Option(
            help="Number of runs of which this is one, and whose counts `dpaudit "
            "combine` shall add up instead of combining p-values.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Fix an audit of scores before the run, and commit to it.

    Canaries are numbered from 0; canary i is included if its bit is 1. Publish the
    design before the run; keep the key until it is over, then give both to
    `dpaudit audit`. No file is overwritten.
    """
    fixed = design_from_options(
        canaries=canaries,
        epsilon=epsilon,
        delta=delta,
        alpha=alpha,
        guesses=guesses,
        observer=observer or Observer.OUTPUT,
        setting=replace(
            lib.identify_run(program=program, nonce=nonce),
            pooled_runs=_pooled(pooled_runs, guesses),
        ),
    )
    _check_new(design=design, key=key, coins=coins)
    secret = lib.Key.generate()
    registration = lib.register(fixed, secret)
    secret.write(key)
    if coins is not None:
        with progress_note("writing the coins"):
            _write_coins(coins, secret, canaries)
    with new_file(design) as draft:
        draft.write_text(registration.to_json() + "\n", "utf-8")
    text = _text(registration, design, key, coins)
    typer.echo(registration.to_json() if json else text)


def _pooled(runs: int | None, guesses: int | None) -> int | None:
    """Return of how many runs the counts are added up, if they can be."""
    if runs is None:
        return None
    if runs < 2 or guesses is None:
        raise InvalidInputError(
            "--pooled-runs adds up the counts of two runs or more, and needs --guesses "
            f"to be fixed, got --pooled-runs {runs}"
        )
    return runs


def _check_new(**paths: Path | None) -> None:
    """Refuse to overwrite anything, before anything is written."""
    for name, path in paths.items():
        if path is not None and path.exists():
            raise InvalidInputError(
                f"{path} is there already, and what was registered must not change; "
                f"name a new file with --{name}"
            )


def _write_coins(path: Path, secret: "lib.Key", canaries: int) -> None:
    bits = lib.Coins(key=secret, count=canaries).bits()
    with (
        new_file(path, mode=SECRET) as draft,
        draft.open("w", encoding="ascii") as file,
    ):
        file.write("id,bit\n")
        file.writelines(f"{i},{bit}\n" for i, bit in enumerate(bits.tolist()))


def _named(registration: "lib.Registration") -> str:
    """Return what else the commitment binds, a line each."""
    parts = ("Program", registration.program), ("Nonce", registration.nonce)
    return "".join(f"{name}: {value}\n" for name, value in parts if value)


def _text(
    registration: "lib.Registration", design: Path, key: Path, coins: Path | None
) -> str:
    assert registration.commitment is not None  # there is a key
    design_of = registration.design
    notes = (lib.note_on_ranking(design_of), lib.note_on_power(design_of))
    note = "".join(f"\nNote: {each}." for each in notes if each is not None)
    listed = "" if coins is None else f" They are listed in {coins}, secret too."
    return (
        f"Commitment: {registration.commitment.sha256}\n{_named(registration)}"
        f"1. Publish {design} where a date will show that it was there before the "
        "run.\n"
        f"2. Include canary i if its coin is 1: Coins(key=Key.read({str(key)!r}), "
        f"count={registration.design.canaries}).bits()[i].{listed}\n"
        f"3. Keep {key} from whatever makes the scores. After the run: dpaudit audit "
        f"scores.parquet --design {design} --key {key}{note}"
    )
