"""Whole audits, from coins to verdict, on mechanisms whose privacy is known exactly.

Each case is an auditor, a guesser and a mechanism that satisfies its claim, mostly with
equality. An audit can be wrong in two ways, by refuting the claim and by a lower bound
above the truth; a valid auditor is wrong in either way with chance at most alpha. The
two are one event where guesses are counted, and nearly one where a grid is scanned; the
table shows the more frequent of them. Some guessers only want the audit to be wrong:
they stop when they are ahead, or bet more when they are behind.

The rates are simulated and stand between exact limits, wide enough (Bonferroni over
all rows) that a table of valid audits has a failing row with chance at most
``FALSE_ALARM``.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit.bounds.adaptive import coupling_price
from dpaudit.bounds.claims import test_claim
from dpaudit.bounds.exact import Exact
from dpaudit.bounds.reads import Counts, Reading, Weighted
from dpaudit.engines.store import Outcome, Setting, Store
from dpaudit.engines.sweep import Sweep
from dpaudit.errors import InvalidInputError
from dpaudit.experiments.nulls import Attaining
from dpaudit.game.adaptive import play_adaptive
from dpaudit.game.adaptive_guesser import AdaptiveMostLikely
from dpaudit.game.classic import audit_classic
from dpaudit.game.coins import Coins, Key
from dpaudit.game.design import Design
from dpaudit.game.guessers import (
    Confident,
    Everyone,
    Extremes,
    MostLikely,
    Play,
    Submission,
)
from dpaudit.game.learned import LearnedLoss, learn_loss
from dpaudit.game.one_run import play_one_run
from dpaudit.game.pairs import Pairs
from dpaudit.game.result import AuditResult, judge
from dpaudit.game.rules import (
    AdaptiveBets,
    AdaptiveClasses,
    AdaptiveCount,
    AdaptiveRounds,
    Classes,
    OneRun,
    Ranking,
    Rules,
)
from dpaudit.game.scores import read_scores
from dpaudit.game.transcript import Transcript
from dpaudit.mechanisms.exposure import AllOrNothing, NameAndShame
from dpaudit.mechanisms.local import (
    LocalGaussian,
    LocalLaplace,
    LocalRandomisedResponse,
)
from dpaudit.mechanisms.noise import GaussianNoise, GeometricNoise, LaplaceNoise
from dpaudit.mechanisms.noisy_max import NoisyMax
from dpaudit.mechanisms.parity import XorRandomisedResponse
from dpaudit.mechanisms.sets import CountInSets, count
from dpaudit.privacy.adjacency import Adjacency
from dpaudit.privacy.guarantees import ApproxDP
from dpaudit.stats.binomial import rate_limits

__all__ = [
    "AUDITS_PER_TRIAL",
    "CANARIES",
    "FALSE_ALARM",
    "Row",
    "cases",
    "sweep",
    "table",
    "trial",
]

CANARIES: Final = 100
AUDITS_PER_TRIAL: Final = 200
FALSE_ALARM: Final = 1e-3
_ALPHA: Final = 0.05
_DELTA: Final = 1e-3
_STEP: Final = 0.01  # of the grid of bounds that scan
_START: Final = 1.0  # of rounds and bets where delta has a price
_SCANNED: Final = ("rounds", "limited rounds", "bets")
_PLACE: Final = 1  # which record of a small data set classic auditing exchanges


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Silent:
    """Says nothing: private with epsilon 0."""

    pairs = Pairs(x=0, y=1)

    def run(self, data: NDArray[Any], rng: np.random.Generator) -> None:
        """Return nothing."""

    def log_odds(self, output: None) -> NDArray[np.float64]:  # noqa: ARG002 (silent)
        """Return that nothing is known."""
        return np.zeros(CANARIES)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Attains:
    """Makes one number of right guesses as likely as its claim allows."""

    null: Attaining
    pairs = Pairs(x=np.int8(-1), y=np.int8(1))

    def run(self, data: NDArray[Any], rng: np.random.Generator) -> NDArray[np.int8]:
        """Return signs, of which as many are true as the law says."""
        law = self.null.law()
        right = rng.choice(len(law), p=law / law.sum())
        told = np.array(data)
        told[rng.permutation(len(data))[right:]] *= -1
        return told

    def log_odds(self, output: NDArray[np.int8]) -> NDArray[np.float64]:
        """Return the output's signs as if each were worth its claim."""
        return self.null.claim.epsilon * output.astype(float)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A mechanism and what is exactly true of it."""

    mechanism: Any
    claim: ApproxDP


def _pure(mechanism: Any) -> Subject:  # noqa: ANN401 (any mechanism)
    claim = _claim(mechanism.guarantee.epsilon, 0.0)
    return Subject(mechanism=mechanism, claim=claim)


def _approximate(mechanism: Any, delta: float) -> Subject:  # noqa: ANN401 (any mechanism)
    claim = _claim(mechanism.guarantee.epsilon_at(delta), delta)
    return Subject(mechanism=mechanism, claim=claim)


def _claim(epsilon: float, delta: float) -> ApproxDP:
    return ApproxDP(epsilon=epsilon, delta=delta, adjacency=Adjacency.REPLACE_ONE)


def _seldom(chance: float) -> Subject:
    """Randomised response of epsilon 4, run seldom, under a claim of epsilon 1."""
    inner = LocalRandomisedResponse(epsilon=4.0)
    delta = chance * inner.guarantee.delta_at(1.0)
    mechanism = AllOrNothing(elements=CANARIES, chance=chance, inner=inner)
    return Subject(mechanism=mechanism, claim=_claim(1.0, delta))


def _attaining() -> Subject:
    """The law that spends delta at the least count that refutes its claim."""
    claim = _claim(1.0, 1e-4)
    critical = next(
        v
        for v in range(CANARIES + 1)
        if Exact().log_p_value(
            Counts(canaries=CANARIES, guesses=CANARIES, correct=v),
            epsilon=claim.epsilon,
            delta=claim.delta,
        )
        <= np.log(_ALPHA)
    )
    null = Attaining(claim=claim, canaries=CANARIES, guesses=CANARIES, correct=critical)
    return Subject(mechanism=Attains(null=null), claim=claim)


_N: Final = CANARIES
_SUBJECTS: MappingProxyType[str, Callable[[], Subject]] = MappingProxyType(
    {
        "silent": lambda: Subject(mechanism=Silent(), claim=_claim(0.0, 0.0)),
        "local randomised response": lambda: _pure(
            LocalRandomisedResponse(epsilon=1.0)
        ),
        "local Laplace": lambda: _pure(LocalLaplace(epsilon=1.0)),
        "local Gaussian": lambda: _approximate(LocalGaussian(sigma=1.0), _DELTA),
        "name and shame": lambda: _approximate(NameAndShame(elements=_N), 1 / _N),
        "all or nothing": lambda: _approximate(
            AllOrNothing(elements=_N, chance=0.01), 0.01
        ),
        "seldom randomised response": lambda: _seldom(1e-3),
        "xor randomised response": lambda: _pure(
            XorRandomisedResponse(elements=_N, epsilon=1.0)
        ),
        "count, geometric": lambda: _pure(count(_N, GeometricNoise(epsilon=1.0))),
        "count, Laplace": lambda: _pure(count(_N, LaplaceNoise(epsilon=1.0))),
        "count, Gaussian": lambda: _approximate(
            count(_N, GaussianNoise(sigma=1.0)), _DELTA
        ),
        "sets, geometric": lambda: _pure(
            CountInSets(elements=_N, set_size=5, noise=GeometricNoise(epsilon=1.0))
        ),
        "sets, Gaussian": lambda: _approximate(
            CountInSets(elements=_N, set_size=5, noise=GaussianNoise(sigma=1.0)),
            _DELTA,
        ),
        "noisy max": lambda: _pure(NoisyMax(elements=_N, epsilon=1.0)),
        "attaining": _attaining,
    }
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Weighing:
    """Puts the surest guesses into the heavier of two classes."""

    mechanism: Any
    rules: Classes

    def guess(self, output: Any) -> Submission:  # noqa: ANN401 (any mechanism's)
        """Return the guesses of both classes."""
        best = MostLikely(mechanism=self.mechanism, guesses=sum(self.rules.guesses))
        found = best.guess(output)
        stake = np.repeat(self.rules.weights, self.rules.guesses)
        return Submission(
            index=found.index, guess=found.guess, stake=stake[: len(found.index)]
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Boasting:
    """States larger log-odds than it has: honest ones never exceed a true claim."""

    guesser: AdaptiveMostLikely[Any]

    def play(self, output: Any) -> Play:  # noqa: ANN401 (any mechanism's)
        """Yield what the guesser does, with larger stakes."""
        game, truth = self.guesser.play(output), None
        while True:
            try:
                turn = next(game) if truth is None else game.send(truth)
            except StopIteration:
                return
            assert turn.stake is not None  # in rounds every guess has one
            truth = yield replace(turn, stake=turn.stake + (turn.guess != 0))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """Guesses one by one, bets most when behind, and stops when it looks good."""

    mechanism: Any
    rules: AdaptiveCount | AdaptiveClasses | AdaptiveRounds | AdaptiveBets
    epsilon: float

    def play(self, output: Any) -> Play:  # noqa: ANN401 (any mechanism's)
        """Yield single guesses until ahead of what chance would give."""
        log_odds = self.mechanism.log_odds(output)
        rate = float(special.expit(self.epsilon))
        made, right, slots = 0, 0, self._slots()
        for i in range(self._turns()):
            behind = right <= made * rate
            if right - made * rate > 1.6 * np.sqrt(max(made, 1) * rate * (1 - rate)):
                return
            guess = np.array([1 if log_odds[i] >= 0 else -1], np.int8)
            truth = yield Submission(
                index=np.array([i]),
                guess=guess,
                stake=self._stake(slots, behind=behind),
            )
            made, right = made + 1, right + int(truth[0] == guess[0])

    def _turns(self) -> int:
        match self.rules:
            case AdaptiveCount(guesses=guesses):
                return guesses
            case AdaptiveClasses(guesses=slots):
                return sum(slots)
            case AdaptiveRounds(weights=weights):
                return len(weights)
            case AdaptiveBets():
                return CANARIES

    def _slots(self) -> list[float]:
        if not isinstance(self.rules, AdaptiveClasses):
            return []
        return sorted(np.repeat(self.rules.weights, self.rules.guesses).tolist())

    def _stake(self, slots: list[float], *, behind: bool) -> NDArray[np.float64] | None:
        match self.rules:
            case AdaptiveCount():
                return None
            case AdaptiveClasses():
                return np.array([slots.pop(-1 if behind else 0)])
            case AdaptiveRounds():
                return np.array([self.epsilon + (2.0 if behind else 0.3)])
            case AdaptiveBets():
                odds = float(special.expit(self.epsilon + (2.0 if behind else 0.3)))
                return np.array([odds])


_ONE_RUN: MappingProxyType[str, Rules] = MappingProxyType(
    {
        "everyone": OneRun(guesses=_N),
        "the 20 best": OneRun(guesses=20),
        "confident": OneRun(guesses=40),
        "extremes": OneRun(guesses=20),
        "learned": OneRun(guesses=20),
        "ranked": Ranking(guesses=_N),
        "weighed": Classes(weights=(3.0, 1.0), guesses=(10, 15)),
    }
)
_ADAPTIVE: MappingProxyType[str, Rules] = MappingProxyType(
    {
        "count": AdaptiveCount(guesses=40),
        "classes": AdaptiveClasses(weights=(1.0, 2.0), guesses=(10, 10)),
        "rounds": AdaptiveRounds(weights=(1.0, 1.0, 1.0)),
        "limited rounds": AdaptiveRounds(weights=(1.0,) * 4, jump=0.5, noise=0.05),
        "bets": AdaptiveBets(),
    }
)
_STOPPED: MappingProxyType[str, Rules] = MappingProxyType(
    {
        "count": AdaptiveCount(guesses=_N),
        "classes": AdaptiveClasses(weights=(1.0, 3.0), guesses=(20, 20)),
        "rounds": AdaptiveRounds(weights=(1.0,) * 8),
        "limited rounds": AdaptiveRounds(weights=(1.0,) * 8, jump=0.5, noise=0.05),
        "bets": AdaptiveBets(),
    }
)
_SCORED: MappingProxyType[str, Rules] = MappingProxyType(
    {"the 20 best": OneRun(guesses=20), "ranked": Ranking(guesses=_N)}
)
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
        "local randomised response": lambda o: int(o[_PLACE]),
        "local Laplace": lambda o: 1 if o[_PLACE] > 0 else -1,
        "local Gaussian": lambda o: 1 if o[_PLACE] > 0.5 else -1,
        "xor randomised response": lambda o: 1 if o == 0 else -1,
        "count, geometric": lambda o: 1 if o[0] >= 2 else -1,
        "count, Laplace": lambda o: 1 if o[0] > 1.5 else -1,
        "count, Gaussian": lambda o: 1 if o[0] > 1.5 else -1,
    }
)
_SMALL: MappingProxyType[str, Any] = MappingProxyType(
    {
        "local randomised response": LocalRandomisedResponse(epsilon=1.0),
        "local Laplace": LocalLaplace(epsilon=1.0),
        "local Gaussian": LocalGaussian(sigma=1.0),
        "xor randomised response": XorRandomisedResponse(elements=3, epsilon=1.0),
        "count, geometric": count(3, GeometricNoise(epsilon=1.0)),
        "count, Laplace": count(3, LaplaceNoise(epsilon=1.0)),
        "count, Gaussian": count(3, GaussianNoise(sigma=1.0)),
    }
)


def cases() -> list[dict[str, str]]:
    """Return every auditor, guesser and mechanism that go together."""
    return [
        {"auditor": auditor, "guesser": guesser, "mechanism": mechanism}
        for auditor, guesser, mechanism in _triples()
    ]


def _triples() -> Iterator[tuple[str, str, str]]:
    for name, subject in _SUBJECTS.items():
        for guesser in _ONE_RUN:
            if not (name == "silent" and guesser == "learned"):
                yield "one run", guesser, name
        if hasattr(subject().mechanism, "posterior"):
            for guesser in _ADAPTIVE:
                if _is_playable(guesser, subject().claim):
                    yield "adaptive", guesser, name
        if name in _SEEN_THROUGH:
            for guesser in _STOPPED:
                yield "adaptive", f"stopping, {guesser}", name
        for guesser in _SCORED:
            yield "scores", guesser, name
    for name in _CLASSIC:
        yield "classic", "likelier", name


def _is_playable(guesser: str, claim: ApproxDP) -> bool:
    """Return whether delta leaves anything of alpha; a design is refused otherwise."""
    price = coupling_price(CANARIES, _START, claim.delta)
    return guesser not in _SCANNED or price < _ALPHA


def trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Play some audits of one case, and count those that are wrong."""
    subject = _subject(str(setting["mechanism"]))
    play = _player(setting, subject, rng)
    verdicts = [play() for _ in range(int(setting["audits"] or 0))]
    return {
        "wrong": sum(v.refuted or v.above for v in verdicts),
        "refuted": sum(v.refuted for v in verdicts),
        "above": sum(v.above for v in verdicts),
    }


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """In which ways an audit of a true claim was wrong."""

    refuted: bool
    above: bool


def _verdict(reading: Reading, design: Design) -> Verdict:
    """Judge a game as ``judge`` does, but only as far as it can be wrong.

    Where the bound is the last point of a grid before the first that is not rejected,
    it lies above the truth only if the first point at or above the truth is rejected:
    that is one test instead of a scan, and says "above" no less often than the scan.
    """
    claim = design.claim
    assert isinstance(claim, ApproxDP)
    if isinstance(reading, Counts | Weighted):
        found = judge(reading, design=design, commitment=None)
        return _of(found, claim)
    test = test_claim(claim, reading, alpha=design.alpha)
    next_point = float(np.ceil(claim.epsilon / _STEP - 1e-9) * _STEP)
    if next_point <= claim.epsilon:
        return Verdict(refuted=test.refuted, above=test.refuted)
    at_grid = replace(claim, epsilon=next_point)
    above = test_claim(at_grid, reading, alpha=design.alpha)
    return Verdict(refuted=test.refuted, above=above.refuted)


def _of(result: AuditResult, claim: ApproxDP) -> Verdict:
    above = result.bound.epsilon_lower > claim.epsilon * (1 + 1e-12)
    return Verdict(refuted=result.claim_test.refuted, above=above)


@cache
def _subject(name: str) -> Subject:
    return _SUBJECTS[name]()


@cache
def _learned(name: str) -> LearnedLoss[Any]:
    mechanism = _subject(name).mechanism
    runs = 40
    return learn_loss(
        mechanism,
        pairs=mechanism.pairs,
        canaries=CANARIES,
        runs=runs,
        rng=np.random.default_rng(0),
    )


def _player(
    setting: Setting, subject: Subject, rng: np.random.Generator
) -> Callable[[], Verdict]:
    guesser = str(setting["guesser"])
    match setting["auditor"]:
        case "one run":
            return lambda: _one_run(guesser, str(setting["mechanism"]), rng)
        case "adaptive":
            return lambda: _adaptive(guesser, subject, rng)
        case "classic":
            return lambda: _classic(str(setting["mechanism"]), subject, rng)
        case "scores":
            return lambda: _scores(guesser, subject, rng)
        case other:
            raise InvalidInputError(f"there is no auditor {other!r}")


def _design(rules: Rules, claim: ApproxDP) -> Design:
    return Design(canaries=CANARIES, rules=rules, claim=claim, alpha=_ALPHA)


def _one_run(name: str, mechanism_name: str, rng: np.random.Generator) -> Verdict:
    subject, rules = _subject(mechanism_name), _ONE_RUN[name]
    mechanism = subject.mechanism
    guesser: Any
    match name:
        case "everyone":
            guesser = Everyone(mechanism=mechanism)
        case "confident":
            guesser = Confident(mechanism=mechanism, threshold=0.5, guesses=40)
        case "extremes":
            guesser = Extremes(score=mechanism.log_odds, top=10, bottom=10)
        case "learned":
            guesser = MostLikely(mechanism=_learned(mechanism_name), guesses=20)
        case "weighed":
            assert isinstance(rules, Classes)
            guesser = Weighing(mechanism=mechanism, rules=rules)
        case _:
            guesses = _N if name == "ranked" else 20
            guesser = MostLikely(mechanism=mechanism, guesses=guesses)
    return _judged(play_one_run, guesser, subject, rules, rng)


def _adaptive(name: str, subject: Subject, rng: np.random.Generator) -> Verdict:
    mechanism = subject.mechanism
    stops, kind = name.startswith("stopping"), name.rpartition(", ")[2]
    rules: Any = _STOPPED[kind] if stops else _ADAPTIVE[kind]
    if subject.claim.delta and kind in _SCANNED:
        rules = replace(rules, start=_START)
    guesser: Any = AdaptiveMostLikely(mechanism=mechanism, threshold=0.5, rules=rules)
    if isinstance(rules, AdaptiveRounds):
        guesser = Boasting(guesser=guesser)
    if stops:
        guesser = Stopping(
            mechanism=mechanism, rules=rules, epsilon=subject.claim.epsilon
        )
    return _judged(play_adaptive, guesser, subject, rules, rng)


def _judged(
    play: Callable[..., Transcript],
    guesser: Any,  # noqa: ANN401 (any guesser)
    subject: Subject,
    rules: Rules,
    rng: np.random.Generator,
) -> Verdict:
    """Play one game with a new key, and judge it."""
    design = _design(rules, subject.claim)
    transcript = play(
        subject.mechanism,
        guesser,
        pairs=subject.mechanism.pairs,
        design=design,
        rng=rng,
        key=Key(rng.bytes(32)),
    )
    return _verdict(transcript.reading(), design)


def _classic(name: str, subject: Subject, rng: np.random.Generator) -> Verdict:
    mechanism = _SMALL[name]
    pair = mechanism.pairs
    found = audit_classic(
        mechanism,
        _CLASSIC[name],
        base=pair.choose(np.array([1, 0, 0])),
        place=_PLACE,
        pair=pair,
        design=_design(OneRun(guesses=_N), subject.claim),
        rng=rng,
        key=Key(rng.bytes(32)),
    )
    return _of(found, subject.claim)


def _scores(name: str, subject: Subject, rng: np.random.Generator) -> Verdict:
    mechanism = subject.mechanism
    coins = Coins(key=Key(rng.bytes(32)), count=CANARIES)
    output = mechanism.run(mechanism.pairs.choose(coins.bits()), rng)
    design = _design(_SCORED[name], subject.claim)
    reading = read_scores(
        np.arange(CANARIES),
        coins,
        mechanism.log_odds(output),
        design=design,
        tie_rng=rng,
    )
    return _verdict(reading, design)


def sweep(chosen: Sequence[dict[str, str]], *, audits: int) -> Sweep:
    """Return the simulations that a table of these cases needs.

    Args:
        chosen: Some of ``cases()``.
        audits: Audits of each, a multiple of ``AUDITS_PER_TRIAL``.
    """
    if audits < AUDITS_PER_TRIAL or audits % AUDITS_PER_TRIAL:
        raise InvalidInputError(
            f"audits must be a multiple of {AUDITS_PER_TRIAL}, got audits={audits}"
        )
    return Sweep(
        name="whole audits",
        revision=2,  # rounds are judged by stated log-odds
        function=trial,
        settings=[{**case, "audits": AUDITS_PER_TRIAL} for case in chosen],
        trials=audits // AUDITS_PER_TRIAL,
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """How often the audits of one case were wrong.

    Attributes:
        auditor: Which auditor.
        guesser: Which guesser.
        mechanism: Which mechanism.
        claim: What is exactly true of it.
        audits: How many were played.
        wrong: How many refuted the claim, or how many gave a bound above the truth,
            whichever is more.
        low: Lower limit of the rate.
        high: Upper limit of the rate.
    """

    auditor: str
    guesser: str
    mechanism: str
    claim: ApproxDP
    audits: int
    wrong: int
    low: float
    high: float

    @property
    def fails(self) -> bool:
        """Whether the audit is shown to be wrong more often than it promises."""
        return self.low > _ALPHA


def table(chosen: Sequence[dict[str, str]], store: Store, *, audits: int) -> list[Row]:
    """Return the rows of a table from what a store holds."""
    planned = sweep(chosen, audits=audits)
    level = FALSE_ALARM / len(planned.settings)  # two rates a row, one side of each
    rows = []
    for case, setting in zip(chosen, planned.settings, strict=True):
        found = list(store.outcomes(planned.cell(setting)))[: planned.trials]
        played = AUDITS_PER_TRIAL * len(found)
        wrong = max(
            sum(int(outcome[way]) for outcome in found) for way in ("refuted", "above")
        )
        low, high = rate_limits(wrong, played, alpha=level)
        claim = _subject(case["mechanism"]).claim
        rows.append(
            Row(**case, claim=claim, audits=played, wrong=wrong, low=low, high=high)
        )
    return rows
