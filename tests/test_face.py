"""The public face: small, complete, quick to import, clear about extras."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import dpaudit
from dpaudit import errors


def python(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )


def test_the_three_lists_of_the_face_agree():
    """What type checkers see, what is fetched, and what is promised."""
    tree = ast.parse(Path(dpaudit.__file__).read_text("utf-8"))
    seen = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module.startswith("dpaudit")
        for alias in node.names
    }
    assert set(seen) == set(dpaudit.__all__)
    assert dpaudit.__all__ == sorted(dpaudit.__all__)
    for name, module in seen.items():
        home = importlib.import_module(module)
        assert getattr(dpaudit, name) is getattr(home, name)
        assert getattr(dpaudit, name).__module__ == module or name == "test_claim"


def test_a_name_that_is_not_there_is_named():
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        dpaudit.Nothing  # noqa: B018 (fetched for its error)
    assert set(dpaudit.__all__) <= set(dir(dpaudit))


def test_importing_the_face_loads_neither_numpy_nor_scipy():
    done = python("import dpaudit, sys; print({'numpy', 'scipy'} & set(sys.modules))")
    assert done.stdout.strip() == "set()", done.stderr


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_refines_the_base(name):
    assert issubclass(getattr(errors, name), errors.DpAuditError)


def test_import_loads_nothing_heavy():
    heavy = ["scipy.stats", "torch", "opacus", "loky", "typer", "rich", "matplotlib"]
    done = python(
        f"from dpaudit import *; import sys; "
        f"print([m for m in {heavy} if m in sys.modules])"
    )
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize(
    ("package", "module", "extra"),
    [
        ("opacus", "dpaudit.training.opacus", "opacus"),
        ("loky", "dpaudit.engines.local", "sweep"),
        ("ray", "dpaudit.engines.cluster", "ray"),
        ("dp_accounting", "dpaudit.accounting", "accounting"),
        ("mlflow", "dpaudit.reporting.loggers.mlflow", "mlflow"),
        ("pyarrow", "dpaudit.tables.parquet", "tables"),
    ],
)
def test_a_missing_extra_says_what_to_install(package, module, extra):
    done = python(f"import sys; sys.modules[{package!r}] = None; import {module}")
    assert done.returncode == 1
    assert "MissingExtraError: " in done.stderr
    assert f"pip install 'dpaudit[{extra}]'" in done.stderr


def test_a_report_without_its_extra_says_what_to_install():
    done = python(
        "import sys; sys.modules['jinja2'] = None\n"
        "from dpaudit import Counts, Design, OneRun, PureDP, report\n"
        "from dpaudit.game.result import judge\n"
        "rules, claim = OneRun(guesses=9), PureDP(epsilon=1.0)\n"
        "design = Design(canaries=9, rules=rules, claim=claim)\n"
        "counts = Counts(canaries=9, guesses=9, correct=9)\n"
        "report(judge(counts, design=design, commitment=None), 'audit.html')"
    )
    assert "MissingExtraError: " in done.stderr
    assert "pip install 'dpaudit[report]'" in done.stderr
