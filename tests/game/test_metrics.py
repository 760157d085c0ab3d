"""A result as a dict: the names hold still and say what the numbers mean."""

import json
from math import inf

import numpy as np
import pytest

from dpaudit import ApproxDP, Design, GaussianDP, OneRun, PureDP, ThreatModel
from dpaudit.bounds import Counts
from dpaudit.game import Commitment
from dpaudit.game.result import judge
from dpaudit.testing import fixed_key
from dpaudit.training.any_loop import SumsAudit

KEY = fixed_key(bytes(range(32)))
CLAIM = ApproxDP(epsilon=2.5, delta=1e-5)


@pytest.fixture(scope="session")
def counted():
    """1,510 guesses about 100,000 canaries; 1,439 right show 2.802838 (published)."""

    def made(correct=1439, claim=CLAIM, delta=None):
        design = Design(
            canaries=100_000,
            rules=OneRun(guesses=1510),
            claim=claim,
            delta=delta,
            threat_model=ThreatModel.FINAL_MODEL,
        )
        return judge(
            Counts(canaries=100_000, guesses=1510, correct=correct),
            design=design,
            commitment=Commitment.to(KEY, design),
            not_exercised=("clipping", "sampling"),
        )

    return made


@pytest.fixture(scope="session")
def without_epsilon(counted):
    """A curve that promises no epsilon at the delta of the bound."""
    return counted(claim=GaussianDP(mu=1.0), delta=0.0)


@pytest.fixture(scope="session")
def trained():
    """200 canaries, 20 steps without noise worth the name: refuted."""
    design = Design(canaries=200, rules=OneRun(guesses=100), claim=PureDP(epsilon=1.0))
    audit = SumsAudit(design=design, key=KEY, dimension=200, sample_rate=1.0)
    rng = np.random.default_rng(0)
    for _ in range(20):
        audit.observe(audit.contributions() + 0.1 * rng.normal(size=200))
    return audit.finish(claim=GaussianDP(mu=0.5))


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
    "dpaudit/detectable_accuracy": float,
    "dpaudit/commitment": str,
    "dpaudit/not_exercised": str,
}
OF_TRAINING = {
    "dpaudit/steps": int,
    "dpaudit/evidence_share": float,
    "dpaudit/tier_b/mu_lower": float,
    "dpaudit/tier_b/model_epsilon": float,
    "dpaudit/tier_b/family": str,
}


def kinds(metrics):
    return {name: type(value) for name, value in metrics.items()}


def test_the_names_and_their_types_are_these(counted):
    """Dashboards are built on them: a name here may be added, never changed."""
    assert kinds(counted().metrics()) == NAMES


def test_training_says_more(trained):
    found = kinds(trained.metrics())
    del found["dpaudit/detectable_accuracy"]
    found.pop("dpaudit/reason", None)
    assert found == {
        **{k: v for k, v in NAMES.items() if k != "dpaudit/detectable_accuracy"},
        **OF_TRAINING,
    }


def test_the_numbers_are_those_of_the_audit(counted):
    metrics = counted().metrics()
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
    metrics = trained.metrics()
    assert metrics["dpaudit/p_value"] == trained.training.accountant.p_value
    assert metrics["dpaudit/claim"] == "(mu = 0.5)-GDP"
    assert metrics["dpaudit/claimed_epsilon"] == inf
    assert metrics["dpaudit/steps"] == 20


def test_a_promise_of_no_epsilon_is_infinite(without_epsilon):
    assert without_epsilon.metrics()["dpaudit/claimed_epsilon"] == inf


def test_everything_finite_is_plain_json(counted):
    metrics = counted().metrics()
    assert json.loads(json.dumps(metrics, allow_nan=False)) == metrics
