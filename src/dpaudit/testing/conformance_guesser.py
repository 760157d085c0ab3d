"""Conformance of guessers: what any guesser must do, and what stakes it may set.

A guesser sees an output and revealed coins, and nothing else. Four properties are
checked by playing games with it.

*It is deterministic.* The same output and the same revealed coins give the same
guesses, and the output is not modified. So coins revealed in one game are of no use in
the next, and the guesser has no randomness of its own.

*It obeys the rules.* A referee accepts its guesses.

*It knows no coin that the output does not reveal.* Its guesses are compared with coins
of another run of the mechanism. These are independent of everything it may know, so
each guess is correct with probability one half, whatever was guessed and however often;
an exact binomial tail tests whether it did better. (A guesser that obtains the data of
the run it is shown looks like a good one; only an audit whose claim is known to hold
distinguishes them.)

*Its stakes are calibrated.* Where a stake states a probability (bets) or log-odds
(rounds), guesses are correct as often as stated. Stated probabilities are sorted into
bands. If a band is calibrated, the wealth of a bettor against it, turn after turn, is a
martingale that begins at 1, and reaches ``1 / a`` with probability at most ``a``
(Ville's inequality), however the guesser chooses what to guess and when to stop. Coins
of one turn may depend on each other, so each turn enters with the mean of its bets.
Log-odds may be rounded down by 0.02.

Reference: Shafer, "Testing by betting", J. R. Stat. Soc. A 184, 2021.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from math import log
from typing import Any, Protocol, TypeAlias, final, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit import _validate
from dpaudit.errors import ConformanceError, InvalidInputError, InvalidRunError
from dpaudit.game.auditors import check_pairs
from dpaudit.game.coins import Coins, Key
from dpaudit.game.design import Design
from dpaudit.game.guessers import AdaptiveGuesser, Guesser, Play, Submission
from dpaudit.game.mechanism import Mechanism
from dpaudit.game.pairs import Pairs
from dpaudit.game.referee import Referee
from dpaudit.game.rules import Rules
from dpaudit.game.transcript import Transcript
from dpaudit.stats.binomial import log_tails
from dpaudit.testing.conformance_games import Conformance

__all__ = [
    "StatedProbabilities",
    "check_guesser",
]

# Edges of the bands of stated probabilities.
_PROBABILITY_BANDS = np.array([0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99])
_TILTS = np.array([-4.0, -2, -1, -0.5, -0.25, 0.25, 0.5, 1, 2, 4])  # of log-odds
_LOG_ODDS_ROUNDING = 0.02
_CERTAIN_LOG_ODDS = 40.0  # beyond this, probabilities are 1 as floats
Signs: TypeAlias = NDArray[np.int8]
Answers: TypeAlias = Callable[[Submission], Signs]


@final
class StatedProbabilities:
    """Bets against stated probabilities, band by band."""

    def __init__(self) -> None:
        shape = (len(_PROBABILITY_BANDS) + 1, len(_TILTS))
        self._log_wealth = np.zeros(shape)
        self._made, self._right, self._sum = np.zeros((3, shape[0]))

    def add(self, transcript: Transcript) -> None:
        """Bet on every turn of a game, if its stakes state probabilities."""
        made = transcript.guess != 0
        stake, turn = transcript.stake[made], transcript.turn[made]
        right = (transcript.guess == transcript.truth)[made]
        odds = transcript.design.rules.stated_odds(stake)
        if odds is None:
            return
        odds = np.clip(odds, -_CERTAIN_LOG_ODDS, _CERTAIN_LOG_ODDS)
        band = np.searchsorted(_PROBABILITY_BANDS, special.expit(odds), side="right")
        for b, t in np.unique(np.stack([band, turn]), axis=1).T:
            here = (band == b) & (turn == t)
            self._log_wealth[b] += np.log(_bets(odds[here], right[here]))
        size = len(_PROBABILITY_BANDS) + 1
        self._made += np.bincount(band, minlength=size)
        self._right += np.bincount(band[right], minlength=size)
        self._sum += np.bincount(band, special.expit(odds), minlength=size)

    def check(self, guesser: object, false_alarm: float) -> None:
        """Refuse a guesser if the bets against it won too much."""
        # The mean of wealths that each begin at 1 is such a wealth, too.
        total = special.logsumexp(self._log_wealth) - log(self._log_wealth.size)
        if total < -log(false_alarm):
            return
        b = int(self._log_wealth.max(axis=1).argmax())
        edges = [0.0, *_PROBABILITY_BANDS, 1.0]
        raise ConformanceError(
            f"{guesser!r} is not correct as often as it states: of "
            f"{self._made[b]:.0f} guesses with a stated probability from {edges[b]:g} "
            f"to {edges[b + 1]:g}, {self._sum[b] / self._made[b]:.3f} on average, "
            f"{self._right[b] / self._made[b]:.3f} were correct"
        )


def _bets(odds: NDArray[np.float64], right: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return what bets of one turn pay on average, for each tilt.

    A bet pays the ratio of a tilted probability to the stated one. If guesses are
    correct at least (for tilts up: at most) as often as stated, its mean is at most 1.
    """
    base = odds[:, np.newaxis] + np.where(_TILTS > 0, _LOG_ODDS_ROUNDING, 0.0)
    sign = np.where(right, 1.0, -1.0)[:, np.newaxis]
    pays = special.log_expit(sign * (base + _TILTS)) - special.log_expit(sign * base)
    return np.asarray(np.exp(pays).mean(axis=0))


def check_guesser(
    guesser: Guesser[Any] | AdaptiveGuesser[Any],
    mechanism: Mechanism[Any],
    *,
    pairs: Pairs,
    design: Design,
    rng: np.random.Generator,
    games: int = 20,
    false_alarm: float = 1e-6,
) -> Conformance:
    """Check a guesser by playing games with it.

    Args:
        guesser: The guesser, with ``guess(output)`` for one-run rules, else with
            ``play(output)``.
        mechanism: The mechanism whose outputs it sees.
        pairs: Two records for each coin to choose from.
        design: The design of the games; about a hundred canaries are enough.
        rng: Randomness of the coins and of the mechanism.
        games: The number of games. In games of one turn, stated probabilities of 0.95
            that should be 0.88 were detected in forty games, of 0.65 that should be
            0.84 in a hundred; with more turns fewer are enough.
        false_alarm: The false-positive rate: the probability that a correct guesser is
            refused.

    Raises:
        ConformanceError: It does not conform; the message explains how.

    Example:
        >>> from dpaudit import OneRun
        >>> from dpaudit.game import Everyone
        >>> from dpaudit.mechanisms.local import LocalLaplace
        >>> laplace = LocalLaplace(epsilon=1.0)
        >>> rules, claim = OneRun(guesses=100), laplace.guarantee
        >>> print(check_guesser(
        ...     Everyone(mechanism=laplace),
        ...     laplace,
        ...     pairs=laplace.pairs,
        ...     design=Design(canaries=100, rules=rules, claim=claim),
        ...     rng=np.random.default_rng(0),
        ... ))
        Everyone(mechanism=LocalLaplace(epsilon=1.0)) conforms:
        - guesses the same from the same output, and leaves it as it was
        - obeys the rules, OneRun(guesses=100)
        - knows no coin that the output does not tell
    """
    _validate.whole_number("games", games, least=1)
    _validate.error_level("false_alarm", false_alarm)
    check_pairs(pairs, design)
    table = _Table(guesser, mechanism, pairs, design, rng)
    revealed, stated = _OtherCoins(), StatedProbabilities()
    for _ in range(games):
        game, shown = table.deal()
        transcript = table.play(game, shown)
        table.check_again(transcript, shown)
        revealed.add(transcript, table.others)
        stated.add(transcript)
    # Half of the false-positive rate for each: Boole's inequality.
    revealed.check(guesser, false_alarm / 2)
    stated.check(guesser, false_alarm / 2)
    return Conformance(subject=repr(guesser), checked=_checked(design.rules))


def _checked(rules: Rules) -> tuple[str, ...]:
    states = ["is correct as often as it states"]
    return (
        "guesses the same from the same output, and leaves it as it was",
        f"obeys the rules, {rules!r}",
        "knows no coin that the output does not tell",
        *([] if rules.stated_odds(np.empty(0)) is None else states),
    )


@runtime_checkable
class _AtOnce(Protocol):
    def guess(self, output: object, /) -> Submission: ...


@runtime_checkable
class _InTurns(Protocol):
    def play(self, output: object, /) -> Play: ...


@final
class _Table:
    """Deals and plays games.

    Attributes:
        others: Coins of the mechanism's last run, which no game is about.
    """

    def __init__(
        self,
        guesser: Guesser[Any] | AdaptiveGuesser[Any],
        mechanism: Mechanism[Any],
        pairs: Pairs,
        design: Design,
        rng: np.random.Generator,
    ) -> None:
        needed = _InTurns if design.rules.adaptive else _AtOnce
        if not isinstance(guesser, needed):
            raise InvalidInputError(
                "adaptive rules need a guesser with play(output), one-run rules one "
                f"with guess(output), got {design.rules!r} and {guesser!r}"
            )
        self._guesser, self._mechanism, self._pairs = guesser, mechanism, pairs
        self._design, self._rng = design, rng
        self.others: Signs = np.zeros(0, np.int8)

    def deal(self) -> tuple[Key, object]:
        """Return a game's key and the output of its run, after a run on other coins."""
        game, other = Key(self._rng.bytes(32)), Key(self._rng.bytes(32))
        shown = self._run(game)
        self._run(other)
        self.others = _signs(other, self._design.canaries)
        return game, shown

    def play(self, game: Key, shown: object) -> Transcript:
        """Play one game with a referee."""
        referee = Referee(self._design, game)
        try:
            for _ in self._turns(
                shown, lambda turn: referee.submit(turn.index, turn.guess, turn.stake)
            ):
                pass
        except InvalidRunError as error:
            raise ConformanceError(
                f"{self._guesser!r} breaks the rules, {self._design.rules!r}: {error}"
            ) from error
        return referee.close()

    def check_again(self, first: Transcript, shown: object) -> None:
        """Check that the same output and coins give the same guesses again."""
        truth = np.zeros(self._design.canaries, np.int8)
        truth[first.index] = first.truth
        again = self._turns(shown, lambda turn: truth[turn.index])
        turns = int(first.turn[-1]) + 1 if len(first.turn) else 1
        number = -1
        for number, turn in enumerate(again):
            here = first.turn == number
            if not _equal(turn, first.index[here], first.guess[here]):
                raise self._other(f"in turn {number}")
        if number + 1 < turns:
            raise self._other(f"it stops after turn {number}")

    def _other(self, where: str) -> ConformanceError:
        return ConformanceError(
            f"{self._guesser!r} guesses differently from the same output when asked "
            f"again ({where}): it must go by the output and by the coins revealed "
            "before, and by nothing else"
        )

    def _turns(self, shown: object, answers: Answers) -> Iterator[Submission]:
        """Show an output, yield every turn's guesses, and answer with coins."""
        output = deepcopy(shown)
        if self._design.rules.adaptive:
            assert isinstance(self._guesser, _InTurns)
            play = self._guesser.play(output)
            turn = next(play, None)
            while turn is not None:
                yield turn
                try:
                    turn = play.send(answers(turn))
                except StopIteration:
                    turn = None
        else:
            assert isinstance(self._guesser, _AtOnce)
            turn = self._guesser.guess(output)
            answers(turn)
            yield turn
        if not _unchanged(output, shown):
            raise ConformanceError(
                f"{self._guesser!r} changes the output that it is shown; work on a copy"
            )

    def _run(self, key: Key) -> object:
        bits = Coins(key=key, count=self._design.canaries).bits()
        return self._mechanism.run(self._pairs.choose(bits), self._rng)


@final
class _OtherCoins:
    """Counts how often guesses match coins of a run that the guesser did not see."""

    def __init__(self) -> None:
        self._right = self._made = 0

    def add(self, transcript: Transcript, others: Signs) -> None:
        made = transcript.guess != 0
        right = transcript.guess[made] == others[transcript.index[made]]
        self._right += int(right.sum())
        self._made += len(right)

    def check(self, guesser: object, false_alarm: float) -> None:
        log_p, _ = log_tails(self._right, self._made, 0.0)
        if log_p <= log(false_alarm):
            raise ConformanceError(
                f"{guesser!r} knows coins that the output does not tell: of coins "
                "whose output it was not shown, it guessed "
                f"{self._right} of {self._made} rightly, for which chance alone is "
                f"{np.exp(log_p):.2g}; does it, or the mechanism, keep the data?"
            )


def _signs(key: Key, canaries: int) -> Signs:
    return 2 * Coins(key=key, count=canaries).bits().astype(np.int8) - 1


def _equal(turn: Submission, index: NDArray[np.int64], guess: NDArray[np.int8]) -> bool:
    return np.array_equal(turn.index, index) and np.array_equal(turn.guess, guess)


def _unchanged(output: object, shown: object) -> bool:
    """Return whether two outputs are the same, as far as they can be compared."""
    if isinstance(shown, np.ndarray):
        return np.array_equal(np.asarray(output), shown)
    if isinstance(shown, list | tuple) and isinstance(output, list | tuple):
        pairs = zip(output, shown, strict=False)
        return len(output) == len(shown) and all(_unchanged(a, b) for a, b in pairs)
    same = output == shown
    return same if isinstance(same, bool) else True
