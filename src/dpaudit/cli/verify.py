"""``dpaudit verify``: check somebody else's audit without running it again."""

from pathlib import Path
from typing import Annotated

import typer

from dpaudit._patience import patience
from dpaudit.cli._designs import read_registration
from dpaudit.cli._shared import JsonOption, read_text
from dpaudit.errors import InvalidInputError

_MISSING = 6  # exit code


def verify(
    evidence: Annotated[Path, typer.Argument(help="The evidence; - for stdin.")],
    registration: Annotated[
        Path | None,
        typer.Option(help="The design.json that was published before the run."),
    ] = None,
    public_key: Annotated[
        Path | None,
        typer.Option(help="Of the signer, a .pem file (needs the extra sign)."),
    ] = None,
    files: Annotated[
        Path | None, typer.Option(help="Folder of the files of scores, if any.")
    ] = None,
    require: Annotated[
        str | None,
        typer.Option(
            help="What must have been established besides: any of registration, "
            "signature, tally, with commas between.",
            metavar="<names>",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Check evidence: derive the coins again, count again, find the bound again.

    Says what was established and what was not. Exits with 0 if no check fails and bound
    and verdict were found again, with 1 otherwise, with 2 if something is misused, with
    6 if something that was required is missing.
    """
    from dpaudit.evidence import verify as verified  # noqa: PLC0415 (numpy)
    from dpaudit.evidence.envelope import is_sealed  # noqa: PLC0415

    required = _required(require)
    text = read_text(evidence)
    if not is_sealed(text):
        raise InvalidInputError(
            f"{evidence} is not evidence; what `dpaudit audit --evidence` or `dpaudit "
            "evidence` wrote is"
        )
    if files is not None and not files.is_dir():
        raise InvalidInputError(f"--files must be a folder, got {files}")
    signer = None
    if public_key is not None:
        from dpaudit.evidence.signing import PublicKey  # noqa: PLC0415 (its extra)

        signer = PublicKey.read(public_key)
    with patience("checking the evidence"):
        found = verified(
            text,
            registration=None
            if registration is None
            else read_registration(registration),
            public_key=signer,
            files=files,
            required=required,
        )
    typer.echo(found.to_json() if json else f"{found}")
    raise typer.Exit(1 if not found.sound else _MISSING if found.missing else 0)


def _required(names: str | None) -> tuple[str, ...]:
    from dpaudit.evidence.verification import REQUIREMENTS  # noqa: PLC0415 (numpy)

    found = [] if names is None else [each.strip() for each in names.split(",")]
    for each in found:
        if each not in REQUIREMENTS:
            raise InvalidInputError(
                f"--require takes any of {', '.join(REQUIREMENTS)}, with commas "
                f"between, got {each!r}"
            )
    return tuple(dict.fromkeys(found))
