"""The write-up: no number without a command, and none that is no longer there."""

import sys
from pathlib import Path

import pytest

PAPER = Path(__file__).resolve().parents[2] / "docs" / "paper"


@pytest.fixture
def build(monkeypatch):
    monkeypatch.syspath_prepend(str(PAPER))
    for name in ("build", "quoted"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import build  # noqa: PLC0415 (a script beside the text)

    yield build
    for name in ("build", "quoted"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("stray", ["it shows 0.818", "0.62 ± 0.01", "at 12.345 %"])
def test_a_measured_number_needs_a_command(build, stray):
    with pytest.raises(SystemExit, match="without a command"):
        build.numbered(stray)


def test_a_number_must_be_known_and_used(build, monkeypatch):
    with pytest.raises(SystemExit, match="has no number nobody"):
        build.numbered("{{nobody}}")
    with pytest.raises(SystemExit, match="does not use"):
        build.numbered("nothing is said")
    one = {"one": lambda: build.Number(text="1.5", command="c")}
    monkeypatch.setattr(build, "NUMBERS", one)
    text, found = build.numbered("so {{one}}, and {{one}}")
    assert text == "so 1.5, and 1.5"
    assert build.commands(found).endswith("| `c` | 1 |")


@pytest.mark.usefixtures("build")
def test_a_row_that_says_something_else_is_missed():
    quoted = sys.modules["quoted"]
    where = "docs/explanation/why-the-bound-is-lower.md"
    quoted.measured("gone", "0.999 [0.9, 1.0]", where=where, row="| 12 |", command="c")
    with pytest.raises(SystemExit, match=r"no line with '\| 12 \|'"):
        quoted.NUMBERS["gone"]()
