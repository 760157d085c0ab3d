"""The public face: small, complete, quick to import, clear about extras."""

import importlib
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import dpaudit
from dpaudit import errors

ROOT = Path(__file__).parents[1]


def python(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )


PACKAGES = ("dpaudit", "dpaudit.bounds", "dpaudit.game")


@pytest.mark.parametrize("package", PACKAGES)
def test_what_a_package_lists_is_what_its_stub_shows_and_what_is_fetched(package):
    found = importlib.import_module(package)
    stub = Path(found.__file__).with_suffix(".pyi").read_text("utf-8")
    shown = re.findall(r"^from (\S+) import (\w+) as (\w+)$", stub, re.MULTILINE)
    assert len(shown) == stub.count("import ")
    assert stub.count("import ") == len(stub.splitlines()) - 2 * ("__version__" in stub)
    assert [name for _, name, _ in shown] == [alias for *_, alias in shown]
    assert found.__all__ == sorted(name for _, name, _ in shown)
    assert len(set(found.__all__)) == len(found.__all__)
    for home, name, _ in shown:
        value = getattr(found, name)
        if (value.__doc__ or "").startswith("Missing: "):
            with pytest.raises(errors.MissingExtraError):
                importlib.import_module(home)
        else:
            assert value is getattr(importlib.import_module(home), name)


def test_the_face_has_the_tasks_and_the_packages_what_they_are_made_of():
    tasks = {"plan_audit", "register", "audit_scores", "OpacusAudit", "audit_function"}
    assert tasks | {"combine_runs", "explain", "report", "verify"} <= set(dir(dpaudit))
    assert not {"Counts", "ExactBound", "Referee"} & set(dpaudit.__all__)
    assert dpaudit.__version__ == metadata.version("dpaudit")


def test_without_extras_the_face_can_be_listed_and_helped_with():
    done = python(
        "import sys; sys.modules['opacus'] = None\n"
        "import dpaudit, inspect, io, pydoc\n"
        "from dpaudit import *\n"
        "assert dict(inspect.getmembers(dpaudit))['OpacusAudit'].__doc__\n"
        "assert 'OpacusAudit' in pydoc.plain(pydoc.render_doc(dpaudit))\n"
        "OpacusAudit(1)"
    )
    assert "MissingExtraError: auditing Opacus needs" in done.stderr
    assert "pip install '.[opacus]'" in done.stderr


def test_packages_are_there_without_being_imported():
    done = python("import dpaudit; print(dpaudit.bounds.ExactBound, dpaudit.errors)")
    assert "ExactBound" in done.stdout, done.stderr
    assert "_fetch" not in dir(dpaudit)


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
        "import dpaudit, sys\n"
        "heavy = {'Opacus', 'Jax', 'Flower', 'Pfl', 'BlackBox'}\n"
        "heavy = {f'{name}Audit' for name in heavy} | {'audit_opacus'}\n"
        "for name in {*dpaudit.__all__} - heavy: getattr(dpaudit, name)\n"
        f"print([m for m in {heavy} if m in sys.modules])"
    )
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize(
    ("package", "module", "extra"),
    [
        ("opacus", "dpaudit.training.opacus", "opacus"),
        ("torch", "dpaudit.training.black_box", "opacus"),
        ("pfl", "dpaudit.training.pfl", "pfl"),
        ("loky", "dpaudit.engines.local", "sweep"),
        ("ray", "dpaudit.engines.cluster", "ray"),
        ("dp_accounting", "dpaudit.accounting", "accounting"),
        ("pyarrow", "dpaudit.tables.parquet", "tables"),
        ("flwr", "dpaudit.training.flower", "flower"),
        ("securesystemslib", "dpaudit.evidence.signing", "sign"),
    ],
)
def test_a_missing_extra_says_what_to_install(package, module, extra):
    home = module.rpartition(".")[0]  # which does not need it
    absent = f"import {home}, sys; sys.modules[{package!r}] = None"
    done = python(f"{absent}; print('so far'); import {module}")
    assert (done.stdout, done.returncode) == ("so far\n", 1)
    assert "MissingExtraError: " in done.stderr
    assert f"pip install '.[{extra}]'" in done.stderr


@pytest.mark.parametrize(
    ("package", "extra", "first", "below"),
    [("opacus", "opacus", "1.6", "1.7"), ("jax-privacy", "jax", "2.0", "2.1")],
)
def test_versions_that_were_not_tested_are_refused_as_in_the_requirements(
    monkeypatch, package, extra, first, below
):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = f"{package}>={first},<{below}"
    assert needed in project["optional-dependencies"][extra]
    module = f"src/dpaudit/training/{package.replace('-', '_')}/__init__.py"
    if (ROOT / "src").exists():  # an sdist's tests run where it is out of reach
        limits = f'"{package}", "{extra}", first="{first}", below="{below}"'
        assert limits in (ROOT / module).read_text("utf-8")

    def check(installed):
        monkeypatch.setattr(metadata, "version", lambda _: installed)
        errors.MissingExtraError.check(package, extra, first=first, below=below)

    check(first)
    check(f"{first}.7")
    for installed in (below, f"{below}.1", "0.9", "11.2", "1.5.4", "3.0.dev1"):
        with pytest.raises(errors.MissingExtraError) as told:
            check(installed)
        assert f"got {package} {installed}, " in str(told.value)
        assert f"pip install '.[{extra}]'" in str(told.value)


def test_a_report_without_its_extra_says_what_to_install():
    done = python(
        "import sys; sys.modules['jinja2'] = None\n"
        "from dpaudit import Design, OneRun, PureDP, report\n"
        "from dpaudit.bounds import Counts\n"
        "from dpaudit.game.result import judge\n"
        "rules, claim = OneRun(guesses=9), PureDP(epsilon=1.0)\n"
        "design = Design(canaries=9, rules=rules, claim=claim)\n"
        "counts = Counts(canaries=9, guesses=9, correct=9)\n"
        "report(judge(counts, design=design, commitment=None), 'audit.html')"
    )
    assert "MissingExtraError: " in done.stderr
    assert "pip install '.[report]'" in done.stderr
