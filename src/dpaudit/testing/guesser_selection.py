"""How the audit of a function is set up: number of calls, guesser, number of guesses.

All three are fixed before the coins of the audit are flipped, by calls that are not
part of it.

*Calls* (``calibrate``). A budget is a time or a number of calls. With a time, calls are
made until their share of it is spent; as many again will be audited. There are always
enough to refute the claim: a busy machine makes an audit longer, not empty. Reading
outputs and learning from them takes time too: if outputs are wide, fewer calls are
made, so that about the same number of values is learned from. All places of all calls
that are learned from are held in memory; calls that do not fit are refused, as a leak
in omitted places would go undetected.

*Guesser and guesses* (``choose``). Guessers were learned on some calls with known
coins; held-out calls show how often each kind is correct among its most confident
guesses. Of all guessers and numbers of guesses, the pair that is expected to refute the
claim most clearly is chosen; if none is, the pair that is expected to give the highest
bound. Accuracies are taken at a lower quantile given the held-out calls, so that a few
lucky guesses do not decide.

A claim with a delta above 0, or a whole curve, is tested by an event instead
(``events.py``): its number of guesses is not fixed. Guessers that compare calls with
each other have no events of single calls; if one of them is the best, calls share
something, and it is judged by a fixed number of guesses.

An audit that could not refute the claim even if every guess were correct is a test that
cannot fail; it is refused. What it can detect is known beforehand: if a copy of the
mechanism reveals its input as randomised response of some epsilon does, each guess is
correct with probability ``e^epsilon / (1 + e^epsilon)``, independently.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from math import ceil, exp, inf, log, log1p, sqrt
from time import perf_counter
from typing import TypeAlias, assert_never, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit import _validate
from dpaudit.bounds.bound import GameBound
from dpaudit.bounds.power import detectable_accuracy
from dpaudit.bounds.readings import Counts
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.coins import Key
from dpaudit.game.guessers import most_likely
from dpaudit.game.rules import OneRun, Rules, SeparateRuns
from dpaudit.game.verdict import POWER
from dpaudit.privacy.guarantees import Guarantee
from dpaudit.testing.calling import Calling
from dpaudit.testing.events import (
    DOUBTS,
    Event,
    choose_event,
    detectable_epsilon,
    least_calls,
)
from dpaudit.testing.features import WIDEST, Bits, FeatureTable, OutputFeatures, collect

__all__ = [
    "Aim",
    "Budget",
    "Calls",
    "Choice",
    "Seconds",
    "calibrate",
    "choose",
    "graded",
]

# Power at which a leak counts as detected if the best guesser were known; the guesser
# is learned, and that may lose the difference to ``POWER``.
_POWER = 0.97
_POWER_OF_EVENT = 0.997  # an event is learned from fewer calls
_GRADE_WIDTH = 0.25  # of log-odds; guesses that differ by less are equally confident
# Quantiles of the accuracy; with abstentions the better ones may only be luckier.
_QUANTILE = 0.1
_QUANTILE_IF_ABSTAINING = 0.04
_NUMBERS_TRIED = 24  # numbers of guesses that are tried
_SHORTLIST = 60  # most promising options, for which the p-value is computed
_BOUNDS_COMPUTED = 5  # options for which the bound itself is computed
_MOST_CALLS = 50_000  # calls to learn from, and again as many to audit
_SHARE_OF_TIME = 0.7  # for all calls
_AUDITED_PER_LEARNED = 2  # calls of a test by an event; it is learned from fewer
_ACROSS_CALLS = ("steps",)  # guessers that compare calls with each other
# Values (calls times places) to learn from: per second of the budget, and in all, as
# they are held in memory.
_VALUES_PER_SECOND = 500_000
_MOST_VALUES = 4_000_000
# Relative cost of a value beyond the first ``WIDEST``: it is compared only once.
_SCREENING_COST = 0.25
_MOST_WIDE_VALUES = 32_000_000  # values of wide outputs, at most
# Time limit for enough calls to refute the claim: a multiple of the budget, and at
# least so many seconds, so that a busy machine fails no test.
_OVERTIME = 5.0
_LEAST_OVERTIME = 10.0
_SPARE_CALLS = 4  # times as many calls as are needed if every guess is correct


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """The claim to be tested, and the kind of test.

    Attributes:
        claim: The claimed guarantee.
        delta: The delta of the lower bound.
        alpha: Probability of refuting a true claim.
        separate: Whether every call is a run of its own.
        must_catch: The epsilon of a planted leak that must be detected; None for no
            requirement.
    """

    claim: Guarantee
    delta: float
    alpha: float
    separate: bool
    must_catch: float | None = None

    def __post_init__(self) -> None:
        claimed = float(self.claim.points()[0].max())
        if self.must_catch is not None and not self.must_catch > claimed:
            raise InvalidInputError(
                "must_catch is the epsilon of a leak and must be above the claim's, "
                f"{claimed:g}, got must_catch={self.must_catch!r}"
            )

    def rules(self, guesses: int) -> OneRun | SeparateRuns:
        """Return the rules of a game with this number of guesses."""
        return (SeparateRuns if self.separate else OneRun)(guesses=guesses)

    @property
    def whole(self) -> bool:
        """Whether the whole claim is tested by an event: if it is not pure."""
        return bool(self.claim.points()[1].max() > 0)

    @property
    def learned(self) -> float:
        """The share of all calls that are learned from."""
        return 1 / (1 + (_AUDITED_PER_LEARNED if self.whole else 1))

    def audited(self, learned: int) -> int:
        """Return how many calls are audited if so many are learned from."""
        return learned * (_AUDITED_PER_LEARNED if self.whole else 1)

    @property
    def bound(self) -> GameBound[Counts]:
        """The bound for these rules."""
        return self.rules(1).bound()

    def p_value(self, counts: Counts) -> float:
        """Return the p-value of the claim."""
        return self.bound.judge_claim(counts, self.claim, alpha=self.alpha).p_value

    def detectable_epsilon(self, *, canaries: int, guesses: int) -> float | None:
        """Return the epsilon of the least detectable planted leak; None if none is."""
        if self.whole:
            return detectable_epsilon(
                self.claim, calls=canaries, alpha=self.alpha, power=_POWER_OF_EVENT
            )
        return _caught(self, canaries, guesses)


@lru_cache(maxsize=4096)
def _caught(aim: Aim, canaries: int, guesses: int) -> float | None:
    accuracy = detectable_accuracy(
        aim.claim,
        canaries=canaries,
        guesses=guesses,
        alpha=aim.alpha,
        power=_POWER,
        bound=aim.bound,
    )
    return None if accuracy is None else max(0.0, float(special.logit(accuracy)))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Seconds:
    """A budget of time: as many calls as fit.

    Attributes:
        seconds: Approximate time for the whole audit.
    """

    seconds: float

    def __post_init__(self) -> None:
        _validate.positive("seconds", self.seconds)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """A budget of calls, however long they take: for an audit that can be repeated.

    Attributes:
        calls: How many calls are audited; as many again are learned from, or half as
            many if the claim is not pure.
    """

    calls: int

    def __post_init__(self) -> None:
        _validate.whole_number("calls", self.calls, least=12)


Budget: TypeAlias = Seconds | Calls


def calibrate(
    calling: Calling, budget: Budget, aim: Aim, key: Key
) -> tuple[FeatureTable, Bits]:
    """Make the calls to learn from, as many as the budget permits."""
    __tracebackhide__ = True
    rng = key.generator("calibration", 0)
    match budget:
        case Calls(calls=calls):
            learned = round(calls * aim.learned / (1 - aim.learned))
            bits = key.generator("calibration coins", 0).integers(0, 2, learned)
            return collect(_held(calling, bits, rng)), bits
        case Seconds(seconds=seconds):
            bits = key.generator("calibration coins", 0).integers(0, 2, _MOST_CALLS)
            rows = _timed(calling, bits, rng, seconds=seconds, aim=aim)
            return collect(rows), bits[: len(rows)]
        case _:
            assert_never(budget)


def _held(
    calling: Calling, bits: Bits, rng: np.random.Generator
) -> list[OutputFeatures]:
    """Make all calls, unless their outputs do not fit in memory."""
    __tracebackhide__ = True
    rows: list[OutputFeatures] = []
    while len(rows) < len(bits):
        batch = max(1, len(rows))  # outputs may get wider: check before each doubling
        rows += calling.run(bits[len(rows) : len(rows) + batch], rng)
        _must_fit(len(bits), _width(rows))
    return rows


def _width(rows: list[OutputFeatures]) -> int:
    """Return the largest number of places of an output."""
    return max(len(row.numbers) + len(row.texts) for row in rows)


def _must_fit(calls: int, width: int) -> None:
    if width > 2 * WIDEST and calls * width > _MOST_WIDE_VALUES:
        raise InvalidInputError(
            f"{calls} calls with outputs of {width} places each are more than can be "
            f"read; with calls={_MOST_WIDE_VALUES // width} all places are, or "
            "return fewer places"
        )


def _timed(
    calling: Calling,
    bits: Bits,
    rng: np.random.Generator,
    *,
    seconds: float,
    aim: Aim,
) -> list[OutputFeatures]:
    """Call until the time is spent, and at least until the claim can be refuted."""
    __tracebackhide__ = True
    rows: list[OutputFeatures] = []
    values = min(_VALUES_PER_SECOND * seconds, _MOST_VALUES)
    start, batch, least, width = perf_counter(), 1, _least_calls(aim), 1
    share = _SHARE_OF_TIME * aim.learned
    while len(rows) < min(len(bits), max(least, values // _worth(width))):
        new = calling.run(bits[len(rows) : len(rows) + batch], rng)
        rows += new
        width = max(width, _width(new))
        _must_fit(max(least, len(rows)), width)
        spent = perf_counter() - start
        rate = len(rows) / max(spent, 1e-9)
        if len(rows) >= least and spent >= share * seconds:
            break
        if len(rows) < least and spent >= max(_OVERTIME * seconds, _LEAST_OVERTIME):
            raise InvalidRunError(
                f"one call takes {1 / rate:.2g} s, and the test needs "
                f"{round(least / aim.learned)} of them to be able to fail; allow about "
                f"seconds={ceil(least / rate / share)}"
            )
        # Half of the calls that still fit, so that no batch overruns the time by much.
        fits = int(rate * (share * seconds - spent) / 2)
        batch = max(1, len(rows) // 4, min(fits, 4 * len(rows)))
        batch = min(batch, max(1, int(max(least, values // _worth(width))) - len(rows)))
    return rows


def _worth(width: int) -> float:
    """Return the cost of an output of this width, in fully processed places."""
    return min(width, WIDEST) + _SCREENING_COST * max(0, width - WIDEST)


def _least_calls(aim: Aim) -> int:
    """Return from how many calls to learn so that the audit can fail.

    Its calls then refute the claim if they are guessed well, and detect the required
    leak.
    """
    calls = max(60, ceil(_SPARE_CALLS * _refuting(aim) / aim.audited(1)))
    while aim.must_catch is not None and calls < _MOST_CALLS:
        audited = aim.audited(calls)
        detectable = aim.detectable_epsilon(canaries=audited, guesses=audited)
        if detectable is not None and detectable <= aim.must_catch:
            break
        calls += ceil(calls / 4)
    return min(_MOST_CALLS, calls)


def _refuting(aim: Aim) -> float:
    """Return how many calls refute the claim if every guess is correct."""
    if aim.whole:
        return least_calls(aim.claim, alpha=aim.alpha)
    epsilon = float(aim.claim.points()[0].max())
    return -log(aim.alpha) / log1p(exp(-epsilon))


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choice:
    """The guesser, the number of calls and the rules of an audit.

    Attributes:
        name: The kind of guesser.
        canaries: How many calls will be audited.
        rules: The rules by which they are guessed and judged.
        delta: The delta of the lower bound.
        detectable_epsilon: The epsilon of the least planted leak that would be
            detected.
        event: Which calls are guessed; None for a fixed number, the most confident.
    """

    name: str
    canaries: int
    rules: Rules
    delta: float
    detectable_epsilon: float
    event: Event | None = None

    def guesses(
        self, scores: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
        """Return the calls that are guessed, and the guesses."""
        if self.event is None:
            made = self.rules.max_guesses(self.canaries)
            return most_likely(graded(scores), guesses=made)
        guess = self.event.guesses(scores)
        index = np.flatnonzero(guess)
        return index, guess[index]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Option:
    name: str
    canaries: int
    guesses: int
    correct: int  # a cautious estimate of the expected number

    @property
    def counts(self) -> Counts:
        return Counts(
            canaries=self.canaries, guesses=self.guesses, correct=self.correct
        )


def choose(
    held_out: Mapping[str, NDArray[np.float64]],
    bits: Bits,
    *,
    calls: int,
    aim: Aim,
) -> Choice:
    """Fix guesser, canaries and rules.

    Args:
        held_out: For each kind of guesser its scores of held-out calls.
        bits: The coins of these calls.
        calls: The largest number of calls in the audit.
        aim: The claim to be tested.

    Raises:
        InvalidRunError: There are too few calls to refute the claim, or to detect the
            required leak.
    """
    if aim.whole:
        detectable = aim.detectable_epsilon(canaries=calls, guesses=calls)
        if detectable is None or detectable > (aim.must_catch or inf):
            raise InvalidRunError(_too_few(calls, aim))
        event = _event(held_out, bits, calls=calls, aim=aim)
        if event is not None:
            return Choice(
                name=event.name,
                canaries=calls,
                rules=event.rules,
                delta=event.delta_of(aim.claim),
                detectable_epsilon=detectable,
                event=event,
            )
    options = [
        option
        for name, scores in held_out.items()
        for option in _options(name, graded(scores), bits, calls)
    ]
    for option in _ranked(options, aim):
        detectable = aim.detectable_epsilon(
            canaries=option.canaries, guesses=option.guesses
        )
        if detectable is not None and detectable <= (aim.must_catch or inf):
            return Choice(
                name=option.name,
                canaries=option.canaries,
                rules=aim.rules(option.guesses),
                delta=aim.delta,
                detectable_epsilon=detectable,
            )
    raise InvalidRunError(_too_few(calls, aim))


def _event(
    held_out: Mapping[str, NDArray[np.float64]], bits: Bits, *, calls: int, aim: Aim
) -> Event | None:
    """Return the event to test; None if only guessers across calls find anything."""
    single = {k: v for k, v in held_out.items() if k not in _ACROSS_CALLS}
    choose = partial(
        choose_event, bits=bits, claim=aim.claim, calls=calls, alpha=aim.alpha
    )
    clear = choose(single, doubts=DOUBTS[:1])
    across = {k: v for k, v in held_out.items() if k in _ACROSS_CALLS}
    if clear.growth <= 0 and across and choose(across, doubts=DOUBTS[:1]).growth > 0:
        return None
    return choose(single)


def _options(
    name: str, scores: NDArray[np.float64], bits: Bits, calls: int
) -> Iterator[_Option]:
    """Yield numbers of guesses, with how many are expected to be correct."""
    right = _correct_among_most_confident(scores, bits)
    h = len(right)
    made = np.unique(np.geomspace(1, h, _NUMBERS_TRIED).astype(int))
    doubt = np.where(made == h, _QUANTILE, _QUANTILE_IF_ABSTAINING)
    low = special.betaincinv(right[made - 1] + 0.5, made - right[made - 1] + 0.5, doubt)
    for j, a in zip(made, low, strict=True):
        # Few enough that the audit nearly always has as many of that confidence.
        expected = calls * j / h
        k = max(1, int(expected - sqrt(expected * (1 - j / h))))
        yield _Option(name=name, canaries=calls, guesses=k, correct=int(a * k))


def graded(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round the confidence of scores, so that random differences do not rank them.

    Otherwise the luckiest of equally good guesses would be taken for the best.
    """
    size = np.round(np.abs(np.nan_to_num(scores)) / _GRADE_WIDTH) * _GRADE_WIDTH
    return np.copysign(size + _GRADE_WIDTH / 100, np.where(scores >= 0, 1.0, -1.0))


def _correct_among_most_confident(
    scores: NDArray[np.float64], bits: Bits
) -> NDArray[np.float64]:
    """Return how many of the k most confident guesses are correct, k = 1, 2, ...

    Tied guesses count their average.
    """
    _, group, sizes = np.unique(
        -np.abs(scores), return_inverse=True, return_counts=True
    )
    correct = (scores >= 0) == (bits == 1)
    share = np.bincount(group, weights=correct) / sizes
    return np.cumsum(np.repeat(share, sizes))


def _ranked(options: Iterable[_Option], aim: Aim) -> list[_Option]:
    """Return the options, the most promising first."""
    strongest = sorted(options, key=lambda o: -_quick_bound(o, aim.alpha))
    # No point of the claim is refuted by counts whose bound at delta = 0 is below it.
    least = float(aim.claim.points()[0].min())
    hopeful = [o for o in strongest if _quick_bound(o, aim.alpha) >= least]
    p_values = {o: aim.p_value(o.counts) for o in hopeful[:_SHORTLIST]}
    refuting = [o for o in p_values if p_values[o] <= aim.alpha]
    # Stable sort: if p-values underflow to one least number, the higher bound decides.
    first = sorted(refuting, key=lambda o: p_values[o])
    if not first and aim.delta > 0:
        first = _by_bound(strongest, aim)
    return [*first, *(o for o in strongest if o not in first)]


def _by_bound(strongest: list[_Option], aim: Aim) -> list[_Option]:
    """Return the strongest options, and those without abstentions, by their bound."""
    bounds = {
        o: aim.bound.epsilon_lower(
            o.counts, delta=aim.delta, alpha=aim.alpha
        ).epsilon_lower
        for o in {
            *strongest[:_BOUNDS_COMPUTED],
            *(o for o in strongest if o.guesses == o.canaries),
        }
    }
    return sorted(bounds, key=lambda o: -bounds[o])


@lru_cache(maxsize=4096)
def _quick_bound(option: _Option, alpha: float) -> float:
    """Return approximately the lower bound on epsilon at delta = 0."""
    v, k = option.correct, option.guesses
    if v == 0:
        return -inf
    return float(special.logit(special.betaincinv(v, k - v + 1, alpha)))


def _too_few(calls: int, aim: Aim) -> str:
    detectable = aim.detectable_epsilon(canaries=calls, guesses=calls)
    if detectable is None:
        return (
            f"{calls} calls cannot refute {aim.claim} at alpha = {aim.alpha:.3g}, "
            "even if every guess is correct, so this test could not fail; allow "
            f"{_enough(calls, aim)} calls with seconds=... or calls=..."
        )
    return (
        f"{calls} calls are too few to detect a leak of epsilon = {aim.must_catch:g} "
        f"with probability {POWER:g} (from {detectable:.3g} on they would); allow more "
        "with seconds=... or calls=..., or ask for less with must_catch=..."
    )


def _enough(calls: int, aim: Aim) -> str:
    """Return in words how many calls could refute the claim, to a factor of two."""
    for more in (calls << power for power in range(1, 12)):
        if aim.detectable_epsilon(canaries=more, guesses=more) is not None:
            return f"about {more}"
    return "many more"
