"""Loops whose canaries take turns, or whose noise is correlated: read as they are.

Every loop is plain numpy: noise is made white, multiplied by the inverse of a dense
matrix, and added to what joins.
"""

import re

import numpy as np
import pytest
from scipy import special

from dpaudit import (
    ApproxDP,
    Coins,
    Design,
    GaussianDP,
    OneRun,
    Verdict,
    explain,
)
from dpaudit.dpsgd.participation import Participation
from dpaudit.dpsgd.planning import TrainingSetup, plan_audit
from dpaudit.dpsgd.strategy import Matrix, Toeplitz
from dpaudit.dpsgd.sums import canary_log_odds
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.setting import Setting
from dpaudit.testing import fixed_key
from dpaudit.training.any_loop import SumsAudit

KEY = fixed_key(bytes(range(32)))
STEPS, CANARIES = 12, 3000
COEFFICIENTS = (1.0, 0.5, 0.375)
STRATEGY = Toeplitz(coefficients=COEFFICIENTS, steps=STEPS)
ROWS = sum(np.diag(np.full(STEPS - k, c), -k) for k, c in enumerate(COEFFICIENTS))
PARTICIPATION = Participation(every=3, cohorts=3)
CLAIM = ApproxDP(epsilon=2.0, delta=1e-5)
NOISE = 1.9938 * 2 * np.linalg.norm(COEFFICIENTS)  # four turns: epsilon is 2
DESIGN = Design(canaries=CANARIES, rules=OneRun(guesses=140), claim=CLAIM)


def opened(design=DESIGN, **told):
    unchecked = ("sampling", "gradients", "clipping", "interference")
    told = {"unchecked": unchecked, "noise": NOISE, **told}
    told = {"participation": PARTICIPATION, "strategy": STRATEGY, **told}
    return SumsAudit(design=design, key=KEY, dimension=CANARIES, **told)


def run(audit, *, divide_by=1.0, rows=ROWS, seed=0, steps=range(STEPS)):
    rng = np.random.default_rng(seed)
    white = NOISE / divide_by * rng.normal(size=(STEPS, CANARIES))
    noise = np.linalg.solve(rows, white)
    real = 0.1 * rng.normal(size=(STEPS, CANARIES))
    for step in steps:
        told = {"real_sums": real[step]} if audit._knows_real_sums else {}
        audit.observe(audit.contributions() + noise[step] + real[step], **told)


@pytest.mark.parametrize("rate", [1.0, 0.5])
@pytest.mark.parametrize("knows_real_sums", [True, False])
def test_the_noise_decides(rate, knows_real_sums):
    """Fixed seeds; an honest run is refuted in 5 % of seeds at most."""
    for divide_by, verdict in ((1.0, False), (6.0, True)):
        audit = opened(sample_rate=rate, knows_real_sums=knows_real_sums)
        run(audit, divide_by=divide_by)
        assert audit.finish().refuted is verdict


@pytest.mark.nightly
def test_a_matched_filter_shows_more_than_reading_steps_as_if_independent():
    """Means over 20 seeds: 0.6 against 0.4, with standard errors of 0.04 each."""
    matched, plain = [], []
    for seed in range(20):
        key = fixed_key(bytes([seed] * 32))
        for strategy, found in ((STRATEGY, matched), (None, plain)):
            audit = SumsAudit(
                design=DESIGN,
                key=key,
                dimension=CANARIES,
                participation=PARTICIPATION,
                strategy=strategy,
            )
            run(audit, seed=seed)
            found.append(audit.finish().bound.epsilon_lower)
    assert np.mean(matched) > np.mean(plain) + 0.1


def test_noise_is_held_against_what_was_stated_once_it_is_independent_again():
    audit = opened(knows_real_sums=True)
    run(audit)
    result = audit.finish()
    assert not result.faults
    # 2,880 values: a standard error of 0.013.
    measured = re.search(r"measured ([\d.]+) ±", " ".join(result.details().split()))
    assert abs(float(measured[1]) - 1) < 0.06
    audit = opened(knows_real_sums=True)
    run(audit, rows=np.eye(STEPS))  # not correlated at all, whatever was said
    assert audit.finish().verdict is not Verdict.NO_VIOLATION_DETECTED


def test_an_interrupted_audit_ends_as_one_that_was_not(tmp_path):
    for rate in (1.0, 0.5):
        whole = opened(sample_rate=rate, knows_real_sums=True)
        run(whole)
        first = opened(sample_rate=rate, knows_real_sums=True)
        run(first, steps=range(7))
        first.save(tmp_path / "state.npz")
        second = opened(sample_rate=rate, knows_real_sums=True)
        second.resume(tmp_path / "state.npz")
        run(second, steps=range(7, STEPS))
        assert second.finish() == whole.finish()


@pytest.mark.nightly
def test_a_plan_becomes_an_audit_that_shows_what_it_forecast():
    """The mean of 20 audits within four standard errors of the forecast."""
    training = TrainingSetup(
        steps=STEPS, noise=NOISE, participation=PARTICIPATION, strategy=STRATEGY
    )
    mu = 1 / training.sufficient().noise
    plan = plan_audit(
        training,
        claim=CLAIM,
        coordinates=CANARIES,
        guarantee=GaussianDP(mu=mu),
        in_rounds=False,
        purpose="bound",
        per_coordinate=1,
    )
    assert "3 cohorts in turn, each every 3 steps" in str(plan)
    shown = []
    for seed in range(20):
        audit = SumsAudit(
            design=plan.design(),
            key=fixed_key(bytes([seed] * 32)),
            dimension=CANARIES,
            participation=PARTICIPATION,
            strategy=STRATEGY,
            noise=NOISE,
        )
        run(audit, seed=seed)
        result = audit.finish()
        shown.append(result.bound.epsilon_lower)
    error = plan.expected.spread / np.sqrt(len(shown))
    assert abs(np.mean(shown) - plan.expected.mean) < 4 * error
    names = {step.name for step in explain(result).steps}
    assert {"outputs", "elements"} <= names  # known only with a model


def test_users_are_called_users():
    audit = opened(unit="user")
    run(audit)
    said = " ".join(audit.finish().details().split())
    assert "cohort sampling" in said
    assert "add or remove one user" in said
    assert "12 rounds" in said
    assert "record" not in said.replace("records=", "")
    with pytest.raises(InvalidInputError, match="unit must be 'record' or 'user'"):
        opened(unit="client")


def test_a_step_more_than_the_strategy_has_is_refused():
    audit = opened(strategy=Matrix(rows=np.eye(3)), participation=Participation(most=2))
    for _ in range(3):
        audit.contributions()
        audit.observe(np.zeros(CANARIES))
    audit.contributions()
    with pytest.raises(InvalidRunError, match="strategy is for 3 steps"):
        audit.observe(np.zeros(CANARIES))


def test_several_canaries_with_patterns_of_their_own_are_refused():
    design = Design(
        canaries=CANARIES,
        rules=OneRun(guesses=140),
        claim=CLAIM,
        setting=Setting(per_coordinate=2),
    )
    with pytest.raises(InvalidInputError, match="their patterns are too many"):
        opened(design=design, sample_rate=0.5)


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_guesses_are_as_often_right_as_their_odds_say(rate):
    """Within four standard errors: 1 seed in 16,000 fails, and this one is fixed."""
    audit = opened(sample_rate=rate, knows_real_sums=True)
    run(audit, divide_by=3.0)
    odds = canary_log_odds(audit._audit.likelihood.log_likelihood())
    bits = Coins(key=KEY, count=CANARIES).bits()
    right, sure = (odds > 0) == bits, special.expit(np.abs(odds))
    error = np.sqrt(np.mean(sure * (1 - sure)) / CANARIES)
    assert abs(right.mean() - sure.mean()) < 4 * error


def test_arrival_is_as_sure_as_among_independent_noise():
    """Canaries of all steps are 4 in noise of one: the error follows from that."""
    audit = opened(knows_real_sums=True)
    run(audit, divide_by=3.0)
    signal = audit.finish().training.signal
    assert abs(signal.slope - 1) < 4 * signal.error
    joins = np.isin(np.arange(STEPS), np.arange(0, STEPS, 3)).astype(float)
    spread = np.linalg.norm(ROWS @ joins) * np.sqrt(CANARIES / 4)
    assert signal.error < 1.2 * (NOISE / 3) / spread
