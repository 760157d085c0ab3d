"""Whole audits, from coins to verdict, on mechanisms whose privacy is known exactly.

Each case is an auditor, a guesser and a mechanism that satisfies its claim, mostly with
equality. An audit can be wrong in two ways, by refuting the claim and by a lower bound
above the truth; a valid auditor is wrong in either way with chance at most alpha. The
two are one event where guesses are counted, and nearly one where a grid is scanned; the
table shows the more frequent of them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Any, Final, final

import numpy as np

from dpaudit.bounds.adaptive import coupling_failure_probability
from dpaudit.bounds.methods import judge_claim
from dpaudit.bounds.readings import Counts, Reading, Weighted
from dpaudit.errors import InvalidInputError
from dpaudit.game.auditors import audit_classic, play_adaptive, play_one_run
from dpaudit.game.coins import Coins
from dpaudit.game.design import Design
from dpaudit.game.guessers import (
    AdaptiveMostLikely,
    Confident,
    Everyone,
    Extremes,
    MostLikely,
)
from dpaudit.game.learned_log_odds import LearnedLogOdds, fit_log_odds
from dpaudit.game.result import Result, judge
from dpaudit.game.rules import (
    AdaptiveBets,
    AdaptiveRounds,
    Rules,
    SeparateRuns,
    WeightClasses,
)
from dpaudit.game.scores import reading_of_scores
from dpaudit.game.transcript import Transcript
from dpaudit.privacy.guarantees import ApproxDP
from dpaudit.testing import fixed_key
from dpaudit_lab.calibration.guessers import (
    ADAPTIVE,
    ONE_RUN,
    SCORED,
    STOPPED,
    TRAINED,
    Boasting,
    Stopping,
    StoppingLate,
    Weighing,
)
from dpaudit_lab.calibration.subjects import (
    ALPHA,
    CANARIES,
    PLACE,
    SUBJECTS,
    TRAININGS,
    Subject,
    small_mechanism,
    subject,
)
from dpaudit_lab.sweeps.store import Outcome, Setting

__all__ = ["AUDITS_PER_TRIAL", "WholeCase", "trial", "whole_cases"]

AUDITS_PER_TRIAL: Final = 200
_STEP: Final = 0.01  # of the grid of bounds that scan
_START: Final = 1.0  # of rounds and bets where delta has a price
_SCANNED: Final = ("rounds", "limited rounds", "bets")
_TRAINED_THRESHOLD: Final = 2.0  # log-odds that are worth a guess about training

# A guesser that stops when ahead looks at revealed coins, hardly at the output.
_SEEN_THROUGH: Final = (
    "silent",
    "local randomised response",
    "xor randomised response",
    "sets, geometric",
    "attaining",
)
# How to guess the middle one of three records, the others being 1 and 0.
_CLASSIC: MappingProxyType[str, Callable[[Any], int]] = MappingProxyType(
    {
        "local randomised response": lambda o: int(o[PLACE]),
        "local Laplace": lambda o: 1 if o[PLACE] > 0 else -1,
        "local Gaussian": lambda o: 1 if o[PLACE] > 0.5 else -1,
        "xor randomised response": lambda o: 1 if o == 0 else -1,
        "count, geometric": lambda o: 1 if o[0] >= 2 else -1,
        "count, Laplace": lambda o: 1 if o[0] > 1.5 else -1,
        "count, Gaussian": lambda o: 1 if o[0] > 1.5 else -1,
    }
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WholeCase:
    """An auditor, a guesser and a mechanism, by their names.

    Attributes:
        auditor: How it is audited.
        guesser: Who guesses.
        mechanism: What is audited.
    """

    auditor: str
    guesser: str
    mechanism: str

    def setting(self) -> dict[str, str | int]:
        """Return what names the case in a store."""
        return {
            "auditor": self.auditor,
            "guesser": self.guesser,
            "mechanism": self.mechanism,
            "audits": AUDITS_PER_TRIAL,
        }


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """In which ways an audit of a true claim was wrong."""

    refuted: bool
    above: bool


def whole_cases() -> list[WholeCase]:
    """Return every auditor, guesser and mechanism that go together."""
    return [
        WholeCase(auditor=auditor, guesser=guesser, mechanism=mechanism)
        for auditor, guesser, mechanism in _triples()
    ]


def _triples() -> Iterator[tuple[str, str, str]]:
    for name in SUBJECTS:
        for guesser in ONE_RUN:
            if not (name == "silent" and guesser == "learned"):
                yield "one run", guesser, name
        if hasattr(subject(name).mechanism, "posterior"):
            for guesser in ADAPTIVE:
                if _is_playable(guesser, subject(name).claim):
                    yield "adaptive", guesser, name
        if name in _SEEN_THROUGH:
            for guesser in STOPPED:
                yield "adaptive", guesser, name
        for guesser in SCORED:
            yield "scores", guesser, name
    for name in _CLASSIC:
        yield "classic", "likelier", name
    for (auditor, guesser), (_, trainings) in TRAINED.items():
        for training in trainings:
            yield auditor, guesser, training


def _is_playable(guesser: str, claim: ApproxDP) -> bool:
    """Return whether delta leaves anything of alpha; a design is refused otherwise."""
    price = coupling_failure_probability(CANARIES, _START, claim.delta)
    return guesser not in _SCANNED or price < ALPHA


def trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Play some audits of one case, and count those that are wrong."""
    case = WholeCase(
        auditor=str(setting["auditor"]),
        guesser=str(setting["guesser"]),
        mechanism=str(setting["mechanism"]),
    )
    play = _player(case)
    verdicts = [play(rng) for _ in range(int(setting["audits"] or 0))]
    return {
        "wrong": sum(v.refuted or v.above for v in verdicts),
        "refuted": sum(v.refuted for v in verdicts),
        "above": sum(v.above for v in verdicts),
    }


def _player(case: WholeCase) -> Callable[[np.random.Generator], Verdict]:
    audited = subject(case.mechanism)
    match case.auditor:
        case "one run":
            return lambda rng: _one_run(case, audited, rng)
        case "adaptive":
            return lambda rng: _adaptive(case, audited, rng)
        case "classic":
            return lambda rng: _classic(case, audited, rng)
        case "scores":
            return lambda rng: _scores(case, audited, rng)
        case other:
            raise InvalidInputError(f"there is no auditor {other!r}")


def _verdict(reading: Reading, design: Design) -> Verdict:
    """Judge a game as ``judge`` does, but only as far as it can be wrong.

    Where the bound is the last point of a grid before the first that is not rejected,
    it lies above the truth only if the first point at or above the truth is rejected:
    that is one test instead of a scan, and says "above" no less often than the scan.
    """
    claim = design.claim
    assert isinstance(claim, ApproxDP)
    if isinstance(reading, Weighted):
        reading = _heavy_first(reading)
    if isinstance(reading, Counts | Weighted):
        found = judge(reading, design=design, commitment=None)
        return _of(found, claim)
    bound = design.rules.bound()
    test = judge_claim(claim, reading, alpha=design.alpha, bound=bound)
    next_point = float(np.ceil(claim.epsilon / _STEP - 1e-9) * _STEP)
    if next_point <= claim.epsilon:
        return Verdict(refuted=test.refuted, above=test.refuted)
    at_grid = replace(claim, epsilon=next_point)
    above = judge_claim(at_grid, reading, alpha=design.alpha, bound=bound)
    return Verdict(refuted=test.refuted, above=above.refuted)


def _heavy_first(reading: Weighted) -> Weighted:
    """Return the same weight, with right guesses in heavy classes where they fit.

    All that is judged of whole-number weights, of which one is 1, is their sum; so the
    verdicts are few, and found in a table.
    """
    left, correct = round(reading.score), [0] * len(reading.weights)
    for c in sorted(range(len(correct)), key=lambda c: -reading.weights[c]):
        correct[c] = min(reading.guesses[c], left // round(reading.weights[c]))
        left -= correct[c] * round(reading.weights[c])
    return replace(reading, correct=tuple(correct), abstained=())


def _of(result: Result, claim: ApproxDP) -> Verdict:
    above = result.bound.epsilon_lower > claim.epsilon * (1 + 1e-12)
    return Verdict(refuted=result.claim_test.refuted, above=above)


@cache
def _learned(name: str) -> LearnedLogOdds[Any]:
    mechanism = subject(name).mechanism
    return fit_log_odds(
        mechanism,
        pairs=mechanism.pairs,
        canaries=CANARIES,
        runs=40,
        rng=np.random.default_rng(0),
    )


@cache
def _design(rules: Rules, claim: ApproxDP, canaries: int) -> Design:
    return Design(canaries=canaries, rules=rules, claim=claim, alpha=ALPHA)


def _one_run(case: WholeCase, audited: Subject, rng: np.random.Generator) -> Verdict:
    mechanism, rules = audited.mechanism, _one_run_rules(case)
    guesser: Any
    match case.guesser:
        case "everyone":
            guesser = Everyone(mechanism=mechanism)
        case "confident":
            guesser = Confident(mechanism=mechanism, threshold=0.5, guesses=40)
        case "extremes":
            guesser = Extremes(score=mechanism.log_odds, top=10, bottom=10)
        case "learned":
            guesser = MostLikely(mechanism=_learned(case.mechanism), guesses=20)
        case "weighed":
            assert isinstance(rules, WeightClasses)
            guesser = Weighing(mechanism=mechanism, rules=rules)
        case _:
            guesses = rules.max_guesses(audited.canaries)
            guesser = MostLikely(mechanism=mechanism, guesses=guesses)
    return _judged(play_one_run, guesser, audited, rules, rng)


def _one_run_rules(case: WholeCase) -> Rules:
    if case.mechanism in TRAININGS:
        return TRAINED[case.auditor, case.guesser][0]
    return ONE_RUN[case.guesser]


def _adaptive(case: WholeCase, audited: Subject, rng: np.random.Generator) -> Verdict:
    mechanism, claim = audited.mechanism, audited.claim
    rules: Any = STOPPED.get(case.guesser) or ADAPTIVE[case.guesser]
    threshold, start = 0.5, _START
    if case.mechanism in TRAININGS:
        rules = TRAINED[case.auditor, case.guesser][0]
        threshold, start = _TRAINED_THRESHOLD, claim.epsilon
    if claim.delta and isinstance(rules, AdaptiveRounds | AdaptiveBets):
        rules = replace(rules, min_epsilon=start)
    guesser: Any = AdaptiveMostLikely(
        mechanism=mechanism, threshold=threshold, rules=rules
    )
    if isinstance(rules, AdaptiveRounds):
        guesser = Boasting(guesser=guesser)
    if case.guesser in STOPPED:
        late = case.guesser.startswith("stopping late")
        guesser = (StoppingLate if late else Stopping)(
            mechanism=mechanism,
            rules=rules,
            epsilon=claim.epsilon,
            canaries=audited.canaries,
        )
    return _judged(play_adaptive, guesser, audited, rules, rng)


def _judged(
    play: Callable[..., Transcript],
    guesser: Any,  # noqa: ANN401 (any guesser)
    audited: Subject,
    rules: Rules,
    rng: np.random.Generator,
) -> Verdict:
    """Play one game with a new key, and judge it."""
    design = _design(rules, audited.claim, audited.canaries)
    transcript = play(
        audited.mechanism,
        guesser,
        pairs=audited.mechanism.pairs,
        design=design,
        rng=rng,
        key=fixed_key(rng.bytes(32)),
    )
    return _verdict(transcript.reading(), design)


def _classic(case: WholeCase, audited: Subject, rng: np.random.Generator) -> Verdict:
    mechanism = _small(case.mechanism)
    pair = mechanism.pairs
    found = audit_classic(
        mechanism,
        _CLASSIC[case.mechanism],
        base=pair.choose(np.array([1, 0, 0])),
        place=PLACE,
        pair=pair,
        design=_design(SeparateRuns(guesses=CANARIES), audited.claim, CANARIES),
        rng=rng,
        key=fixed_key(rng.bytes(32)),
    )
    return _of(found, audited.claim)


@cache
def _small(name: str) -> Any:  # noqa: ANN401 (any mechanism)
    return small_mechanism(name)


def _scores(case: WholeCase, audited: Subject, rng: np.random.Generator) -> Verdict:
    mechanism = audited.mechanism
    coins = Coins(key=fixed_key(rng.bytes(32)), count=CANARIES)
    output = mechanism.run(mechanism.pairs.choose(coins.bits()), rng)
    design = _design(SCORED[case.guesser], audited.claim, CANARIES)
    reading = reading_of_scores(
        np.arange(CANARIES),
        coins,
        mechanism.log_odds(output),
        design=design,
        tie_rng=rng,
    )
    return _verdict(reading, design)
