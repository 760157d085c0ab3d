"""The command ``dpaudit``: one file per command."""

import typer

from dpaudit.cli.benchmark import benchmark
from dpaudit.cli.bound import bound
from dpaudit.cli.calibrate import calibrate
from dpaudit.cli.gaps import gaps
from dpaudit.cli.plan import plan
from dpaudit.cli.reproduce import reproduce
from dpaudit.cli.sweep import sweep

__all__ = ["app"]

app = typer.Typer(
    help="Tell how private a program really is, from one run of it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(benchmark)
app.command()(bound)
app.command()(calibrate)
app.command()(gaps)
app.command()(plan)
app.command()(reproduce)
app.add_typer(sweep, name="sweep")


@app.callback()
def _root() -> None:
    """Tell how private a program really is, from one run of it."""
