"""The tables of docs/explanation/paper-map.md, and what the tests of a row run.

The tests of a row are called under a profile that sees which functions are entered, and
that ends them once all that the row names have been. Other tests see that they pass.
They are called again with a fault in what the row names.
"""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import module_from_spec, spec_from_file_location
from inspect import signature
from itertools import islice, product
from math import inf
from pathlib import Path
from pkgutil import resolve_name
from types import CodeType, FrameType, ModuleType
from typing import Any, TypeAlias

import pytest

ROOT = Path(__file__).parents[2]
MAP = ROOT / "docs" / "explanation" / "paper-map.md"

_SOON = 20_000  # calls of functions, after which a test is broken off at first


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the map.

    Attributes:
        table: The heading of its table.
        statement: Its first cell.
        says: Its second.
        code: What it names, as ``package.module:Class.method``.
        tests: Its tests, as ``folder/file.py::test``.
        remark: Its last cell.
    """

    table: str
    statement: str
    says: str
    code: tuple[str, ...]
    tests: tuple[str, ...]
    remark: str

    @property
    def label(self) -> str | None:
        """Its label in the paper's source, if it has one."""
        found = re.search(r"`([\w-]+:[\w-]+)`", self.statement)
        return found and found[1]

    @property
    def name(self) -> str:
        """What the map calls it: what stands after its number."""
        return re.search(r": (.*?)(?:<br>| \(no label\)|$)", self.statement)[1]


@cache
def links() -> dict[str, str]:
    """Return where the page's links to files lead to, from the root."""
    text = MAP.read_text(encoding="utf-8")
    return dict(re.findall(r"^\[`(.+)`\]: \.\./\.\./(.+)$", text, re.M))


@cache
def rows() -> tuple[Row, ...]:
    """Return the rows of both tables."""
    found, table = [], ""
    for line in MAP.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if line.startswith("## "):
            table = line[3:]
        elif len(cells) == 5 and "[`" in cells[3]:
            code = [f"{_module(file)}:{name}" for file, name in _linked(cells[2])]
            tests = [f"{file}::{name}" for file, name in _linked(cells[3])]
            row = Row(
                table=table,
                statement=cells[0],
                says=cells[1],
                code=tuple(code),
                tests=tuple(tests),
                remark=cells[4],
            )
            found.append(row)
    return tuple(found)


def _linked(cell: str) -> Iterator[tuple[str, str]]:
    """Yield what a cell names, each with the file that was named before it."""
    for bracket, name in re.findall(r"(\[?)`([^`]+)`", cell):
        if bracket:
            file = links()[name]
        else:
            yield file, name


def _module(file: str) -> str:
    return file.partition("src/")[2].removesuffix(".py").replace("/", ".")


_WithMarks = type(pytest.param())


@cache
def module(file: str) -> ModuleType:
    """Return a file of tests, for itself: what pytest collected stays as it is."""
    spec = spec_from_file_location(f"row_of_{Path(file).stem}", ROOT / file)
    found = module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def calls(row: Row, request: pytest.FixtureRequest) -> Iterator[Callable[[], None]]:
    """Yield every call that pytest makes of a row's tests, ready to be made."""
    for test in row.tests:
        file, name = test.split("::")
        function = getattr(module(file), name)
        choices = []
        for mark in getattr(function, "pytestmark", ()):
            if mark.name == "parametrize":
                names, values = mark.args
                names = [names] if isinstance(names, str) else names
                values = [_values(each, len(names)) for each in values]
                choices.append([dict(zip(names, v, strict=True)) for v in values])
        for chosen in product(*choices):
            given: dict[str, Any] = {k: v for part in chosen for k, v in part.items()}
            fixtures = signature(function).parameters.keys() - given
            given |= {name: request.getfixturevalue(name) for name in fixtures}
            yield partial(function, **given)


def _values(given: Any, count: int) -> Sequence[Any]:
    """Return what is given for each of several names, with a mark or without."""
    if isinstance(given, _WithMarks):
        return given.values
    return given if count > 1 else [given]


def without_label(row: Row) -> set[str]:
    """Return what of a row's code does not have its label in a docstring.

    It may be the docstring of its class or its module.
    """
    return {named for named in row.code if f'"{row.label}"' not in _docstrings(named)}


def _docstrings(named: str) -> str:
    module_name, name = named.split(":")
    around = [module_name, f"{module_name}:{name.split('.')[0]}", named]
    return "\n".join(resolve_name(each).__doc__ or "" for each in around)


def never_run(row: Row, request: pytest.FixtureRequest) -> set[str]:
    """Return what of a row's code its tests do not enter."""
    left = set(row.code)
    for most in (_SOON, inf):
        for call in calls(row, request):
            left = left and _not_run(left, call, most)
    return left


class _Enough(BaseException):
    """A call has run what it was made for."""


def _not_run(wanted: set[str], call: Callable[[], None], most: float) -> set[str]:
    """Return which of the wanted a call does not enter.

    It ends once it entered all, or called so many functions.
    """
    left, met, entered = set(wanted), {}, 0

    def look(frame: FrameType, event: str, _: object) -> None:
        nonlocal entered
        if event != "call":
            return
        entered += 1
        code = frame.f_code
        if id(code) not in met:
            met[id(code)] = code
            left.difference_update([each for each in left if _is_of(code, each)])
        if not left or entered > most:
            raise _Enough

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        call()
    except BaseException:  # of who ran into the end of it, too
        if left and entered <= most:
            raise
    finally:
        sys.setprofile(before)
    return left


def _is_of(code: CodeType, named: str) -> bool:
    """Whether it is code of a function, or of a class."""
    module_name, name = named.split(":")
    file = f"/{module_name.replace('.', '/')}.py"
    return f"{code.co_qualname}.".startswith(f"{name}.") and code.co_filename.endswith(
        file
    )


Fault: TypeAlias = Callable[[Any], Any]  # from what is right to what is not


def given(**changed: Callable[[Any], Any]) -> Fault:
    """A function that takes something else for what it is given by name."""

    def fault(real: Callable[..., Any]) -> Callable[..., Any]:
        def faulty(*arguments: Any, **named: Any) -> Any:
            wrong = {name: change(named[name]) for name, change in changed.items()}
            return real(*arguments, **named | wrong)

        return faulty

    return fault


def returned(change: Callable[[Any], Any]) -> Fault:
    """A function that returns something else."""
    return lambda real: lambda *given, **named: change(real(*given, **named))


def failing(
    row: Row, request: pytest.FixtureRequest, where: str, fault: Fault
) -> int | None:
    """Return which call of a row's tests is the first to fail with a fault, if any."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(where.replace(":", "."), fault(resolve_name(where)))
        _forget()
        found = (n for n, call in enumerate(calls(row, request)) if _fails(call))
        number = next(found, None)
    _forget()
    return number


def passes(row: Row, request: pytest.FixtureRequest, number: int) -> bool:
    """Whether that call does not fail."""
    return not _fails(next(islice(calls(row, request), number, None)))


def _forget() -> None:
    """Use nothing that was computed or imported before."""
    module.cache_clear()
    for name, each in list(sys.modules.items()):
        if name.startswith(("dpaudit.", "dpaudit_lab.")):
            for value in list(vars(each).values()):
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


def _fails(call: Callable[[], None]) -> bool:
    try:
        call()
    except AssertionError:
        return True
    return False
