"""The command ``dpaudit-lab``: one file per study."""

import typer

from dpaudit.cli._shared import EXIT_CODES, Program, add_command
from dpaudit_lab.cli.benchmark import benchmark
from dpaudit_lab.cli.calibrate import calibrate
from dpaudit_lab.cli.reproduce import reproduce
from dpaudit_lab.cli.sweep import sweep

__all__ = ["app"]

app = typer.Typer(
    cls=Program,
    help="Study auditing itself: figures, calibration, comparisons.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

for _command in (reproduce, calibrate, benchmark):
    add_command(app, "dpaudit-lab", _command, panel="Studies")
app.add_typer(sweep, name="sweep", rich_help_panel="Stores of trials")
