"""The files that a command writes: said with its options, checked before its work.

An option whose file is written carries an ``Output`` in its annotation; all other paths
are inputs. Before a command begins, ``check_files`` sees of all its paths together that
outputs are named as what they will hold, that none of them is an input, a key or
another output, and that they can be written in the end.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, final, get_type_hints

from typer.models import ArgumentInfo, OptionInfo

from dpaudit import _files
from dpaudit.errors import InvalidInputError

__all__ = ["File", "Output", "check_apart", "check_files", "check_writable"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Marks the option of a file that a command writes.

    Attributes:
        suffixes: How its name may end; if there are none, as it likes.
    """

    suffixes: tuple[str, ...] = ()


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


def _option(name: str, marks: Iterable[Any]) -> str:
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
