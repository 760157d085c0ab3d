"""``dpaudit report``: a result as a page that opens anywhere."""

from pathlib import Path
from typing import Annotated

import typer

from dpaudit.cli._output_files import Output
from dpaudit.cli._results import ResultArgument, read_result
from dpaudit.cli._shared import patience


def report(
    result: ResultArgument,
    output: Annotated[
        Path,
        typer.Option(help="The .html file to write; it is overwritten."),
        Output(suffixes=(".html", ".htm")),
    ] = Path("audit.html"),
) -> None:
    """Write a report of a result: one self-contained page (needs the extra report).

    It shows what an audit found, and judges nothing. Exits with 0, whatever the
    verdict, or 2 if something is misused.
    """
    from dpaudit.reporting.report import report as written  # noqa: PLC0415 (its extra)

    read = read_result(result)
    with patience("writing the report"):
        written(read, output)
    typer.echo(f"Report: {output}")
