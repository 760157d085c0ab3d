"""Real results of every kind that a report is made of, each audited once."""

import numpy as np
import pytest

from dpaudit import (
    AdaptiveBets,
    AdaptiveCount,
    AdaptiveMostLikely,
    AdaptiveRounds,
    ApproxDP,
    Coins,
    Design,
    Extremes,
    GaussianDP,
    OneRun,
    Pairs,
    PureDP,
    Ranking,
    SeparateRuns,
    audit_classic,
    audit_scores,
)
from dpaudit.game import Commitment
from dpaudit.game.auditors import play_adaptive, play_one_run
from dpaudit.game.result import conclude
from dpaudit.game.setting import Setting
from dpaudit.mechanisms.local import LocalLaplace
from dpaudit.privacy.guarantees import Adjacency
from dpaudit.testing import fixed_key
from dpaudit.training.any_loop import SumsAudit

KEY = fixed_key(bytes(range(32)))
EPSILON = 2.0
MECHANISM = LocalLaplace(epsilon=EPSILON)


def pure(epsilon):
    return PureDP(epsilon=epsilon, adjacency=Adjacency.REPLACE_ONE)


def one_run(*, claimed, canaries=1000, guesses=200, key=KEY):
    """Audit local Laplace noise of epsilon 2, whatever is claimed of it."""
    design = Design(
        canaries=canaries, rules=OneRun(guesses=guesses), claim=pure(claimed)
    )
    transcript = play_one_run(
        MECHANISM,
        Extremes(score=np.asarray, top=guesses // 2, bottom=guesses - guesses // 2),
        pairs=MECHANISM.pairs,
        design=design,
        rng=np.random.default_rng(1),
        key=key,
    )
    return conclude(transcript, commitment=Commitment.to(key, design)), transcript


def adaptive(rules, *, claimed, canaries=400):
    design = Design(canaries=canaries, rules=rules, claim=pure(claimed))
    transcript = play_adaptive(
        MECHANISM,
        AdaptiveMostLikely(mechanism=MECHANISM, threshold=0.5, rules=rules),
        pairs=MECHANISM.pairs,
        design=design,
        rng=np.random.default_rng(2),
        key=KEY,
    )
    return conclude(transcript, commitment=Commitment.to(KEY, design)), transcript


def ranking(*, claim, canaries=1000, scale=0.5, setting=None):
    coins = Coins(key=KEY, count=canaries)
    noise = np.random.default_rng(3).laplace(scale=scale, size=canaries)
    design = Design(
        canaries=canaries,
        rules=Ranking(guesses=canaries),
        claim=claim,
        setting=setting or Setting(),
    )
    return audit_scores(np.arange(canaries), coins, coins.bits() + noise, design=design)


def trained(*, noise, claim):
    """Train in plain numpy, in 30 steps, and audit it."""
    design = Design(
        canaries=500,
        rules=OneRun(guesses=100),
        claim=ApproxDP(epsilon=2.0, delta=1e-5),
    )
    unchecked = ("sampling", "gradients", "clipping", "interference")
    audit = SumsAudit(
        design=design, key=KEY, dimension=500, sample_rate=0.5, unchecked=unchecked
    )
    rng = np.random.default_rng(4)
    for _ in range(30):
        total = np.zeros(500)
        total[audit.coordinates] += audit.contributions()
        audit.observe((total + noise * rng.normal(size=500))[audit.coordinates])
    return audit.finish(claim=claim)


@pytest.fixture(scope="session")
def honest():
    return one_run(claimed=EPSILON)


@pytest.fixture(scope="session")
def refuted():
    return one_run(claimed=0.5)


@pytest.fixture(scope="session")
def too_weak():
    return one_run(claimed=EPSILON, canaries=10, guesses=5)


@pytest.fixture(scope="session")
def ranked():
    return ranking(claim=ApproxDP(epsilon=1.0, delta=1e-5))


@pytest.fixture(scope="session")
def bets():
    return adaptive(AdaptiveBets(), claimed=1.0)


@pytest.fixture(scope="session")
def rounds():
    return adaptive(
        AdaptiveRounds(round_weights=(1.0, 1.0, 2.0), max_jump=0.5), claimed=1.0
    )


@pytest.fixture(scope="session")
def counts():
    return adaptive(AdaptiveCount(guesses=300), claimed=1.0)


@pytest.fixture(scope="session")
def training():
    return trained(noise=12.0, claim=GaussianDP(mu=0.7))


@pytest.fixture(scope="session")
def classic():
    return audit_classic(
        MECHANISM,
        lambda output: 1 if output[0] > 0 else -1,
        base=np.array([1]),
        place=0,
        pair=Pairs(x=-1, y=1),
        design=Design(
            canaries=200, rules=SeparateRuns(guesses=200), claim=pure(EPSILON)
        ),
        rng=np.random.default_rng(5),
        key=KEY,
    )


@pytest.fixture(scope="session")
def scored():
    """A maker of rankings: of any claim, any noise, any setting."""
    return ranking
