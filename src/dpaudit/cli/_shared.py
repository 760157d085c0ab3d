"""What all commands share: options, how they end, files."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, NoReturn, ParamSpec, TypeAlias

import typer
from typer.core import TyperCommand, TyperGroup

from dpaudit.cli import _library as lib
from dpaudit.cli._outputs import Output, check_files
from dpaudit.errors import (
    DpAuditError,
    InvalidInputError,
    InvalidRunError,
    Remedy,
    printable,
)

__all__ = [
    "EXIT_CODES",
    "AlphaOption",
    "DeltaOption",
    "IndependentOption",
    "JsonOption",
    "Observer",
    "ObserverOption",
    "PictureOption",
    "Program",
    "add_command",
    "json_number",
    "leave",
    "naming_file",
    "read_text",
    "reflowed",
    "renamed",
    "reported",
]

P = ParamSpec("P")

_STOPPED = 130  # the exit code of shells for an interrupt
_PIPE_CLOSED = 141  # and of output that nobody reads any more

EXIT_CODES = (
    "Exit codes: 0 on success or no violation detected; 1 if a claim is refuted, "
    "a check fails or something is missing; 2 for a usage error or "
    "unreadable input; 3 if an audit is inconclusive; 4 for an invalid run; 5 if a "
    "fault was found; 6 if evidence lacks what `verify` requires; 130 if interrupted."
)

DeltaOption: TypeAlias = Annotated[
    float, typer.Option("--delta", help="Delta of claim and bound.")
]
AlphaOption: TypeAlias = Annotated[
    float,
    typer.Option("--alpha", help="Significance level (maximum false-positive rate)."),
]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
IndependentOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--coins-were-independent",
        help="State that the coin flips were independent, if exactly half are ones.",
    ),
]
PictureOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--picture", help="Also write a figure to this .svg file."),
    Output(suffixes=(".svg",)),
]


class Observer(StrEnum):
    """What whoever guesses has seen; the names of ``ThreatModel``."""

    ALL_ITERATES = "all-iterates"
    KNOWN_RECORDS = "known-records"
    FINAL_MODEL = "final-model"
    OUTPUT = "output"


ObserverOption: TypeAlias = Annotated[
    Observer | None,
    typer.Option(
        "--observer",
        help="Who sees what the scores are made from: all-iterates, known-records, "
        "final-model or, if not given, output.",
        metavar="<who>",
    ),
]

# What the library's advice is called on the command line.
_REMEDIES = {
    Remedy.STATE_HOW: "if half of the canaries was drawn uniformly at random, `dpaudit "
    "audit --random-half`; if every canary had a coin of its own, give "
    "--coins-were-independent",
    Remedy.DERIVE_COINS: "be derived from a --key",
}

# What options were called once, or are called elsewhere.
_RENAMED = {
    "claim-epsilon": "epsilon",
    "dimension": "coordinates",
    "sample-rate": "rate",
}


def renamed(token: str) -> str:
    """Return today's name of an option."""
    return _RENAMED.get(token, token)


def reflowed(command: Callable[..., None]) -> str:
    """Return a command's docstring with one line for each paragraph."""
    paragraphs = (command.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(each.split()) for each in paragraphs)


def reported(name: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Make a command end with one line where it cannot go on, and no traceback.

    Its files are checked before it begins.

    What the user can fix ends with exit code 2 and a message, an invalid run with 4,
    an interrupt with 130. A closed pipe, as in ``dpaudit ... | head -1``, is no error.
    """

    def decorate(command: Callable[P, None]) -> Callable[P, None]:
        @wraps(command)
        def run(*args: P.args, **options: P.kwargs) -> None:
            try:
                given = signature(command).bind(*args, **options).arguments
                check_files(command, given)
                command(*args, **options)
            except KeyboardInterrupt:
                leave(name, "stopped", code=_STOPPED)
            except BrokenPipeError:
                _close_quietly()
                raise typer.Exit(_PIPE_CLOSED) from None
            except InvalidRunError as error:
                message = error.worded(_REMEDIES)
                leave(
                    name,
                    f"{lib.Verdict.INVALID_RUN}: {message}",
                    code=lib.Verdict.INVALID_RUN.exit_code,
                )
            except DpAuditError as error:
                leave(name, f"{error}")
            except OSError as error:
                leave(name, _spoken(error))
            except MemoryError:
                leave(name, "there is not enough memory for this")

        return run

    return decorate


class _Unvalued:
    """A command whose help shows no kind of value behind options that take none."""

    def get_params(self, ctx: typer.Context) -> list[Any]:
        """Return the parameters, with nothing behind a flag."""
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for each in found:
            if getattr(each, "is_flag", False):
                each.metavar = ""
        return found


class Program(_Unvalued, TyperGroup):  # type: ignore[misc]
    """A program of several commands."""


class _Command(_Unvalued, TyperCommand):  # type: ignore[misc]
    """One of its commands."""


def add_command(
    app: typer.Typer, program: str, command: Callable[..., None], *, panel: str
) -> None:
    """Make a function a command of a program."""
    name = command.__name__
    app.command(
        name,
        cls=_Command,
        rich_help_panel=panel,
        help=reflowed(command),
        epilog=EXIT_CODES,
        context_settings={"token_normalize_func": renamed},
    )(reported(f"{program} {name}")(command))


def leave(name: str, message: str, *, code: int = 2) -> NoReturn:
    """End a command with a message."""
    typer.echo(f"{name}: {printable(message)}", err=True)
    raise typer.Exit(code)


def _spoken(error: OSError) -> str:
    if error.filename is None or error.strerror is None:
        return f"{error}"
    return f"{error.filename}: {error.strerror}"


def _close_quietly() -> None:
    """Let what is left of the output go nowhere, so that nothing complains at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def read_text(path: Path) -> str:
    """Return the text of a file, or of standard input for "-"."""
    try:
        if str(path) == "-":
            return sys.stdin.read()
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"cannot read {path}: it is not UTF-8 text (byte {error.start})"
        ) from error
    except OSError as error:
        raise InvalidInputError(f"cannot read {path}: {error.strerror}") from error


@contextmanager
def naming_file(path: Path) -> Iterator[None]:
    """Let errors about what a file holds begin with its name."""
    try:
        yield
    except DpAuditError as error:
        raise InvalidInputError(f"{path}: {error}") from error


def json_number(value: float | None) -> float | str | None:
    """Return a number as JSON can hold it; infinity is the text "inf"."""
    return value if value is None or abs(value) < float("inf") else f"{value}"
