"""Bets against a claim, call by call: stop as soon as the claim is refuted.

Before each batch of calls an event and a bet are fixed. Under the claim a guess is
correct with probability ``a <= s b + c``, for b the probability that it is wrong and
every line (s, c) of the claim (``bounds/whole_claim.py``). So a bet of ``l`` multiplies
wealth by ``1 + l (1 - c)`` for a correct guess, by ``1 - l (s + c)`` for a wrong one
and by ``1 - l c`` for none, and its expectation given the past is ``1 + l (a - s b -
c) <= 1`` if ``0 <= l < 1 / (s + c)``. Wealth is a nonnegative supermartingale that
begins with 1, whatever was learned from calls before and however the number of calls is
decided: by Ville's inequality it ever reaches ``1 / alpha`` with probability at most
alpha. At delta = 0 the bet is the likelihood ratio, and these bets are the only
admissible ones for a limited mean.

Several pairs of neighbours are bet on at once, each with its own wealth. Their *mean*
refutes: it is a supermartingale too, whichever pair is called next. So calls go where
evidence grows.

The bet is that of the likelihood ratio between the frequencies that are expected and
the nearest point of the line: its wealth grows fastest. Events are chosen as in
``events.py``, again and again from all calls made so far; guessers that use later
calls are left out, since a bet may depend on the past only.

Reference: Ville's inequality; Larsson, Ramdas and Ruf, "The numeraire e-variable and
reverse information projection", https://arxiv.org/abs/2402.18810.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf, log1p
from types import MappingProxyType
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpaudit._codec import PossiblyInfinite
from dpaudit.game.rules import Sides
from dpaudit.privacy.guarantees import Guarantee
from dpaudit.stats.event_test import Line, nearest_on
from dpaudit.testing.calling import Calling
from dpaudit.testing.events import Event, choose_event, divergence
from dpaudit.testing.feature_selection import SelectedFeatures, most_informative, narrow
from dpaudit.testing.features import Bits, FeatureTable, collect, joined
from dpaudit.testing.guessers import LEARNERS, Learner, Scorer

__all__ = ["FIRST_CALLS", "Bet", "Bettor", "SeenEvent"]

# Guessers that use one call only, and are learned quickly.
_LEARNERS: Mapping[str, Learner] = MappingProxyType(
    {
        name: LEARNERS[name]
        for name in ("values", "parts", "place", "bins", "lattice", "linear")
    }
)
_PARTS = 3  # of the calls learned from: in turn one of them evaluates guessers
FIRST_CALLS = 100  # before the first bet
_LEARNED_AGAIN = 1.6  # times as many calls before events are chosen again
_LEAST_BATCH = 50
_BATCH = 0.1  # share of the calls so far that are made with one bet
_MOST_ROWS = 20_000  # calls that are learned from
_MOST_VALUES = 2_000_000  # places of these calls
_LARGEST_STAKE = 0.95  # of the stake at which a wrong guess costs all wealth
_FORGOTTEN = 0.1  # share of what was seen of an event that each later run forgets
# An event that was seen in so many calls makes room only for one with so much evidence.
_ESTABLISHED, _CLEAR = 5000, 3.0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Bet:
    """A bet against one line of a claim.

    Attributes:
        line: The line.
        stake: The share of wealth that is bet; 0 for none.

    Example:
        >>> bet = Bet.on(Line(slope=2.0, intercept=0.0), correct=0.5, wrong=0.2)
        >>> round(bet.stake, 3), round(bet.growth(correct=0.5, wrong=0.2), 4)
        (0.071, 0.0037)
    """

    line: Line
    stake: float

    @classmethod
    def on(cls, line: Line, *, correct: float, wrong: float) -> "Bet":
        """Return the best bet if guesses are correct and wrong this often."""
        s, c = float(line.slope), float(line.intercept)
        scale = 1 / max(1.0, correct + wrong)
        a, b = correct * scale, wrong * scale
        if a <= s * b + c or c >= 1:
            return cls(line=line, stake=0.0)
        allowed = s * float(nearest_on(line, a, b, 1)) + c
        stake = (a / allowed - 1) / (1 - c) if allowed > 0 else inf
        return cls(line=line, stake=min(stake, _LARGEST_STAKE / (s + c)))

    def log_factor(self, *, correct: float, wrong: float, silent: float) -> float:
        """Return the log of the factor of wealth for numbers of outcomes."""
        s, c = float(self.line.slope), float(self.line.intercept)
        return (
            correct * log1p(self.stake * (1 - c))
            + wrong * log1p(-self.stake * (s + c))
            + silent * log1p(-self.stake * c)
        )

    def growth(self, *, correct: float, wrong: float) -> float:
        """Return the expected log-factor per call."""
        return self.log_factor(
            correct=correct, wrong=wrong, silent=max(0.0, 1 - correct - wrong)
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SeenEvent:
    """An event and what was seen of it, to be kept from run to run.

    Attributes:
        name: The kind of guesser.
        up: The least score of a guess "y"; infinite if there are none.
        down: The least score against it of a guess "x"; infinite if there are none.
        correct: Calls that were guessed correctly.
        wrong: Calls that were guessed wrongly.
        calls: All calls.
    """

    name: str
    up: PossiblyInfinite
    down: PossiblyInfinite
    correct: float
    wrong: float
    calls: float


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Guesser:
    """An event with the guesser that decides it.

    Attributes:
        event: The event.
        scorer: The guesser.
        places: The places of an output that it uses.
        widths: The widths of the table that it was learned from.
    """

    event: Event
    scorer: Scorer
    places: SelectedFeatures
    widths: tuple[int, int]

    @classmethod
    def learned(cls, event: Event, rows: FeatureTable, bits: Bits) -> "_Guesser":
        """Return an event with its guesser, learned from calls."""
        places = most_informative(rows, bits, np.arange(len(rows)))
        scorer = _LEARNERS[event.name](narrow(rows, places), bits)
        assert scorer is not None  # fewer calls were enough to choose it
        return cls(event=event, scorer=scorer, places=places, widths=rows.widths)

    def guesses(self, table: FeatureTable) -> NDArray[np.int8]:
        """Return +1 (y), -1 (x) or 0 for each call."""
        table = narrow(table.with_widths(self.widths), self.places)
        return self.event.guesses(self.scorer.scores(table))


@final
class Bettor:
    """Bets on one pair of neighbours.

    Attributes:
        calling: The function and the pair.
        claim: The claim that is bet against.
        calls: Calls made.
        log_wealth: The log of the wealth, which began with 1.
        rows: The outputs of the calls that are learned from; None before the first.
        bits: The coins of these calls.
    """

    def __init__(self, calling: Calling, claim: Guarantee) -> None:
        self.calling, self.claim = calling, claim
        self.calls, self.log_wealth = 0, 0.0
        self.rows: FeatureTable | None = None
        self.bits: Bits = np.zeros(0, np.int64)
        self.guesser: _Guesser | None = None
        self._learned_from = 0  # calls, when events were last chosen
        # Of the current event, from held-out calls and from bets.
        self._correct = self._wrong = self._seen = 0.0

    @property
    def growth(self) -> float:
        """The expected growth of log-wealth per call; 0 without a bet."""
        bet = self._bet()
        if bet is None or not self._seen:
            return 0.0
        correct, wrong = self._frequencies()
        return bet.growth(correct=correct, wrong=wrong)

    def run(
        self, calls: int, coins: np.random.Generator, rng: np.random.Generator
    ) -> Iterator[int]:
        """Make calls, batch by batch; yield how many there were after each batch.

        Args:
            calls: How many.
            coins: What decides which input a call gets.
            rng: What the function may draw from.
        """
        __tracebackhide__ = True
        end = self.calls + calls
        while self.calls < end:
            self._learn_if_due()
            size = max(_LEAST_BATCH, int(self.calls * _BATCH))
            if self.guesser is None:
                size = max(1, FIRST_CALLS - len(self.bits))
            chosen = coins.integers(0, 2, min(size, end - self.calls))
            try:
                table = collect(self.calling.run(chosen, rng))
            except BaseException:
                self._lose(len(chosen))
                raise
            self._settle(table, chosen)
            self._keep(table, chosen)
            self.calls += len(chosen)
            yield len(chosen)

    def continue_from(
        self,
        rows: FeatureTable | None,
        bits: Bits,
        *,
        seen: "SeenEvent | None",
        calls: int,
        log_wealth: float,
    ) -> None:
        """Go on from what an earlier process learned and won."""
        self.rows, self.bits = rows, bits
        self.calls, self.log_wealth = calls, log_wealth
        if rows is None or seen is None:
            return
        event = _event(seen, self.claim)
        self.guesser = _Guesser.learned(event, rows, bits)
        left = 1 - _FORGOTTEN
        self._correct, self._wrong, self._seen = (
            left * seen.correct,
            left * seen.wrong,
            left * seen.calls,
        )

    @property
    def seen(self) -> "SeenEvent | None":
        """The current event and how often its guesses were correct and wrong."""
        if self.guesser is None:
            return None
        event = self.guesser.event
        return SeenEvent(
            name=event.name,
            up=event.up,
            down=event.down,
            correct=self._correct,
            wrong=self._wrong,
            calls=self._seen,
        )

    def _bet(self) -> Bet | None:
        if self.guesser is None:
            return None
        correct, wrong = self._frequencies()
        sides = self.guesser.event.sides
        _, line = divergence(
            correct, wrong, self.claim, one_sided=sides is not Sides.BOTH
        )
        return Bet.on(line, correct=correct, wrong=wrong)

    def _frequencies(self) -> tuple[float, float]:
        """Return how often guesses are correct and wrong, on the cautious side."""
        seen = self._seen + 1
        return self._correct / seen, (self._wrong + 0.5) / seen

    def _settle(self, table: FeatureTable, coins: Bits) -> None:
        """Let wealth follow the outcomes of a batch."""
        bet = self._bet()
        if bet is None or self.guesser is None:
            return
        guesses = self.guesser.guesses(table)
        correct = int(np.sum(guesses == 2 * coins - 1))
        wrong = int(np.count_nonzero(guesses)) - correct
        self.log_wealth += bet.log_factor(
            correct=correct, wrong=wrong, silent=len(coins) - correct - wrong
        )
        self._correct += correct
        self._wrong += wrong
        self._seen += len(coins)

    def _lose(self, calls: int) -> None:
        """Count a batch that broke off as wrong: its outcomes may have been any."""
        bet = self._bet()
        if bet is not None:
            self.log_wealth += bet.log_factor(correct=0, wrong=calls, silent=0)

    def _keep(self, table: FeatureTable, coins: Bits) -> None:
        """Add a batch to the calls that are learned from; the oldest make room."""
        if self.rows is not None:
            (a, b), (c, d) = self.rows.widths, table.widths
            widths = max(a, c), max(b, d)
            parts = [each.with_widths(widths) for each in (self.rows, table)]
            table, coins = joined(parts), np.concatenate([self.bits, coins])
        most = min(_MOST_ROWS, max(200, _MOST_VALUES // max(1, sum(table.widths))))
        self.rows, self.bits = table.rows(slice(-most, None)), coins[-most:]

    def _learn_if_due(self) -> None:
        if self.rows is None or len(self.bits) < FIRST_CALLS:
            return
        if self._learned_from and self.calls < self._learned_from * _LEARNED_AGAIN:
            return
        self._learned_from = self.calls
        scores, bits = _held_out(self.rows, self.bits)
        if not scores:
            return
        event = choose_event(
            scores, bits, claim=self.claim, calls=max(self.calls, 2000), alpha=1e-3
        )
        if self._stays(event):
            return
        self.guesser = _Guesser.learned(event, self.rows, self.bits)
        self._seen = float(len(bits))
        self._correct = event.correct * self._seen
        self._wrong = event.wrong * self._seen

    def _stays(self, event: Event) -> bool:
        """Whether the current event promises more than another one."""
        if self.guesser is None:
            return False
        unclear = event.growth * len(self.bits) < _CLEAR
        return self.growth > max(event.growth, 0.0) or (
            self._seen > _ESTABLISHED and unclear
        )


def _event(seen: SeenEvent, claim: Guarantee) -> Event:
    share = max(seen.calls, 1.0)
    correct, wrong = seen.correct / share, seen.wrong / share
    one_sided = inf in (seen.up, seen.down)
    growth, line = divergence(correct, wrong, claim, one_sided=one_sided)
    return Event(
        name=seen.name,
        up=seen.up,
        down=seen.down,
        line=line,
        growth=growth,
        correct=correct,
        wrong=wrong,
    )


def _held_out(
    rows: FeatureTable, bits: Bits
) -> tuple[dict[str, NDArray[np.float64]], Bits]:
    """Return scores of all calls by guessers learned on others, and their coins."""
    parts = np.array_split(np.arange(len(rows)), _PARTS)
    found: dict[str, list[NDArray[np.float64]]] = {name: [] for name in _LEARNERS}
    for part in parts:
        rest = np.delete(np.arange(len(rows)), part)
        if len(set(bits[rest].tolist())) < 2:
            return {}, bits
        seen = narrow(rows, most_informative(rows, bits, rest))
        others, judged = seen.rows(rest), seen.rows(part)
        for name, learner in _LEARNERS.items():
            scorer = learner(others, bits[rest])
            if scorer is not None:
                found[name].append(scorer.scores(judged))
    complete = {k: np.concatenate(v) for k, v in found.items() if len(v) == _PARTS}
    return complete, bits
