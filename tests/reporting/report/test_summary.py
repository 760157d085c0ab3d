"""The executive summary: what it advises follows from the result."""

from dataclasses import replace

import pytest
from evidence_samples import KINDS

from dpaudit import ApproxDP
from dpaudit.bounds.bound import ClaimTest
from dpaudit.game.coverage import Coverage
from dpaudit.game.findings import Stage, fault, inspected, invalid, not_checked
from dpaudit.game.setting import Unit
from dpaudit.game.verdict import Verdict
from dpaudit.reporting.report.summary import summary_of

CLAIM = ApproxDP(epsilon=1.0, delta=1e-6)
ALL = [inspected(each, "accounting.compared", steps=100) for each in Stage]
UNCLIPPED = fault(
    Stage.CLIPPING, "probe.too_large", (), change=9.794, cause="not_clipped"
)


@pytest.fixture(scope="module")
def training():
    return KINDS["training"]().result


def audited(made, *, checks=ALL, faults=(), p_value=0.5, sanity_checks=(), **record):
    test = ClaimTest(claim=CLAIM, p_value=p_value, alpha=0.05)
    coverage = Coverage.of(checks, faults)
    trained = replace(made.training, coverage=coverage, accountant=test, **record)
    return replace(made, training=trained, sanity_checks=sanity_checks)


def test_a_claim_is_rejected_if_it_is_refuted_or_the_run_has_a_fault(training):
    refuted = audited(training, p_value=1e-6)
    faulty = audited(training, faults=[UNCLIPPED])
    assert refuted.verdict is Verdict.CLAIM_REFUTED
    assert faulty.verdict is Verdict.FAULT_FOUND
    assert summary_of(refuted).action == summary_of(faulty).action == "Reject"
    assert "leaks more than is claimed" in summary_of(refuted).found
    assert "1 fault found" in summary_of(faulty).found
    both = audited(training, p_value=1e-6, faults=[UNCLIPPED])
    assert "1 fault found" in summary_of(both).found


def test_a_run_that_passed_is_accepted_with_questions_and_is_not_certified(training):
    result = audited(training)
    assert result.verdict is Verdict.NO_VIOLATION_DETECTED
    found = summary_of(result)
    assert found.action == "Accept on conditions"
    assert "no certificate" in found.because
    assert "does not prove" in found.found
    assert any("too small for this audit" in each for each in found.doubts)
    assert any("preprocessing" in each for each in found.doubts)
    assert any("commitment published" in each for each in found.questions)


def test_whoever_reads_asks_where_something_is_open(training):
    unsealed = replace(audited(training), commitment=None)
    checks = [each for each in ALL if each.stage is not Stage.AGGREGATION]
    late = [*checks, not_checked(Stage.AGGREGATION, "probe.offered")]
    open_stage = audited(training, checks=late)
    for result in (unsealed, open_stage):
        assert result.verdict is Verdict.NO_VIOLATION_DETECTED
        assert summary_of(result).action == "Ask"
    assert any("coin flips" in each for each in summary_of(unsealed).doubts)
    assert any("aggregation" in each for each in summary_of(open_stage).doubts)
    for checked, verdict in (
        ((invalid("arrival.none"),), Verdict.INVALID_RUN),
        ((), Verdict.INCONCLUSIVE),
    ):
        few = () if verdict is Verdict.INCONCLUSIVE else ALL
        result = audited(training, checks=few, sanity_checks=checked)
        assert result.verdict is verdict
        assert summary_of(result).action == "Ask"


def test_every_number_that_is_called_epsilon_is_told_apart(training):
    names = [fact.name for fact in summary_of(audited(training)).claims]
    assert names[0] == "Claim that was tested"
    assert names[-2:] == ["Lower bound of this audit", "True ε"]
    assert "Claim in the design" in names
    reported = summary_of(audited(training, reported=1.25)).claims
    assert [each.value for each in reported if "Reported" in each.name] == ["ε = 1.25"]
    same = summary_of(audited(training, reported=1.0)).claims
    assert not any("Reported" in each.name for each in same)


def test_nothing_is_shown_of_an_invalid_run(training):
    result = audited(training, sanity_checks=(invalid("arrival.none"),))
    names = [fact.name for fact in summary_of(result).claims]
    assert "Lower bound of this audit" not in names


def test_questions_are_about_users_where_these_are_protected(training):
    result = audited(training)
    setting = replace(result.design.setting, unit=Unit.USER)
    users = replace(result, design=replace(result.design, setting=setting))
    assert "one user" in summary_of(users).questions[0]
