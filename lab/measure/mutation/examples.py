"""The examples in the docstrings of one folder of the package, as tests.

They are read from the source as it is; a module that is full of mutants would show
each example once for each of them.
"""

import ast
import doctest
import importlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest


def _found() -> Iterator[object]:
    for path in sorted(Path("src/dpaudit", os.environ["FOLDER"]).rglob("*.py")):
        module = ".".join(path.with_suffix("").parts[1:]).removesuffix(".__init__")
        tree = ast.parse(path.read_text())
        nodes = [("", tree)]
        for node in tree.body:
            nodes += [(node.name, node)] if hasattr(node, "name") else []
            inside = node.body if isinstance(node, ast.ClassDef) else []
            nodes += [
                (f"{node.name}.{one.name}", one)
                for one in inside
                if isinstance(one, ast.FunctionDef)
            ]
        for name, node in nodes:
            text = ast.get_docstring(node) or ""
            if ">>>" in text:
                yield pytest.param(module, name, text, id=f"{module}:{name}")


@pytest.mark.parametrize(("module", "name", "text"), list(_found()))
def test_example(module: str, name: str, text: str) -> None:
    """The example prints what it says."""
    names = vars(importlib.import_module(module)).copy()
    example = doctest.DocTestParser().get_doctest(text, names, name, None, 0)
    failed = doctest.DocTestRunner(verbose=False).run(example).failed
    assert not failed
