"""``dpaudit verify``: check somebody else's audit without running it again."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from dpaudit import _canonical
from dpaudit._progress import progress_note
from dpaudit.cli import _library as lib
from dpaudit.cli._inputs import read_registration
from dpaudit.cli._results import check_folder
from dpaudit.cli._shared import JsonOption, read_text
from dpaudit.errors import InvalidInputError, on_one_line


def verify(
    evidence: Annotated[
        list[Path],
        typer.Argument(
            help="The evidence; - for stdin. Of several it is also checked that no "
            "key was used for two outputs."
        ),
    ],
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
    accept_unchecked_counts: Annotated[
        bool,
        typer.Option(
            "--accept-unchecked-counts",
            help="Do without the guesses, or files of scores, that the counts were "
            "made from; otherwise the tally is required.",
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Check evidence: derive the coins again, count again, find the bound again.

    Prints what was established and what was not. The exit code is 0 if no check fails
    and bound and verdict were found again, 1 if a check fails, and 6 if something that
    is required is missing: what --require names, and the tally.
    """
    required = _required(require)
    texts = [_evidence(path) for path in evidence]
    check_folder(files)
    signer = None
    if public_key is not None:
        from dpaudit.evidence.signing import PublicKey  # noqa: PLC0415 (its extra)

        signer = PublicKey.read(public_key)
    registered = None if registration is None else read_registration(registration)
    with progress_note("checking the evidence"):
        found = lib.verify_together(
            texts,
            registration=registered,
            public_key=signer,
            files=files,
            required=required,
            accept_unchecked_counts=accept_unchecked_counts,
        )
    for path, each in zip(evidence, found, strict=True):
        name = f"{on_one_line(str(path))}: " if len(texts) > 1 and not json else ""
        typer.echo(f"{name}{each.to_json() if json else each}")
    # What fails is worse than what is missing.
    raise typer.Exit(min(filter(None, (each.exit_code for each in found)), default=0))


def _evidence(path: Path) -> str:
    """Return the text of a file, if it is evidence as far as one can see."""
    text = read_text(path)
    if lib.is_sealed(text):
        return text
    other = ""
    with suppress(InvalidInputError):
        other = _canonical.other_document(_canonical.parsed(text), "evidence")
    if "registration" in other or "a design" in other:
        other += ". Beside evidence, give it with --registration"
    raise InvalidInputError(
        f"{path}: {other}"
        if other
        else f"{path} is not evidence; what `dpaudit audit --evidence` or `dpaudit "
        "evidence` wrote is"
    )


def _required(names: str | None) -> tuple[str, ...]:
    found = [] if names is None else [each.strip() for each in names.split(",")]
    for each in found:
        if each not in lib.REQUIREMENTS:
            raise InvalidInputError(
                f"--require takes any of {', '.join(lib.REQUIREMENTS)}, with commas "
                f"between, got {each!r}"
            )
    return tuple(dict.fromkeys(found))
