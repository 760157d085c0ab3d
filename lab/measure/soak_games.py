"""Small audits of mechanisms, by every kind of rule: for ``soak.py``.

Each is a function of a generator and an empty folder. It makes its own coins, runs
something, judges it, and mostly does what a user does next: keep it, read it again,
explain it, report it, verify it. What must come out is asserted.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from dpaudit import (
    AdaptiveBets,
    AdaptiveClasses,
    AdaptiveCount,
    AdaptiveMostLikely,
    AdaptiveRounds,
    ApproxDP,
    Coins,
    Design,
    Key,
    MostLikely,
    OneRun,
    Pairs,
    PureDP,
    Result,
    SeparateRuns,
    WeightClasses,
    audit_adaptive,
    audit_classic,
    audit_one_run,
    explain,
    report,
)
from dpaudit.dpsgd.planning import TrainingSetup, plan_audit
from dpaudit.dpsgd.sampling import Poisson
from dpaudit.dpsgd.sums import DiracSums
from dpaudit.evidence import Registration, evidence_of, register, seal, verify
from dpaudit.game import Confident, Everyone, Referee
from dpaudit.game.auditors import play_adaptive, play_one_run
from dpaudit.game.guessers import Echo
from dpaudit.game.result import conclude
from dpaudit.game.rules import Rules
from dpaudit.mechanisms.local import LocalLaplace, LocalRandomisedResponse
from dpaudit.mechanisms.noise import GaussianNoise
from dpaudit.mechanisms.sets import CountInSets
from dpaudit.privacy.guarantees import Adjacency
from dpaudit.testing import Calls, OneValue, audit_function, fixed_key
from dpaudit_lab.calibration.shards import conclude_tallies, tally_local

__all__ = ["CLAIM", "GAMES", "Audit", "key_of"]

Audit: TypeAlias = Callable[[np.random.Generator, Path], object]

CLAIM: Final = ApproxDP(epsilon=1.0, delta=1e-5)
REPLACING: Final = PureDP(epsilon=1.0, adjacency=Adjacency.REPLACE_ONE)
SUMS: Final = DiracSums(
    coordinates=40,
    per_coordinate=4,
    sampling=Poisson(rate=0.5),
    sigma=1.0,
    steps=10,
)


def key_of(rng: np.random.Generator) -> Key:
    """Return a key that is the same in every soak; a real one is Key.generate()."""
    return fixed_key(rng.bytes(32))


# One run


def one_run(rng: np.random.Generator, _folder: Path) -> None:
    laplace = LocalLaplace(epsilon=2.0)
    for guesser in (
        MostLikely(mechanism=laplace, guesses=100),
        Confident(mechanism=laplace, threshold=0.5, guesses=100),
    ):
        result = audit_one_run(
            laplace,
            guesser,
            pairs=laplace.pairs,
            design=Design(canaries=500, rules=OneRun(guesses=100), claim=REPLACING),
            rng=rng,
            key=key_of(rng),
        )
        assert Result.from_json(result.to_json()) == result


def kept_one_run(rng: np.random.Generator, folder: Path) -> None:
    """Everyone is guessed; the evidence is written, read and verified."""
    response, key = LocalRandomisedResponse(epsilon=3.0), key_of(rng)
    design = Design(canaries=400, rules=OneRun(guesses=400), claim=REPLACING)
    registration = register(design, key)
    transcript = play_one_run(
        response,
        Everyone(mechanism=response),
        pairs=response.pairs,
        design=design,
        rng=rng,
        key=key,
    )
    result = conclude(transcript, commitment=registration.commitment)
    evidence = evidence_of(result, key=key, transcript=transcript)
    path = folder / "evidence.json"
    path.write_text(seal(evidence), encoding="utf-8")
    read = Registration.from_json(registration.to_json())
    assert verify(path.read_text("utf-8"), registration=read).sound
    assert evidence.redact().key is None


def classes(rng: np.random.Generator, _folder: Path) -> None:
    key, rules = key_of(rng), WeightClasses(weights=(1.0, 2.0), guesses=(40, 20))
    design = Design(canaries=100, rules=rules, claim=CLAIM)
    referee, truth = Referee(design, key), 2 * Coins(key=key, count=100).bits()[:60]
    guess = np.where(rng.random(60) < 0.8, truth - 1.0, 1.0 - truth)
    referee.submit(np.arange(60), guess, np.repeat([2.0, 1.0], [20, 40]))
    assert conclude(referee.close(), commitment=referee.commitment).ceiling > 0


def shards(rng: np.random.Generator, _folder: Path) -> None:
    """A local mechanism of four blocks, in three shards."""
    response, key, canaries = LocalRandomisedResponse(epsilon=1.0), key_of(rng), 200_000
    design = Design(
        canaries=canaries, rules=OneRun(guesses=canaries), claim=response.guarantee
    )
    tallies = [
        tally_local(
            response,
            Echo(),
            pairs=response.pairs,
            design=design,
            key=key,
            shard=shard,
            shards=3,
        )
        for shard in range(3)
    ]
    assert conclude_tallies(tallies).bound.epsilon_lower > 0.9


def simulated_training(rng: np.random.Generator, folder: Path) -> None:
    """DP-SGD simulated, explained and reported."""
    result = audit_one_run(
        SUMS,
        MostLikely(mechanism=SUMS, guesses=60),
        pairs=SUMS.pairs,
        design=Design(canaries=160, rules=OneRun(guesses=60), claim=CLAIM),
        rng=rng,
        key=key_of(rng),
    )
    report(result, folder / "audit.html", explanation=explain(result))
    assert (folder / "audit.html").stat().st_size > 10_000


# Adaptive


def adaptive(rules: Rules) -> Audit:
    def audit(rng: np.random.Generator, _folder: Path) -> None:
        mechanism = CountInSets(
            elements=200, set_size=10, noise=GaussianNoise(sigma=0.7)
        )
        claim = ApproxDP(epsilon=1.0, delta=1e-5, adjacency=mechanism.pairs.adjacency)
        key, design = key_of(rng), Design(canaries=200, rules=rules, claim=claim)
        transcript = play_adaptive(
            mechanism,
            AdaptiveMostLikely(mechanism=mechanism, threshold=0.3, rules=rules),
            pairs=mechanism.pairs,
            design=design,
            rng=rng,
            key=key,
        )
        commitment = register(design, key).commitment
        result = conclude(transcript, commitment=commitment)
        sealed = seal(evidence_of(result, key=key, transcript=transcript))
        assert verify(sealed).sound

    return audit


def adaptive_training(rng: np.random.Generator, _folder: Path) -> None:
    rules = AdaptiveRounds(
        round_weights=(1.0, 1.0, 1.0, 1.0), max_jump=1.0, randomness_share=0.1
    )
    result = audit_adaptive(
        SUMS,
        AdaptiveMostLikely(mechanism=SUMS, threshold=0.2, rules=rules),
        pairs=SUMS.pairs,
        design=Design(canaries=160, rules=rules, claim=CLAIM),
        rng=rng,
        key=key_of(rng),
    )
    assert result.metrics()["dpaudit/method"] == "rounds"


# Many runs


def classic(rng: np.random.Generator, _folder: Path) -> None:
    class Count:
        def run(self, data: Any, rng: np.random.Generator) -> float:  # noqa: ANN401
            return float(data.sum() + rng.laplace(scale=0.5))

    result = audit_classic(
        Count(),
        lambda total: 1 if total > 2.5 else -1,
        base=np.array([1, 1, 0]),
        place=2,
        pair=Pairs(x=0, y=1),
        design=Design(canaries=200, rules=SeparateRuns(guesses=200), claim=REPLACING),
        rng=rng,
        key=key_of(rng),
    )
    assert result.bound.method == "separate"


def of_function(rng: np.random.Generator, _folder: Path) -> None:
    """What the pytest plugin does."""

    def answer(bit: int, rng: np.random.Generator) -> int:
        return bit if rng.random() < 0.7 else 1 - bit

    found = audit_function(
        answer,
        neighbours=OneValue(x=0, y=1),
        claim=REPLACING,
        budget=Calls(calls=300),
        key=key_of(rng),
    )
    assert "would be detected" in str(found)


def planned(rng: np.random.Generator, _folder: Path) -> None:
    """A plan, and the audit that it plans."""
    plan = plan_audit(
        TrainingSetup(steps=10, rate=0.5, noise=1.0),
        claim=ApproxDP(epsilon=4.0, delta=1e-5),
        coordinates=100,
        per_coordinate=1,
        in_rounds=False,
    )
    mechanism = DiracSums(
        coordinates=100,
        per_coordinate=1,
        sampling=Poisson(rate=0.5),
        sigma=1.0,
        steps=10,
    )
    audit_one_run(
        mechanism,
        MostLikely(mechanism=mechanism, guesses=plan.design().guesses),
        pairs=mechanism.pairs,
        design=plan.design(),
        rng=rng,
        key=key_of(rng),
    )


GAMES: Final[dict[str, Audit]] = {
    "one run": one_run,
    "one run, kept": kept_one_run,
    "classes": classes,
    "shards": shards,
    "DP-SGD simulated, reported": simulated_training,
    "adaptive count": adaptive(AdaptiveCount(guesses=60)),
    "adaptive classes": adaptive(AdaptiveClasses(weights=(1.0, 2.0), guesses=(40, 20))),
    "adaptive rounds": adaptive(
        AdaptiveRounds(round_weights=(1.0, 1.0), max_jump=2.0, randomness_share=0.1)
    ),
    "adaptive bets": adaptive(AdaptiveBets()),
    "DP-SGD simulated, rounds": adaptive_training,
    "classic": classic,
    "function": of_function,
    "planned": planned,
}
