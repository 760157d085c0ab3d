"""``dpaudit report`` and ``audit --report``; needs the extra ``report``."""

import json
import re
import sys
from pathlib import Path

import pytest

KEY = ["--design=design.json", "--key=audit.key"]


@pytest.mark.usefixtures("registered")
def test_an_audit_a_result_and_evidence_give_one_report(dpaudit):
    said = dpaudit(
        "audit",
        "scores.npz",
        *KEY,
        "--save=result.json",
        "--evidence=evidence.json",
        "--report=one.html",
        code=1,
    ).stdout
    assert "Report: one.html" in said
    assert dpaudit("report", "result.json").stdout == "Report: audit.html\n"
    dpaudit("report", "evidence.json", "--output=two.html")
    pages = [Path(p).read_text() for p in ("one.html", "audit.html", "two.html")]
    assert pages[0].startswith("<!doctype html>") or pages[0].startswith("<!DOCTYPE")
    assert pages[0] == pages[1] == pages[2]
    assert "is refuted" in pages[0]


@pytest.mark.usefixtures("registered")
def test_without_the_extra_nothing_is_computed_and_it_is_named(dpaudit, monkeypatch):
    for name in [each for each in sys.modules if "reporting.report" in each]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    options = [*KEY, "--report=r.html", "--save=result.json"]
    said = dpaudit("audit", "scores.npz", *options, code=2).stderr
    assert "pip install '.[report]'" in said
    assert not Path("result.json").exists()


def test_misuse_exits_with_2_and_advice(dpaudit):
    Path("r.json").write_text("[]")
    assert "expected the JSON of a result" in dpaudit("report", "r.json", code=2).stderr
    assert "cannot read none.json" in dpaudit("report", "none.json", code=2).stderr


@pytest.mark.usefixtures("registered")
def test_a_page_of_what_was_not_checked_says_so_before_anything_else(dpaudit):
    dpaudit("audit", "scores.npz", *KEY, "--save=result.json", code=1)
    plain = json.loads(Path("result.json").read_text())
    plain["bound"] |= {"method": "mine", "epsilon_lower": 9.0}
    Path("mine.json").write_text(json.dumps(plain))
    dpaudit("report", "mine.json")
    body = Path("audit.html").read_text().partition("<body")[2]
    words = re.sub(r"<[^>]*>", " ", body.partition(">")[2]).split()
    assert words[:2] == ["Not", "checked:"]
