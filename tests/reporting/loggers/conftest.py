"""Results that the loggers' tests log, made by hand."""

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
        audit.observe(audit.joining() + 0.1 * rng.normal(size=200))
    return audit.finish(claim=GaussianDP(mu=0.5))
