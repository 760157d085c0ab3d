"""``dpaudit evidence``: what others can check, made, redacted or signed."""

from pathlib import Path
from typing import Annotated

import typer

from dpaudit import _files
from dpaudit._progress import progress_note
from dpaudit.cli import _library as lib
from dpaudit.cli._inputs import (
    IdOption,
    IncludedOption,
    ScoreOption,
    read_key,
)
from dpaudit.cli._outputs import Output
from dpaudit.cli._results import ResultArgument, check_folder, folder_of, read_evidence
from dpaudit.cli._shared import IndependentOption, naming_file, read_text
from dpaudit.errors import InvalidInputError


def evidence(
    result: ResultArgument,
    key: Annotated[
        Path | None,
        typer.Option(help="The key of the coins, revealed by this."),
    ] = None,
    scores: Annotated[
        list[Path] | None,
        typer.Option(
            help="File of scores that was audited; it stays where it is.",
            metavar="<path>",
        ),
    ] = None,
    id_column: IdOption = None,
    included_column: IncludedOption = None,
    score_column: ScoreOption = None,
    coins_were_independent: IndependentOption = False,
    redact: Annotated[
        bool,
        typer.Option("--redact", help="Leave out which records were included."),
    ] = False,
    sign: Annotated[
        Path | None,
        typer.Option(help="Sign with this ed25519 key, a .pem file (extra sign)."),
    ] = None,
    files: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the files of scores that evidence names; its own if not "
            "given."
        ),
    ] = None,
    output: Annotated[
        Path,
        typer.Option(help="The .json file to write; it is overwritten."),
        Output(suffixes=(".json",)),
    ] = Path("evidence.json"),
) -> None:
    """Write the evidence for a result; redact or sign it, or evidence that exists.

    The evidence holds the key of the coins, unless it is redacted. It is verified
    first; what does not hold is neither written nor signed.
    """
    text = read_text(result)
    signer = None
    if sign is not None:
        from dpaudit.evidence.signing import SigningKey  # noqa: PLC0415 (its extra)

        signer = SigningKey.read(sign)
    check_folder(files)
    with progress_note("gathering the evidence"):
        with naming_file(result):
            columns = lib.ColumnNames(
                id=id_column, included=included_column, score=score_column
            )
            found = _evidence(text, key, scores or [], coins_were_independent, columns)
            files = folder_of(found, result) if files is None else files
            unchecked = lib.check_before(found, files=files)
        if redact:
            found = found.redact()
        sealed = lib.seal(found, signer, files=files)
    _files.write(output, sealed + "\n")
    typer.echo(f"Evidence: {output}{_description(found, signed=signer is not None)}")
    if signer is not None or redact:
        for each in unchecked:
            typer.echo(
                f"Not checked before: {each.name}: {each.sentence}{_advice(each)}"
            )


def _evidence(
    text: str,
    key: Path | None,
    scores: list[Path],
    independent: bool,
    columns: "lib.ColumnNames",
) -> "lib.Evidence":
    if lib.is_sealed(text):
        if key is not None or scores:
            raise InvalidInputError(
                "this is evidence already; --key and --scores are for results"
            )
        return read_evidence(text)
    read = lib.Result.from_json(text)
    registered = lib.Registration(design=read.design, commitment=read.commitment)
    files = None
    if scores:
        files = lib.score_files(
            scores, coins_were_independent=independent, columns=columns
        )
    return lib.evidence_of(read, key=_key(key, registered), files=files)


def _key(path: Path | None, registered: "lib.Registration") -> "lib.Key | None":
    if path is not None:
        return read_key(path, registered)
    if registered.commitment is not None:
        raise InvalidInputError(
            "its coins come from a key: reveal it with --key, and --redact to leave it "
            "out again"
        )
    return None


def _advice(unchecked: "lib.VerificationCheck") -> str:
    return "; --files names their folder" if "file(s)" in unchecked.sentence else ""


def _description(found: "lib.Evidence", *, signed: bool) -> str:
    return (", signed" if signed else ", not signed") + (
        ", redacted" if found.redacted else ""
    )
