"""Every module of the package is reached from something that a user can name."""

import ast
import re
from pathlib import Path

import dpaudit

PACKAGE = Path(dpaudit.__file__).parent
ROOT = Path(__file__).parents[2]
_IMPORT = re.compile(r"\bdpaudit(?:\.\w+)+")


def module_files():
    """Every module by its name."""
    found = {}
    for path in [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyi")]:
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.setdefault(name, []).append(path)
    return found


MODULES = module_files()


def imports(path):
    """What a file imports of the package, at its top or in a function."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)
        elif isinstance(node, ast.Constant) and str(node.value) in MODULES:
            yield str(node.value)  # a lazy import, by its name


def documented():
    """What pages and examples import, and files that the paper's statements rest on."""
    for path in (ROOT / "examples").glob("*.py"):
        yield from imports(path)
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for line in path.read_text("utf-8").splitlines():
            if re.match(r" *(>>> )?(from|import) dpaudit", line):
                yield from _IMPORT.findall(line)
    page = (ROOT / "docs" / "explanation" / "paper-map.md").read_text("utf-8")
    for file in re.findall(r"`([a-z_]+/[a-z_/]+)\.py`", page):
        yield "dpaudit." + file.replace("/", ".")


def reached(names):
    """Every module that names lead to, their packages among them."""
    seen, left = set(), list(names)
    while left:
        parts = left.pop().split(".")
        for end in range(1, len(parts) + 1):
            name = ".".join(parts[:end])
            if name in MODULES and name not in seen:
                seen.add(name)
                left += [each for file in MODULES[name] for each in imports(file)]
    return seen


def test_every_module_is_reached_from_the_face_a_command_the_plugin_or_a_page():
    plugin = imports(PACKAGE.parent / "_dpaudit_pytest.py")
    names = {"dpaudit", "dpaudit.cli", *plugin, *documented()}
    assert MODULES.keys() <= reached(names)
