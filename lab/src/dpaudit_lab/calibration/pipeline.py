"""The pipeline: every public road to a verdict, where ties and edges could decide it.

A bound may be valid and a verdict still wrong: between them lie orders, lots, files and
shards. So whole roads (``roads``) are walked with scores that are all equal or have two
values, with two to ten canaries, with lists of any lengths, in shards, and under seeds
that the design fixed. Mechanisms satisfy their claims with equality.

**The level holds for each design.** A seed for ties is part of a design, and public. An
audit that is wrong in 5 % of cases on average over seeds may be wrong in all cases with
seed 7. So a row with seeds is about the worst of many designs. For that no chance may
be estimated, as the largest of many estimates is too large; it is summed: over every
vector of coins and every output, if there are few canaries; or, on roads that see no
ids, over how many coins are ones. Where a key decides between equal scores its lots are
as random as its coins, and audits are drawn; so they are where sums would be too long,
with a seed that the row names.

An audit that is refused does not refute. How often that happens is part of the row: a
road that refuses everything was not tested.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from itertools import product
from math import prod
from types import MappingProxyType
from typing import Final, Protocol, final

import numpy as np
from scipy import special

from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.coins import Coins, Key
from dpaudit.game.design import Design
from dpaudit.game.rules import (
    AdaptiveBets,
    AdaptiveClasses,
    AdaptiveCount,
    AdaptiveRounds,
    OneRun,
    Ranking,
    Rules,
    WeightClasses,
)
from dpaudit.game.setting import Setting as DesignSetting
from dpaudit.privacy.guarantees import Adjacency, ApproxDP, GaussianDP
from dpaudit.stats.binomial import masses
from dpaudit.testing import fixed_key
from dpaudit_lab.calibration.roads import (
    AS_IT_WAS,
    ROADS,
    Bits,
    Material,
    Road,
    Scores,
)
from dpaudit_lab.power.task import draw_number
from dpaudit_lab.sweeps.store import Outcome, Setting

__all__ = ["AUDITS_PER_TRIAL", "PipelineCase", "Way", "pipeline_cases", "trial"]

AUDITS_PER_TRIAL: Final = 20
_SMALL: Final = 30  # canaries
_SPREAD: Final = 8.0  # standard deviations of numbers of ones; 1e-15 lies beyond


class Way(StrEnum):
    """How the chance of being wrong is found."""

    COINS = "all coins"
    ONES = "all numbers of ones"
    DRAWN = "drawn"


class Null(Protocol):
    """A mechanism, and what is exactly true of it."""

    @property
    def claim(self) -> ApproxDP:
        """What it satisfies."""
        ...

    def law(self, bits: Bits) -> Iterator[tuple[float, Scores]]:
        """Yield what it may say of these coins, each with its chance."""
        ...

    def draw(self, bits: Bits, rng: np.random.Generator) -> Scores:
        """Return what it says of these coins."""
        ...


def _claim(epsilon: float, delta: float = 0.0) -> ApproxDP:
    return ApproxDP(epsilon=epsilon, delta=delta, adjacency=Adjacency.REPLACE_ONE)


@final
@dataclass(frozen=True, slots=True)
class _Silent:
    """Gives scores that know nothing of the coins."""

    scores: Callable[[int], Scores]
    claim = _claim(0.0)

    def law(self, bits: Bits) -> Iterator[tuple[float, Scores]]:
        yield 1.0, self.scores(len(bits))

    def draw(self, bits: Bits, rng: np.random.Generator) -> Scores:  # noqa: ARG002
        return self.scores(len(bits))


@final
@dataclass(frozen=True, slots=True)
class _Response:
    """Answers each coin with the odds of its claim: scores of two values."""

    epsilon: float

    @property
    def claim(self) -> ApproxDP:
        return _claim(self.epsilon)

    def law(self, bits: Bits) -> Iterator[tuple[float, Scores]]:
        truth = 2.0 * bits - 1.0
        for signs in product((-1.0, 1.0), repeat=len(bits)):
            said = np.array(signs)
            yield prod(special.expit(self.epsilon * said * truth).tolist()), said

    def draw(self, bits: Bits, rng: np.random.Generator) -> Scores:
        truth = 2.0 * bits - 1.0
        true = rng.random(len(bits)) < special.expit(self.epsilon)
        return np.where(true, truth, -truth)


@final
@dataclass(frozen=True, slots=True)
class _Leak:
    """Publishes the coins of each block with chance delta, one block at most.

    What it does not publish has one score, between those of the coins that it does.
    """

    delta: float
    blocks: int = 1

    @property
    def claim(self) -> ApproxDP:
        return _claim(0.0, self.delta)

    def law(self, bits: Bits) -> Iterator[tuple[float, Scores]]:
        yield 1.0 - self.delta * self.blocks, np.zeros(len(bits))
        for block in range(self.blocks):
            yield self.delta, self._told(bits, block)

    def draw(self, bits: Bits, rng: np.random.Generator) -> Scores:
        block = int(rng.random() / self.delta)
        if block >= self.blocks:
            return np.zeros(len(bits))
        return self._told(bits, block)

    def _told(self, bits: Bits, block: int) -> Scores:
        mine = np.arange(len(bits)) * self.blocks // len(bits) == block
        return np.where(mine, 2.0 * bits - 1.0, 0.0)


@final
@dataclass(frozen=True, slots=True)
class _Noise:
    """Adds noise to each coin: exactly 1-GDP, claimed at one delta."""

    delta: float

    @property
    def claim(self) -> ApproxDP:
        curve = GaussianDP(mu=1.0, adjacency=Adjacency.REPLACE_ONE)
        return _claim(curve.epsilon_at(self.delta), self.delta)

    def law(self, bits: Bits) -> Iterator[tuple[float, Scores]]:
        raise InvalidInputError(f"{len(bits)} real numbers have no list of outputs")

    def draw(self, bits: Bits, rng: np.random.Generator) -> Scores:
        return bits + rng.normal(size=len(bits))


_EQUAL: Final = "silent, all equal"
_TWO: Final = "silent, two values"
_WORST: Final = "silent, the worst two values"
_IDS: Final = "silent, scores are ids"
_RESPONSE: Final = "randomised response"
_LEAK: Final = "leak of all coins"
_BLOCKS: Final = "leak of a block"
_NOISE: Final = "Gaussian noise"

_NULLS: Final[MappingProxyType[str, Null]] = MappingProxyType(
    {
        _EQUAL: _Silent(np.zeros),
        _TWO: _Silent(lambda n: np.arange(n, dtype=np.float64) % 2 - 0.5),
        _IDS: _Silent(lambda n: np.arange(n, dtype=np.float64) - n / 2 + 0.25),
        _RESPONSE: _Response(1.0),
        _LEAK: _Leak(0.03),
        _BLOCKS: _Leak(0.01, blocks=3),
        _NOISE: _Noise(0.01),
    }
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineCase:
    """A road, rules, a null, and how its chance of being wrong is found.

    Attributes:
        road: Which road, by its name.
        rules: The rules of its design, by their name.
        null: What is audited, by its name.
        canaries: Canaries in each audit.
        alpha: The level that is promised.
        way: How the chance is found.
        trials: Of sums the designs, one for each seed for ties from 0; of what is
            drawn how many times some audits.
        seed: For ties, where audits are drawn.
    """

    road: str
    rules: str
    null: str
    canaries: int
    alpha: float
    way: Way
    trials: int
    seed: int = 0

    @property
    def ours(self) -> bool:
        """Whether it is dpaudit as it is."""
        return self.road in ROADS

    @property
    def small(self) -> bool:
        """Whether it belongs to a small table: equal scores of few canaries."""
        few = self.canaries <= _SMALL and self.null == _EQUAL
        slow = self.rules in ("classes", "slots", "bets")
        return few and not slow and (self.rules != "ranked" or self.way is Way.ONES)

    @property
    def claim(self) -> ApproxDP:
        """What is true of the null."""
        return _nulls(self.null, self.canaries)[0].claim

    def setting(self) -> dict[str, str | int | float]:
        """Return what names the case in a store."""
        return {
            "road": self.road,
            "rules": self.rules,
            "null": self.null,
            "canaries": self.canaries,
            "alpha": self.alpha,
            "way": self.way,
            "seed": self.seed,
            "audits": AUDITS_PER_TRIAL,
        }


@cache
def _design(case: PipelineCase, seed: int) -> Design:
    """Return the design of a case with a seed for ties."""
    return Design(
        canaries=case.canaries,
        rules=_rules(case.rules, case.canaries),
        claim=case.claim,
        alpha=case.alpha,
        setting=DesignSetting(tie_seed=seed),
    )


def _rules(name: str, n: int) -> Rules:
    half = n // 2
    named: dict[str, Callable[[], Rules]] = {
        "all": lambda: OneRun(guesses=n),
        "half": lambda: OneRun(guesses=half),
        "tenth": lambda: OneRun(guesses=n // 10),
        "ranked": lambda: Ranking(guesses=n),
        "classes": lambda: WeightClasses(weights=(2.0, 1.0), guesses=(half, n - half)),
        "count": lambda: AdaptiveCount(guesses=n),
        "slots": lambda: AdaptiveClasses(weights=(2.0, 1.0), guesses=(half, n - half)),
        "rounds": lambda: AdaptiveRounds(round_weights=(1.0, 1.0)),
        "bets": AdaptiveBets,
    }
    return named[name]()


def _nulls(name: str, canaries: int) -> list[Null]:
    """Return the null of a name; of the worst all that it is the worst of."""
    if name != _WORST:
        return [_NULLS[name]]
    return [_pattern(each) for each in product((-1.0, 1.0), repeat=canaries)]


def _pattern(scores: tuple[float, ...]) -> Null:
    return _Silent(lambda _canaries: np.array(scores))


def trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Audit one case under one design, over all coins or as often as it says.

    Returns:
        How often its claim was refuted, and how often the audit was refused: chances
        if they are sums, or else numbers of audits.
    """
    case = PipelineCase(
        road=str(setting["road"]),
        rules=str(setting["rules"]),
        null=str(setting["null"]),
        canaries=int(setting["canaries"] or 0),
        alpha=float(setting["alpha"] or 0),
        way=Way(str(setting["way"])),
        trials=1,
        seed=int(setting["seed"] or 0),
    )
    road = {**ROADS, **AS_IT_WAS}[case.road]
    if case.way is not Way.DRAWN:
        return _summed(case, road, _design(case, draw_number(rng)), rng)
    found = [_drawn(case, road, rng) for _ in range(int(setting["audits"] or 0))]
    return {"refuted": found.count(True), "refused": found.count(None)}


def _verdict(road: Road, given: Material) -> bool | None:
    """Return whether the claim is refuted; None if the audit is refused."""
    try:
        return road(given)
    except InvalidRunError:
        return None


def _drawn(case: PipelineCase, road: Road, rng: np.random.Generator) -> bool | None:
    key = fixed_key(rng.bytes(32))
    bits = Coins(key=key, count=case.canaries).bits()
    (null,) = _nulls(case.null, case.canaries)
    given = Material(
        design=_design(case, case.seed),
        key=key,
        bits=bits,
        scores=null.draw(bits, rng),
        mechanism=null.draw,
        rng=rng,
    )
    return _verdict(road, given)


def _summed(
    case: PipelineCase, road: Road, design: Design, rng: np.random.Generator
) -> Outcome:
    """Return the exact chances, of the worst null if there are several."""
    outcomes = []
    for null in _nulls(case.null, case.canaries):
        refuted = refused = 0.0
        for chance, key, bits in _coins(case):
            for said, scores in null.law(bits):
                given = Material(
                    design=design,
                    key=key,
                    bits=bits,
                    scores=scores,
                    mechanism=null.draw,
                    rng=rng,
                )
                found = _verdict(road, given)
                refuted += chance * said * (found is True)
                refused += chance * said * (found is None)
        # Sums are rounded, and no chance is above 1.
        outcomes.append({"refuted": min(1.0, refuted), "refused": min(1.0, refused)})
    return max(outcomes, key=lambda outcome: outcome["refuted"])


def _coins(case: PipelineCase) -> Iterator[tuple[float, Key | None, Bits]]:
    """Yield coins with their chance, and a key that has them if they are few."""
    n = case.canaries
    if case.way is Way.COINS:
        for bits, key in _keys(n).items():
            yield 0.5**n, key, np.array(bits, np.uint8)
        return
    least, law = masses(n, 0.0, spread=_SPREAD)
    for ones, chance in enumerate(law.tolist(), least):
        yield chance, None, (np.arange(n) < ones).astype(np.uint8)


@cache
def _keys(canaries: int) -> dict[tuple[int, ...], Key]:
    """Return a key for every vector of so many coins."""
    found: dict[tuple[int, ...], Key] = {}
    number = 0
    while len(found) < 2**canaries:
        key = fixed_key(number.to_bytes(32, "little"))
        bits = Coins(key=key, count=canaries).bits()
        found.setdefault(tuple(bits.tolist()), key)
        number += 1
    return found


def pipeline_cases() -> list[PipelineCase]:
    """Return all cases: those with seeds for ties, those with keys, and as it was."""
    return [*_seeded(), *_unseeded(), *_keyed(), *_was()]


def _summing(road: str, rules: str, null: str, n: int, trials: int) -> PipelineCase:
    """Return a case that is summed over coins; alpha such that it can be refuted."""
    return PipelineCase(
        road=road,
        rules=rules,
        null=null,
        canaries=n,
        alpha=0.05 if n >= 5 and null != _RESPONSE and rules != "half" else 0.3,
        way=Way.COINS,
        trials=trials,
    )


def _counting(road: str, n: int, trials: int, rules: str = "all") -> PipelineCase:
    """Return a case of equal scores that is summed over numbers of ones."""
    return PipelineCase(
        road=road,
        rules=rules,
        null=_EQUAL,
        canaries=n,
        alpha=0.05 if n >= 5 else 0.3,
        way=Way.ONES,
        trials=trials,
    )


def _drawing(
    road: str, rules: str, null: str, n: int, trials: int = 50, seed: int = 0
) -> PipelineCase:
    return PipelineCase(
        road=road,
        rules=rules,
        null=null,
        canaries=n,
        alpha=0.05,
        way=Way.DRAWN,
        trials=trials,
        seed=seed,
    )


def _seeded() -> Iterator[PipelineCase]:
    """Yield cases whose designs fix a seed for ties."""
    for road in ("scores, sorted by coin", "lists"):
        yield _summing(road, "all", _EQUAL, 6, 200)
        yield _summing(road, "all", _EQUAL, 2, 40)
        yield _summing(road, "all", _EQUAL, 3, 40)
        yield _summing(road, "half", _EQUAL, 6, 40)
        yield _summing(road, "ranked", _EQUAL, 6, 10)
        yield _summing(road, "classes", _EQUAL, 6, 10)
        yield _summing(road, "all", _TWO, 6, 40)
        yield _summing(road, "all", _WORST, 5, 10)
        yield _summing(road, "all", _RESPONSE, 4, 20)
        yield _summing(road, "all", _LEAK, 6, 10)
        yield _summing(road, "all", _BLOCKS, 6, 10)
        yield _summing(road, "all", _IDS, 6, 1)
        for seed in (7, 44):
            yield _drawing(road, "tenth", _RESPONSE, 1000, 20, seed)
    for road in ("scores", "scores, text ids, sorted by coin"):
        yield _summing(road, "all", _EQUAL, 6, 40)
        yield _summing(road, "all", _RESPONSE, 4, 10)
    for road in ("scores, CSV file", "scores, npz file", "lists, npz file"):
        yield _summing(road, "all", _EQUAL, 6, 10)
        yield _summing(road, "all", _RESPONSE, 4, 3)
    for name in ("tally", "tally, ids unchecked"):
        for road in (name, f"{name}, 3 shards"):
            yield _summing(road, "all", _EQUAL, 6, 20)
            yield _summing(road, "all", _RESPONSE, 4, 3)
            yield _summing(road, "all", _TWO, 6, 5)
        yield _summing(name, "ranked", _EQUAL, 6, 10)
        yield _summing(name, "half", _EQUAL, 6, 10)
        yield _summing(name, "classes", _EQUAL, 6, 10)
        yield _summing(name, "all", _LEAK, 6, 5)
        yield _summing(name, "all", _IDS, 6, 1)
        # So many guesses that scores are kept in cells.
        yield _drawing(name, "all", _EQUAL, 66_000, 15)
        yield _drawing(f"{name}, 3 shards", "all", _RESPONSE, 66_000, 15)
    for road in ("lists", "tally, ids unchecked"):
        yield _counting(road, 10, 200)
        yield _counting(road, 3, 40)
    yield _counting("lists", 1000, 40)
    yield _counting("lists", 30, 5, "ranked")


def _unseeded() -> Iterator[PipelineCase]:
    """Yield cases that no seed and nothing of a key but its coins can decide."""
    for road in ("ranked reading", "ranked reading, sorted by coin"):
        yield _summing(road, "ranked", _TWO, 6, 1)
        yield _summing(road, "ranked", _RESPONSE, 4, 1)
    yield _summing("ranked reading", "ranked", _EQUAL, 6, 1)
    yield _counting("ranked reading, sorted by coin", 30, 1, "ranked")
    for road in ("counts", "counts, claim test"):
        yield _counting(road, 1000, 1)
        yield _counting(road, 10, 1)
        yield _summing(road, "all", _RESPONSE, 4, 1)
        yield _summing(road, "all", _LEAK, 6, 1)
    for rules in ("all", "half", "ranked", "classes"):
        for null, n in ((_EQUAL, 6), (_TWO, 6), (_RESPONSE, 4), (_LEAK, 6)):
            yield _summing("one run", rules, null, n, 1)
    yield _summing("one run", "all", _EQUAL, 2, 1)
    for rules in ("count", "slots", "bets"):
        for road in ("adaptive", "adaptive, stops when ahead"):
            yield _summing(road, rules, _EQUAL, 6, 1)
            yield _summing(road, rules, _RESPONSE, 4, 1)
    for rules in ("count", "slots"):
        yield _summing("adaptive", rules, _LEAK, 6, 1)


def _keyed() -> Iterator[PipelineCase]:
    """Yield cases in which a key decides more than coins, or a mechanism is run."""
    tables = ("scores, key", "lists, key", "tally, key", "tally, key, 3 shards")
    for road in tables:
        yield _drawing(road, "all", _EQUAL, 6)
        yield _drawing(road, "half", _RESPONSE, 20)
        yield _drawing(road, "ranked", _EQUAL, 10, 25)
        yield _drawing(road, "all", _LEAK, 6)
    yield _drawing("tally, key", "all", _EQUAL, 66_000, 15)
    for road in ("adaptive", "adaptive, stops when ahead"):
        yield _drawing(road, "rounds", _EQUAL, 6)
        yield _drawing(road, "rounds", _RESPONSE, 10)
    for null, n in ((_EQUAL, 6), (_RESPONSE, 10), (_LEAK, 10)):
        yield _drawing("classic", "all", null, n)
    yield _drawing("local, 3 shards", "all", _RESPONSE, 140_000, 10)
    yield _drawing("three runs combined", "all", _EQUAL, 6)
    yield _drawing("three runs combined", "all", _RESPONSE, 10, 25)
    yield _drawing("one run combined with itself", "all", _EQUAL, 20)
    for null, n in ((_EQUAL, 6), (_RESPONSE, 10), (_NOISE, 20), (_LEAK, 6)):
        yield _drawing("sums of any loop", "all", null, n, 25)
    for null, n in ((_EQUAL, 24), (_RESPONSE, 60), (_LEAK, 60)):
        yield _drawing("function", "all", null, n, 15)


def _was() -> Iterator[PipelineCase]:
    """Yield what was wrong: tie rules by which the coins decided."""
    places, counts = AS_IT_WAS
    for road in (places, counts):
        yield _counting(road, 10, 200)
        yield _counting(road, 3, 40)
        yield _summing(road, "all", _RESPONSE, 4, 40)
    yield _counting(places, 1000, 40)
    yield _drawing(places, "tenth", _RESPONSE, 1000, 20, 44)
