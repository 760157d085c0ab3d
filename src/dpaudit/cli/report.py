"""``dpaudit report``: a result as a page that opens anywhere."""

from pathlib import Path
from typing import Annotated

import typer

from dpaudit._progress import progress_note
from dpaudit.cli import _library as lib
from dpaudit.cli._outputs import Output, PicturesOption
from dpaudit.cli._results import ResultArgument, read_checked


def report(
    result: ResultArgument,
    output: Annotated[
        Path,
        typer.Option(help="The .html file to write; it is overwritten."),
        Output(suffixes=(".html", ".htm")),
    ] = Path("audit.html"),
    title: Annotated[
        str, typer.Option(help="What was audited, for the top of the page.")
    ] = "",
    pictures: PicturesOption = None,
    auditor: Annotated[str, typer.Option(help="Who ran the audit.")] = "",
) -> None:
    """Write a report of a result: one self-contained page (needs the extra report).

    The result must follow from its tally, and evidence must hold; otherwise it is
    refused. What cannot be checked is stated at the top. The exit code is 0 whatever
    the verdict.
    """
    from dataclasses import replace  # noqa: PLC0415

    with progress_note("writing the report"):
        read, unchecked = read_checked(result)
        explanation = replace(lib.explain(read), notice=unchecked)
        lib.report(read, output, explanation=explanation, title=title, auditor=auditor)
        drawn = pictures and lib.write_figures(read, pictures, explanation=explanation)
    typer.echo(f"Report: {output}")
    if drawn:
        typer.echo(f"Figures: {len(drawn)} files in {pictures}")
