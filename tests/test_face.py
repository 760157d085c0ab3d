"""The public face: small, complete, quick to import, clear about extras."""

import subprocess
import sys

import pytest

import dpaudit
from dpaudit import errors


def python(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )


def test_all_lists_exactly_what_is_imported():
    public = {n for n, v in vars(dpaudit).items() if callable(v)}
    assert set(dpaudit.__all__) == public
    assert dpaudit.__all__ == sorted(dpaudit.__all__)


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_refines_the_base(name):
    assert issubclass(getattr(errors, name), errors.DpAuditError)


def test_import_loads_nothing_heavy():
    heavy = ["scipy.stats", "torch", "opacus", "loky", "typer", "rich", "matplotlib"]
    done = python(
        f"import dpaudit, sys; print([m for m in {heavy} if m in sys.modules])"
    )
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize(
    ("package", "module", "extra"),
    [
        ("opacus", "dpaudit.training.opacus", "opacus"),
        ("loky", "dpaudit.engines.local", "sweep"),
        ("dp_accounting", "dpaudit.accounting", "accounting"),
        ("matplotlib", "dpaudit.reporting.plots", "report"),
    ],
)
def test_a_missing_extra_says_what_to_install(package, module, extra):
    done = python(f"import sys; sys.modules[{package!r}] = None; import {module}")
    assert done.returncode == 1
    assert "MissingExtraError: " in done.stderr
    assert f"pip install 'dpaudit[{extra}]'" in done.stderr
