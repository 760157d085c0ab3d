"""The command ``dpaudit``: one file per command."""

from collections.abc import Callable
from typing import Annotated

import typer

from dpaudit.cli._shared import EXIT_CODES, Program, add_command
from dpaudit.cli.audit import audit
from dpaudit.cli.bound import bound
from dpaudit.cli.combine import combine
from dpaudit.cli.evidence import evidence
from dpaudit.cli.explain import explain
from dpaudit.cli.gaps import gaps
from dpaudit.cli.merge import merge
from dpaudit.cli.nightly import nightly
from dpaudit.cli.plan import plan
from dpaudit.cli.register import register
from dpaudit.cli.report import report
from dpaudit.cli.tally import tally
from dpaudit.cli.verify import verify
from dpaudit.cli.which import which

__all__ = ["app"]

app = typer.Typer(
    cls=Program,
    help="Tell how private a program really is, from one run of it.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

_COMMANDS: dict[str, list[Callable[..., None]]] = {
    "Before a run": [which, plan, register],
    "After a run": [audit, bound, explain, report],
    "Tests of functions": [nightly],
    "Large tables": [tally, merge],
    "Check and combine": [evidence, verify, combine],
    "Study a mechanism": [gaps],
}

for _panel, _commands in _COMMANDS.items():
    for _command in _commands:
        add_command(app, "dpaudit", _command, panel=_panel)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415

        typer.echo(f"dpaudit {version('dpaudit')}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    """Tell how private a program really is, from one run of it."""
