"""Findings are data: nothing reads their sentences, and every code has one."""

import ast
import re
from dataclasses import replace
from pathlib import Path

import pytest

import dpaudit
from dpaudit import ApproxDP, Design, Key, OneRun, SumsAudit
from dpaudit.evidence import evidence_of, seal, verify
from dpaudit.game import verdict as verdicts
from dpaudit.game.coverage import Coverage
from dpaudit.game.findings import Stage, fault, noted, passed
from dpaudit.game.text import findings as text
from dpaudit.game.text.findings import FAULTS, SENTENCES, fault_parts, sentence

SOURCE = Path(dpaudit.__file__).parent
MAKERS = {"passed", "inconclusive", "invalid", "noted"}
OF_STAGES = {"canary_tested", "inspected", "not_checked", "fault"}


def parsed():
    for path in SOURCE.rglob("*.py"):
        yield path.relative_to(SOURCE), ast.parse(path.read_text("utf-8"))


def sentences_of_the_text_module():
    """All literal parts of sentences that are long enough to be told apart."""
    for path, tree in parsed():
        if path.parts[:2] == ("game", "text"):
            for node in ast.walk(tree):
                text_of = getattr(node, "value", None)
                if isinstance(text_of, str) and " " in text_of.strip()[12:]:
                    yield text_of


def compared(tree):
    """Text that a program compares with, searches for, or cuts off."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            yield from (node.left, *node.comparators)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            reads = {"startswith", "endswith", "removesuffix", "removeprefix"}
            if node.func.attr in reads | {"find", "index", "replace", "split"}:
                yield from node.args


def test_no_code_outside_the_text_module_compares_with_a_sentence():
    said = list(sentences_of_the_text_module())
    assert len(said) > 200
    for path, tree in parsed():
        if path.parts[:2] == ("game", "text"):
            continue
        for node in compared(tree):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    words = part.value.strip()
                    if " " in words and len(words) > 12:
                        assert not any(words in each for each in said), (path, words)


def test_every_code_that_is_made_has_a_sentence():
    made = set()
    for _, tree in parsed():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                place = 0 if node.func.id in MAKERS else 1
                if node.func.id in MAKERS | OF_STAGES and len(node.args) > place:
                    code = node.args[place]
                    if isinstance(code, ast.Constant):
                        made.add(code.value)
    assert len(made) > 20
    assert made <= {*SENTENCES, *FAULTS}, made - {*SENTENCES, *FAULTS}
    assert not SENTENCES.keys() & FAULTS.keys()


def trained(*, unit="record", faults=(), remarks=(), noise=1.0):
    claim = ApproxDP(epsilon=20.0, delta=1e-5)
    rules = OneRun(guesses=100)
    design = Design(canaries=200, rules=rules, claim=claim)
    audit = SumsAudit(
        design=design,
        key=Key(bytes(range(32))),
        dimension=200,
        noise=noise,
        unit=unit,
        unchecked=("sampling", "gradients", "clipping", "interference"),
    )
    audit.observe(audit.contributions())
    result = audit.finish()
    training = result.training
    coverage = replace(training.coverage, faults=tuple(faults))
    remarks = (*training.remarks, *remarks)
    training = replace(training, coverage=coverage, remarks=remarks)
    return replace(result, training=training), Key(bytes(range(32)))


NAMES = ("record_encoder.weight", "recorded.bias")
SCALE = fault(
    Stage.NOISE_SCALE,
    "noise.scale",
    NAMES,
    least=0.25,
    most=0.5,
    everywhere=False,
    multiplier=1.0,
    ratio=0.3,
    error=0.001,
    cause="apart",
)


def test_a_parameter_keeps_its_name_where_privacy_is_claimed_for_users():
    result, _ = trained(unit="user", faults=[SCALE])
    said = result.details()
    assert "parameters 'record_encoder.weight' and 'recorded.bias'" in said
    assert "record" not in said.replace(NAMES[0], "").replace(NAMES[1], "")
    assert "one user" in said


def test_evidence_holds_when_every_sentence_is_another(monkeypatch):
    """What was sealed before the wording changed verifies after it."""
    result, key = trained(remarks=[noted("noise.fixed_seed")])
    sealed = seal(evidence_of(result, key=key))
    before = result.details()

    def other(template):
        return f"quite {template}" if isinstance(template, str) else lambda v: "quite"

    altered = {code: other(each) for code, each in SENTENCES.items()}
    monkeypatch.setattr(text, "SENTENCES", altered)
    assert verify(sealed).sound
    assert result.details() != before
    assert "quite" in result.details()


def test_the_verdict_of_a_result_is_decided_once(monkeypatch):
    decided = []

    def counting(**given):
        decided.append(given)
        return verdicts.decide(**given)

    monkeypatch.setattr("dpaudit.game.result.decide", counting)
    result, _ = trained()
    decided.clear()
    again = type(result).from_json(result.to_json())
    decided.clear()
    for _ in range(3):
        str(again), again.verdict, again.reason, again.refuted, again.to_json()
    assert len(decided) <= 1
    str(result), result.to_json(), result._repr_html_(), result.verdict.exit_code
    assert len(decided) <= 1


@pytest.mark.parametrize("code", [*FAULTS, *SENTENCES])
def test_a_finding_without_its_numbers_is_still_shown(code):
    """A file may hold any code with any numbers."""
    finding = passed(code, ("a",), cause="unheard", steps="many")
    assert sentence(finding)
    assert all(fault_parts(replace(finding, code=code)))
    assert "\n" not in sentence(finding)


def test_templates_name_only_numbers_that_they_are_given():
    for template in SENTENCES.values():
        if isinstance(template, str):
            assert not re.search(r"\{[^}]*[.\[]", re.sub(r":[^}]*\}", "}", template))


def test_numbers_that_are_not_finite_are_kept_and_shown():
    found = noted("accounting.higher_rate", accounted=float("inf"), rate=float("nan"))
    assert found.numbers == {"accounted": "inf", "rate": "nan"}
    assert "rate of inf, but canaries join at nan" in sentence(found)


def test_coverage_of_nothing_is_not_recorded():
    assert {each.status.value for each in Coverage.of(()).checks} == {"not checked"}
