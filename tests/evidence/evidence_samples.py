"""Evidence of every kind of audit, small and always the same."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from dpaudit import (
    AdaptiveBets,
    AdaptiveClasses,
    AdaptiveCount,
    AdaptiveRounds,
    ApproxDP,
    Coins,
    Design,
    Key,
    OneRun,
    Pairs,
    PrivacyCurve,
    PureDP,
    Ranking,
    SeparateRuns,
    WeightClasses,
    audit_classic,
    audit_scores,
)
from dpaudit.evidence import (
    Evidence,
    Registration,
    Verification,
    VerificationCheck,
    VerificationOutcome,
    evidence_of,
    score_files,
    tie_rng,
)
from dpaudit.evidence.files import read_score_files
from dpaudit.game import Referee
from dpaudit.game.result import Result, conclude
from dpaudit.game.rules import Rules
from dpaudit.game.setting import Setting
from dpaudit.game.transcript import Transcript
from dpaudit.privacy.guarantees import Adjacency
from dpaudit.testing import fixed_key
from dpaudit.training.any_loop import SumsAudit

KEY = fixed_key(bytes(range(32)))
OTHER_KEY = fixed_key(bytes(range(1, 33)))
CLAIM = ApproxDP(epsilon=0.5, delta=1e-6)
CANARIES = 60


def design_of(rules: Rules, canaries: int = CANARIES) -> Design:
    return Design(
        canaries=canaries,
        rules=rules,
        claim=CLAIM,
        setting=Setting(
            program_sha256=64 * "a",
            nonce="from Ann",
            notes={"program": "a counter", "bins": 4, "scale": 0.5},
        ),
    )


def played(
    design: Design, key: Key = KEY, *, seed: int = 0, turns: int = 1
) -> Transcript:
    """Guess every canary, three in four of them rightly, some not at all."""
    rng = np.random.default_rng(seed)
    bits = Coins(key=key, count=design.canaries).bits().astype(int)
    right = rng.random(design.canaries) < 0.75
    guess = np.where(right, 2 * bits - 1, 1 - 2 * bits)
    index = np.arange(design.canaries * 9 // 10)  # of the last ones nothing is said
    if not isinstance(design.rules, AdaptiveRounds):
        index = rng.permutation(index)
    rules = design.rules
    referee, left = Referee(design, key), design.guesses
    for turn in range(turns):
        here = index[turn::turns]
        what = guess[here].copy()
        what[rng.random(len(here)) < 0.1] = 0
        stake = None
        if isinstance(rules, AdaptiveRounds):
            stake = rng.choice([0.5, 1.0, 2.0], len(here))
        elif isinstance(rules, AdaptiveBets):
            stake = rng.choice([0.6, 0.7, 0.8], len(here))
        elif isinstance(rules, WeightClasses | AdaptiveClasses):
            stake, what = _slots(rules, what, turns)
        else:
            what[np.flatnonzero(what)[left:]] = 0
            if not rules.adaptive:
                here, what = here[what != 0], what[what != 0]
            left -= int(np.count_nonzero(what))
        referee.submit(here, what, stake)
    return referee.close()


def _slots(
    rules: WeightClasses | AdaptiveClasses, what: np.ndarray, turns: int
) -> tuple[np.ndarray, np.ndarray]:
    """Put guesses into slots, and leave some slots free."""
    stake = np.repeat(rules.weights, [r // turns - 1 for r in rules.guesses])
    stake = np.concatenate([stake, np.zeros(len(what) - len(stake))])
    return stake, np.where(stake > 0, what, 0)


def check(found: Verification, name: str) -> VerificationCheck:
    """Return what a verification says under a name."""
    return next(each for each in found.checks if each.name == name)


def said(found: Verification, finding: VerificationOutcome, words: str) -> bool:
    return any(c.outcome is finding and words in c.sentence for c in found.checks)


def torn(
    registration: Registration,
    result: Result,
    guesses: Transcript | None = None,
    *,
    key: Key | None = KEY,
    redacted: bool = False,
) -> Evidence:
    """Put parts together, whether they belong together or not."""
    return Evidence(
        registration=registration,
        key=key,
        guesses=guesses,
        result=result,
        versions={},
        redacted=redacted,
    )


@cache
def of_game(rules: Rules, *, turns: int = 1, canaries: int = CANARIES) -> Evidence:
    transcript = played(design_of(rules, canaries), turns=turns)
    return of_transcript(transcript)


def of_transcript(transcript: Transcript, key: Key = KEY) -> Evidence:
    referee = Referee(transcript.design, key)
    result = conclude(
        transcript, commitment=referee.commitment, not_exercised=("the sampler",)
    )
    return evidence_of(result, key=key, transcript=transcript)


def training(key: Key = KEY, *, rules: Rules | None = None, noise: float = 0.7):
    """Return the result of an audited loop."""
    design = Design(canaries=CANARIES, rules=rules or OneRun(guesses=20), claim=CLAIM)
    unchecked = ("gradients", "clipping")
    audit = SumsAudit(design=design, key=key, dimension=80, unchecked=unchecked)
    rng = np.random.default_rng(49)
    for _ in range(3):
        total = np.zeros(80)
        total[audit.coordinates] += audit.contributions()
        audit.observe((total + noise * rng.normal(size=80))[audit.coordinates])
    curve = PrivacyCurve(
        epsilons=np.array([0.0, 0.5, 1.0]), deltas=np.array([0.2, 1e-3, 1e-6])
    )
    return audit.finish(claim=curve)


@cache
def of_training() -> Evidence:
    return evidence_of(training(), key=KEY)


@cache
def of_classic() -> Evidence:
    class Count:
        def run(self, data, rng):
            return data.sum() + rng.laplace(scale=0.5)

    claim = PureDP(epsilon=0.5, adjacency=Adjacency.REPLACE_ONE)
    result = audit_classic(
        Count(),
        lambda total: 1 if total > 2.5 else -1,
        base=np.array([1, 1, 0]),
        place=2,
        pair=Pairs(x=0, y=1),
        design=Design(canaries=40, rules=SeparateRuns(guesses=40), claim=claim),
        rng=np.random.default_rng(1),
        key=KEY,
    )
    return evidence_of(result, key=KEY)


def write_scores(folder: Path, *, bits: bool = False, key: Key = KEY) -> list[Path]:
    """Write two files of scores, with ties."""
    rng = np.random.default_rng(5)
    coins = Coins(key=key, count=CANARIES).bits().astype(int)
    scores = np.round(2 * coins + rng.normal(size=CANARIES), 1)
    ids = rng.permutation(CANARIES)
    paths = []
    for part, rows in enumerate(np.array_split(ids, 2)):
        lines = ["id,bit,score" if bits else "id,score"]
        for i in rows:
            lines.append(f"{i},{coins[i]},{scores[i]}" if bits else f"{i},{scores[i]}")
        paths.append(folder / f"scores-{part}.csv")
        paths[-1].write_text("\n".join(lines) + "\n")
    return paths


def of_scores(folder: Path, *, rules: Rules | None = None) -> Evidence:
    """Audit the files in a folder, which are written first."""
    design = design_of(rules or Ranking(guesses=40))
    files = score_files(write_scores(folder))
    table = read_score_files(files, folder)
    result = audit_scores(
        table.ids,
        Coins(key=KEY, count=CANARIES),
        table.scores,
        design=design,
        tie_rng=tie_rng(design, KEY),
    )
    return evidence_of(result, key=KEY, files=files)


# Every kind that needs no folder.
KINDS: dict[str, Callable[[], Evidence]] = {
    "one run": lambda: of_game(OneRun(guesses=30)),
    "ranking": lambda: of_game(Ranking(guesses=30)),
    "classes": lambda: of_game(WeightClasses(weights=(1.0, 2.0), guesses=(20, 20))),
    "adaptive count": lambda: of_game(AdaptiveCount(guesses=40), turns=5),
    "adaptive classes": lambda: of_game(
        AdaptiveClasses(weights=(1.0, 2.0), guesses=(20, 20)), turns=4
    ),
    "rounds": lambda: of_game(AdaptiveRounds(round_weights=(1.0, 1.0, 2.0)), turns=3),
    "rounds with a jump": lambda: of_game(
        AdaptiveRounds(round_weights=(1.0, 1.0), max_jump=1.5, randomness_share=0.1),
        turns=2,
    ),
    "bets": lambda: of_game(AdaptiveBets(), turns=6),
    "training": of_training,
    "classic": of_classic,
    "redacted": lambda: of_game(OneRun(guesses=30)).redact(),
    "redacted training": lambda: of_training().redact(),
}
