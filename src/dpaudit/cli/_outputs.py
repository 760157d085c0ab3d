"""What a command writes: named with its options, checked before its work, then written.

An option whose file is written carries an ``Output`` in its annotation; all other paths
are inputs. Before a command begins, ``check_files`` sees of all its paths together that
outputs are named as what they will hold, that none of them is an input, a key or
another output, and that they can be written in the end. What an audit leaves beside
what it prints is its result, a report and evidence.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Annotated, NoReturn, TypeAlias, final, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo

from dpaudit import _canonical, _files
from dpaudit.cli import _library as lib
from dpaudit.errors import InvalidInputError

__all__ = [
    "File",
    "NotExercisedOption",
    "Output",
    "Outputs",
    "PicturesOption",
    "ReportOption",
    "SaveOption",
    "VerboseOption",
    "check_apart",
    "check_files",
    "check_writable",
    "end_audit",
    "verdict_json",
]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Marks the option of a file that a command writes.

    Attributes:
        suffixes: How its name may end; any ending if there are none.
        folder: Whether it is a folder of files.
    """

    suffixes: tuple[str, ...] = ()
    folder: bool = False


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file that was named on the command line.

    Attributes:
        path: The file.
        option: The option or argument that named it.
        output: What it is written as; None for an input.
    """

    path: Path
    option: str
    output: Output | None = None


def check_files(command: Callable[..., None], given: Mapping[str, object]) -> None:
    """Refuse outputs of a command that it should not or could not write.

    Args:
        command: With its annotations.
        given: The values of its parameters, by name.
    """
    files = list(_files_of(command, given))
    outputs = [each for each in files if each.output is not None]
    for each in outputs:
        _check_suffix(each)
    check_apart(outputs, [each for each in files if each.output is None])
    for each in outputs:
        assert each.output is not None
        if each.output.folder:
            _check_folder(each)
        else:
            check_writable(each.path, each.option)


def check_apart(outputs: Iterable[File], inputs: Iterable[File]) -> None:
    """Refuse outputs that are inputs, or one another."""
    outputs, inputs = list(outputs), list(inputs)
    for output in outputs:
        for read in inputs:
            if _same(output.path, read.path) or _inside(output.path, read.path):
                raise InvalidInputError(
                    f"{output.path} would be overwritten, and {read.option} reads it; "
                    f"name another file with {output.option}"
                )
    for one, other in combinations(outputs, 2):
        if _same(one.path, other.path):
            raise InvalidInputError(
                f"{one.option} and {other.option} must be different files, got "
                f"{other.path} for both"
            )


def check_writable(path: Path, option: str) -> None:
    """Refuse a file that could not be written in the end."""
    if not str(path).isprintable():
        raise InvalidInputError(
            f"{path} cannot be printed; name another place with {option}"
        )
    if not path.parent.exists():
        raise InvalidInputError(
            f"{path} cannot be written: there is no folder {path.parent}; make it, or "
            f"name another place with {option}"
        )
    try:
        _files.check_replaceable(path)
    except InvalidInputError as error:
        raise InvalidInputError(f"{error} with {option}") from error
    except OSError as error:
        raise InvalidInputError(
            f"{path} cannot be written ({error.strerror}); name another place with "
            f"{option}"
        ) from error


def _check_folder(file: File) -> None:
    """Refuse a folder that could not be written to in the end."""
    path = file.path
    if path.is_dir():
        writable = os.access(path, os.W_OK)
    else:
        writable = not path.exists() and path.parent.is_dir()
    if not writable or not str(path).isprintable():
        raise InvalidInputError(
            f"{path} cannot be written: it must be a folder, or a new one in a folder "
            f"that exists; name another with {file.option}"
        )


def _files_of(
    command: Callable[..., None], given: Mapping[str, object]
) -> Iterator[File]:
    for name, hint in get_type_hints(command, include_extras=True).items():
        marks = getattr(hint, "__metadata__", ())
        output = next((each for each in marks if isinstance(each, Output)), None)
        value = given.get(name)
        for path in value if isinstance(value, list) else [value]:
            stdin = output is None and str(path) == "-"
            if isinstance(path, Path) and not stdin:
                yield File(path=path, option=_option(name, marks), output=output)


def _option(name: str, marks: Iterable[object]) -> str:
    """Return what a parameter is called on the command line."""
    for mark in marks:
        if isinstance(mark, ArgumentInfo):
            return name.upper()
        # In an annotation the first name stands where a default would.
        if isinstance(mark, OptionInfo) and isinstance(mark.default, str):
            return mark.default
    return "--" + name.replace("_", "-")


def _check_suffix(file: File) -> None:
    assert file.output is not None
    suffixes = file.output.suffixes
    if suffixes and file.path.suffix.lower() not in suffixes:
        raise InvalidInputError(
            f"the name must end in {' or '.join(suffixes)}, got {file.path}; name "
            f"another file with {file.option}"
        )


def _same(one: Path, other: Path) -> bool:
    """Return whether two names are of one file, be it there or not."""
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    return one.exists() and other.exists() and one.samefile(other)


def _inside(path: Path, folder: Path) -> bool:
    """Return whether a file is one of the tables that a folder is read for."""
    if not (path.exists() and folder.is_dir()):
        return False
    tables = (each for each in folder.rglob("*") if each.suffix.lower() == ".parquet")
    return any(_same(path, each) for each in tables)


_FORMAT = "dpaudit.audit.1"

SaveOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--save", help="Write the result to this .json file."),
    Output(suffixes=(".json",)),
]
ReportOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--report", help="Write a report to this .html file."),
    Output(suffixes=(".html", ".htm")),
]
PicturesOption: TypeAlias = Annotated[
    Path | None,
    typer.Option("--pictures", help="Folder for each figure as .svg and .pdf."),
    Output(folder=True),
]
VerboseOption: TypeAlias = Annotated[
    bool,
    typer.Option("--verbose", help="Print everything that was measured."),
]
NotExercisedOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--not-exercised",
        help="A part of the program that was not run through.",
        metavar="<text>",
    ),
]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Files to be written; None for none.

    Attributes:
        save: The result.
        report: A page about it.
        evidence: What others can check.
        pictures: A folder of figures.
    """

    save: Path | None = None
    report: Path | None = None
    evidence: Path | None = None
    pictures: Path | None = None

    def check(self) -> None:
        """Refuse, before anything is computed, what could not be written in the end."""
        if self.report is not None:
            lib.check_extra()

    def write(
        self,
        result: "lib.Result",
        *,
        key: "lib.Key | None" = None,
        scores: "lib.ScoreTable | None" = None,
        columns: "lib.ColumnNames | None" = None,
        coins_were_independent: bool = False,
    ) -> list[str]:
        """Write what was asked for; return a line about each file."""
        written = []
        if self.save is not None:
            _files.write(self.save, result.to_json() + "\n")
            written.append(f"Result: {self.save}")
        if self.report is not None:
            lib.report(result, self.report)
            written.append(f"Report: {self.report}")
        if self.pictures is not None:
            drawn = lib.write_figures(result, self.pictures)
            written.append(f"Figures: {len(drawn)} files in {self.pictures}")
        if self.evidence is not None:
            files = None
            if scores is not None and columns is not None:
                files = lib.score_files(
                    scores.files,
                    coins_were_independent=coins_were_independent,
                    columns=columns,
                )
            sealed = lib.seal(lib.evidence_of(result, key=key, files=files))
            _files.write(self.evidence, sealed + "\n")
            written.append(f"Evidence: {self.evidence}")
        return written


def end_audit(
    result: "lib.Result",
    notes: list[str],
    written: list[str],
    *,
    json: bool,
    verbose: bool = False,
) -> NoReturn:
    """Print the result of an audit, and exit with its verdict's code."""
    text = result.details() if verbose else str(result)
    lines = [text, *(f"Note: {note}." for note in notes), *written]
    typer.echo(_as_json(result, notes) if json else "\n".join(lines))
    raise typer.Exit(result.verdict.exit_code)


def _as_json(result: "lib.Result", notes: list[str]) -> str:
    right, made = result.reading.correct_and_guesses()
    return _canonical.text(
        {
            "format": _FORMAT,
            **verdict_json(result, notes, unit=result.design.setting.unit),
            "ceiling": result.ceiling,
            "canaries": result.design.canaries,
            "guesses": made,
            "correct": right,
            "commitment": result.commitment and result.commitment.sha256,
            "threat_model": str(result.design.threat_model),
            "not_exercised": list(lib.not_exercised(result)),
        }
    )


def verdict_json(
    found: "lib.Result | lib.CombinedResult",
    notes: list[str],
    *,
    unit: str | None = None,
) -> "dict[str, _canonical.Json]":
    """Return what the JSON of every verdict holds.

    Args:
        found: What was judged.
        notes: What to know besides.
        unit: Whose privacy is claimed, if not a record's.
    """
    return {
        "verdict": str(found.verdict),
        "reason": found.reason,
        "sanity_checks": lib.described(found.sanity_checks, unit),
        "epsilon_lower": found.bound.epsilon_lower,
        "refuted": found.verdict is lib.Verdict.CLAIM_REFUTED,
        "claim_test": lib.encode(found.claim_test),
        "bound": lib.encode(found.bound),
        "notes": list(notes),
        "text": str(found),
    }
