"""A result as a dict: the names hold still and say what the numbers mean."""

import json
from math import inf

import pytest

from dpaudit.game import Commitment
from dpaudit.reporting.loggers.plain import as_metrics
from dpaudit.testing import fixed_key

NAMES = {
    "dpaudit/verdict": str,
    "dpaudit/epsilon_lower": float,
    "dpaudit/delta": float,
    "dpaudit/alpha": float,
    "dpaudit/tier": str,
    "dpaudit/method": str,
    "dpaudit/claim": str,
    "dpaudit/claimed_epsilon": float,
    "dpaudit/p_value": float,
    "dpaudit/refuted": bool,
    "dpaudit/threat_model": str,
    "dpaudit/ceiling": float,
    "dpaudit/canaries": int,
    "dpaudit/guesses": int,
    "dpaudit/right": int,
    "dpaudit/accuracy_caught": float,
    "dpaudit/commitment": str,
    "dpaudit/not_exercised": str,
}
OF_TRAINING = {
    "dpaudit/steps": int,
    "dpaudit/trusted": float,
    "dpaudit/tier_b/mu_lower": float,
    "dpaudit/tier_b/model_epsilon": float,
    "dpaudit/tier_b/family": str,
}


def kinds(metrics):
    return {name: type(value) for name, value in metrics.items()}


def test_the_names_and_their_types_are_these(counted):
    """Dashboards are built on them: a name here may be added, never changed."""
    assert kinds(as_metrics(counted())) == NAMES


def test_training_says_more(trained):
    found = kinds(as_metrics(trained))
    del found["dpaudit/accuracy_caught"]
    found.pop("dpaudit/reason", None)
    assert found == {
        **{k: v for k, v in NAMES.items() if k != "dpaudit/accuracy_caught"},
        **OF_TRAINING,
    }


def test_the_numbers_are_those_of_the_audit(counted):
    metrics = as_metrics(counted())
    assert metrics["dpaudit/epsilon_lower"] == pytest.approx(2.802838, abs=6e-7)
    assert metrics["dpaudit/delta"] == 1e-5
    assert metrics["dpaudit/alpha"] == 0.05
    assert metrics["dpaudit/claimed_epsilon"] == pytest.approx(2.5)
    assert metrics["dpaudit/claim"] == "(epsilon = 2.5, delta = 1e-05)-DP"
    assert metrics["dpaudit/refuted"] is True
    assert (metrics["dpaudit/right"], metrics["dpaudit/guesses"]) == (1439, 1510)
    assert metrics["dpaudit/threat_model"] == "an observer of the final model only"
    assert metrics["dpaudit/not_exercised"] == "clipping, sampling"
    design = counted().design
    assert (
        metrics["dpaudit/commitment"]
        == Commitment.to(fixed_key(bytes(range(32))), design).sha256
    )


def test_the_verdict_on_training_is_that_on_the_accountants_curve(trained):
    metrics = as_metrics(trained)
    assert metrics["dpaudit/p_value"] == trained.training.accountant.p_value
    assert metrics["dpaudit/claim"] == "(mu = 0.5)-GDP"
    assert metrics["dpaudit/claimed_epsilon"] == inf
    assert metrics["dpaudit/steps"] == 20


def test_a_promise_of_no_epsilon_is_infinite(without_epsilon):
    assert as_metrics(without_epsilon)["dpaudit/claimed_epsilon"] == inf


def test_everything_finite_is_plain_json(counted):
    metrics = as_metrics(counted())
    assert json.loads(json.dumps(metrics, allow_nan=False)) == metrics
