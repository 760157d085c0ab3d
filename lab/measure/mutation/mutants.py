"""The mutants of one module: where each stands, what it changes, whether it is wording.

mutmut writes a module in which every function stands many times over, once as it is
and once for each mutant, behind a switch. Here each mutant is compared with the
function it comes from, as syntax trees: the place of the difference says which lines a
test must execute to have a chance of noticing.

A mutant is *wording* if it only changes what a sentence says: anything inside a
``raise``, a string with a space in it that was altered or replaced by None, and the
name of an argument that a check of ``dpaudit._validate`` puts into its message.
"""

import ast
import difflib
import hashlib
import json
import textwrap
from dataclasses import asdict, dataclass
from pathlib import Path

from mutmut.mutation.file_mutation import MutatedFile, mutate_file_contents

_SEPARATOR = "ǁ"  # mutmut's, between a class and its method


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One change to one function."""

    name: str  # mutmut's name for it
    function: str  # qualified within its module
    before: str  # the lines that differ
    after: str
    lines: list[int]  # first and last of the statement
    body: list[int]  # first and last of the function
    wording: bool  # only a sentence changes
    key: str  # the same as long as the function is the same


def module_name(path: Path) -> str:
    """Return the name by which a module is imported."""
    return ".".join(path.with_suffix("").parts[1:])


def mutants(path: Path, work: Path) -> tuple[Path, list[Mutant]]:
    """Write the module with every mutant in it, once; return where, and the mutants."""
    source = path.read_text()
    digest = hashlib.sha256(source.encode()).hexdigest()[:12]
    code = work / f"{module_name(path)}-{digest}.py"
    listed = code.with_suffix(".json")
    if not listed.exists():
        mutated = mutate_file_contents(str(path), source)
        code.write_text(mutated.code)
        rows = [asdict(one) for one in _found(source, mutated)]
        listed.write_text(json.dumps(rows))
    return code, [Mutant(**row) for row in json.loads(listed.read_text())]


def _found(source: str, mutated: MutatedFile) -> list[Mutant]:
    """Return every mutant, compared with the function that it comes from."""
    places = functions(source)
    lines = mutated.code.splitlines()
    spans = mutated.line_span_by_function_name

    def text(name: str) -> str:
        span = spans[name]
        return textwrap.dedent("\n".join(lines[span.start - 1 : span.end]))

    found = []
    for name in mutated.mutant_names:
        mangled = name.partition("__mutmut_")[0]
        function = mangled[2:].replace(_SEPARATOR, ".")
        original = text(f"{mangled}__mutmut_orig")
        found.append(_mutant(name, function, original, text(name), places))
    return found


def _mutant(
    name: str,
    function: str,
    original: str,
    mutated: str,
    places: dict[str, tuple[int, int]],
) -> Mutant:
    mutated = mutated.replace(name, name.partition("__mutmut_")[0] + "__mutmut_orig")
    old, new = ast.parse(original).body[0], ast.parse(mutated).body[0]
    path = _difference(old, new) or [old]
    start, end = places[function]
    shift = start - old.lineno
    first, last = _extent(path)
    before, after = _changed(original, mutated)
    whole = hashlib.sha256(f"{function}\0{original}\0{mutated}".encode())
    return Mutant(
        name=name,
        function=function,
        before=before,
        after=after,
        lines=[first + shift, last + shift],
        body=[start, end],
        wording=_is_wording(path),
        key=whole.hexdigest()[:16],
    )


def functions(source: str) -> dict[str, tuple[int, int]]:
    """Return the lines of every function and method."""
    places = {}
    for node in ast.parse(source).body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
        for one in inside:
            if isinstance(one, ast.FunctionDef):
                places[prefix + one.name] = one.lineno, one.end_lineno or one.lineno
    return places


def _difference(old: ast.AST, new: ast.AST) -> list[ast.AST]:
    """Return the nodes of the old tree down to the one that differs; none if none."""
    if type(old) is not type(new):
        return [old]
    path: list[ast.AST] = []
    for field in old._fields:
        a, b = getattr(old, field, None), getattr(new, field, None)
        listed = isinstance(a, list) and isinstance(b, list)
        if listed and len(a) != len(b):
            return [old]
        for one, other in zip(a, b, strict=True) if listed else [(a, b)]:
            if not (isinstance(one, ast.AST) and isinstance(other, ast.AST)):
                if one != other:
                    return [old]
            elif below := _difference(one, other):
                if path:  # two places: the difference is here
                    return [old]
                path = [old, *below]
    return path


def _extent(path: list[ast.AST]) -> tuple[int, int]:
    """Return the lines of the innermost statement, without the block below it."""
    node = [one for one in path if isinstance(one, ast.stmt | ast.match_case)][-1]
    if isinstance(node, ast.match_case):
        return node.pattern.lineno, node.pattern.end_lineno or node.pattern.lineno
    end = node.end_lineno or node.lineno
    body = getattr(node, "body", None)
    if isinstance(body, list) and body:
        end = max(node.lineno, body[0].lineno - 1)
    return node.lineno, end


def _changed(original: str, mutated: str) -> tuple[str, str]:
    """Return the lines that differ, before and after."""
    lines = list(
        difflib.unified_diff(original.splitlines(), mutated.splitlines(), n=0)
    )[2:]
    before = [line[1:].strip() for line in lines if line.startswith("-")]
    after = [line[1:].strip() for line in lines if line.startswith("+")]
    return "\n".join(before), "\n".join(after)


def _is_wording(path: list[ast.AST]) -> bool:
    """Whether only a sentence changes."""
    last = path[-1]
    if any(isinstance(node, ast.Raise) for node in path):
        return True
    if isinstance(last, ast.JoinedStr) or any(
        isinstance(node, ast.JoinedStr) for node in path
    ):
        return True
    if isinstance(last, ast.Constant) and isinstance(last.value, str):
        checks = [
            node
            for node in path
            if isinstance(node, ast.Call)
            and ast.unparse(node.func).startswith("_validate.")
        ]
        return " " in last.value or any(
            call.args and call.args[0] is last for call in checks
        )
    return False
