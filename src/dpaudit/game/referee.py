"""The referee holds the coins and lets no one look before they have guessed.

A game is opened with a design and a key. Guesses come in as arrays. In a one-run game
they come all at once. In an adaptive game they come in turns: the coins of a turn's
canaries are revealed once the turn is in, a pass (0) included, and each canary may be
submitted once. What the design fixed, the referee holds to: the number of guesses, the
slots of each weight, the number of rounds. Every breach raises and reveals nothing.
"""

from typing import Any, NoReturn, assert_never, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit.errors import VoidAuditError
from dpaudit.game.coins import Coins, Key
from dpaudit.game.design import Commitment, Design
from dpaudit.game.guessers import everyone
from dpaudit.game.rules import (
    LARGEST_WEIGHT,
    AdaptiveBets,
    AdaptiveClasses,
    AdaptiveCount,
    AdaptiveRounds,
    Classes,
    OneRun,
    Ranking,
    check_number,
    check_slots,
    is_adaptive,
    stake_range,
)
from dpaudit.game.score_summary import ScoreSummary
from dpaudit.game.transcript import Transcript

__all__ = ["Referee", "checked"]


@final
class Referee:
    """Opens a game with a design and a key, takes guesses, and writes them down.

    Example:
        >>> from dpaudit import AdaptiveCount, PureDP
        >>> rules = AdaptiveCount(guesses=2)
        >>> design = Design(canaries=10, rules=rules, claim=PureDP(epsilon=1.0))
        >>> referee = Referee(design, Key(bytes(32)))
        >>> referee.submit(index=[0, 3], guess=[1, 0])  # a guess, and a pass
        array([ 1, -1], dtype=int8)
        >>> referee.submit(index=[4], guess=[-1])
        array([-1], dtype=int8)
        >>> referee.close().reading()
        Counts(canaries=10, guesses=2, correct=2, alternatives=2, records_per_coin=1, \
adaptive=True)
    """

    def __init__(self, design: Design, key: Key) -> None:
        self.design = design
        self.commitment = Commitment.to(key, design)
        self._key = key
        self._bits = Coins(key=key, count=design.canaries).bits()
        self._seen = np.zeros(design.canaries, bool)
        self._turns: list[tuple[NDArray[Any], ...]] = []
        self._made = 0
        self._over = False

    def __reduce__(self) -> NoReturn:
        raise VoidAuditError("a referee holds the key and cannot be pickled")

    def submit(
        self, index: ArrayLike, guess: ArrayLike, stake: ArrayLike | None = None
    ) -> NDArray[np.int8]:
        """Take one turn's guesses and return the coins of its canaries, -1 or +1.

        Args:
            index: Canaries, each at most once in the whole game, counted from 0.
            guess: For each, +1 (included, or y), -1 (excluded, or x) or 0 (pass).
            stake: For each, the weight of the class it takes a slot of, its log-odds
                of being right, or the chance of that, as the rules have it. A round
                without stakes counts all its guesses the same.

        Raises:
            VoidAuditError: The rules of the game were broken; nothing is revealed.
        """
        self._check_turn()
        where, what = checked(index, guess, canaries=self.design.canaries)
        if self._seen[where].any():
            raise VoidAuditError("a canary was named twice; each may be guessed once")
        self._check_round(where)
        puts = self._stakes(what, stake)
        self._check_number(what, puts)
        self._seen[where] = True
        self._made += int(np.count_nonzero(what))
        truth: NDArray[np.int8] = 2 * self._bits[where].astype(np.int8) - 1
        turn = np.full(len(where), len(self._turns))
        self._turns.append((where, what, truth, puts, turn))
        return truth.copy()

    def close(self) -> Transcript:
        """End the game and return its record."""
        self._over = True
        columns = [np.concatenate(c) for c in zip(*self._turns, strict=True)]
        index, guess, truth, stake, turn = columns or [np.zeros(0)] * 5
        rules = self.design.rules
        # One for each round, and one for the noise at the end.
        uniforms = len(rules.weights) + 1 if isinstance(rules, AdaptiveRounds) else 0
        return Transcript(
            design=self.design,
            index=index.astype(np.int64),
            guess=guess.astype(np.int8),
            truth=truth.astype(np.int8),
            stake=stake,
            turn=turn.astype(np.int64),
            # The guesser cannot know them: they come from the key.
            uniforms=self._key.uniforms(uniforms),
        )

    def summary(self, scores: ArrayLike) -> ScoreSummary:
        """Return what scores of all canaries looked like, once the game is closed."""
        if not self._over:
            raise VoidAuditError("the game is not over: close it first")
        return ScoreSummary.of(scores, self._bits)

    def _check_turn(self) -> None:
        rules = self.design.rules
        if self._over:
            raise VoidAuditError("the game is closed: it is played once")
        if self._turns and not is_adaptive(rules):
            raise VoidAuditError("guesses were handed in before: a game is played once")
        if isinstance(rules, AdaptiveRounds) and (
            len(self._turns) == len(rules.weights)
        ):
            raise VoidAuditError(
                f"all {len(rules.weights)} planned rounds were played; their number "
                "must be fixed before the run"
            )

    def _check_round(self, where: NDArray[np.int64]) -> None:
        rules, turn = self.design.rules, len(self._turns)
        if not isinstance(rules, AdaptiveRounds) or rules.jump is None:
            return
        rounds = len(rules.weights)
        if np.any(where % rounds != turn):
            raise VoidAuditError(
                f"with a jump, canary i is played in round i modulo {rounds}: round "
                f"{turn} is for canaries {turn}, {turn + rounds}, and so on"
            )

    def _stakes(
        self, what: NDArray[Any], stake: ArrayLike | None
    ) -> NDArray[np.float64]:
        rules = self.design.rules
        match rules:
            case OneRun() | Ranking() | AdaptiveCount():
                if stake is not None:
                    raise VoidAuditError(
                        f"{type(rules).__name__} has no stakes: every guess counts "
                        "the same"
                    )
                return np.ones(len(what))
            case Classes() | AdaptiveClasses() | AdaptiveRounds() | AdaptiveBets():
                pass
            case _:
                assert_never(rules)
        if stake is None and not isinstance(rules, AdaptiveRounds):
            raise VoidAuditError(
                f"{type(rules).__name__} needs a stake for every guess"
            )
        equal = np.full(len(what), LARGEST_WEIGHT)
        puts = equal if stake is None else _numbers(stake)
        if puts.shape != what.shape:
            raise VoidAuditError(
                f"stake must be as long as guess, got shapes {puts.shape} and "
                f"{what.shape}"
            )
        made, (low, high) = puts[what != 0], stake_range(rules)
        if not np.all((made >= low) & (made <= high)):
            if isinstance(rules, AdaptiveBets):
                raise VoidAuditError("a stake is a chance and must be in [0, 1]")
            kind = "log-odds" if isinstance(rules, AdaptiveRounds) else "a weight"
            raise VoidAuditError(
                f"a stake is {kind} and must be positive, from {low:g} to {high:g}"
            )
        return np.where(what != 0, puts, 0.0)

    def _check_number(self, what: NDArray[Any], puts: NDArray[np.float64]) -> None:
        rules = self.design.rules
        if not isinstance(rules, Classes | AdaptiveClasses):
            made = self._made + int(np.count_nonzero(what))
            return check_number(made, self.design.guesses)
        if not np.all(np.isin(puts[what != 0], rules.weights)):
            raise VoidAuditError(f"a stake must be one of the weights {rules.weights}")
        before = [turn[3] for turn in self._turns]
        return check_slots(rules, np.concatenate([*before, puts]))


def _numbers(stake: ArrayLike) -> NDArray[np.float64]:
    try:
        return np.array(stake, np.float64)
    except (TypeError, ValueError) as error:
        raise VoidAuditError(f"stake must hold numbers: {error}") from error


def checked(
    index: ArrayLike, guess: ArrayLike, *, canaries: int
) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """Return one turn's canaries and guesses, if they are what they must be."""
    where, what = np.asarray(index), np.asarray(guess)
    if where.ndim != 1 or where.shape != what.shape:
        raise VoidAuditError(
            f"index and guess must be two lists of one length, got shapes "
            f"{where.shape} and {what.shape}"
        )
    if not len(where):
        return where.astype(np.int64), what.astype(np.int8)
    # All of them in order, from the one array that says so, need no search.
    if where is not everyone(canaries):
        _check_canaries(where, canaries)
    _check_guesses(what)
    return where.astype(np.int64, copy=False), what.astype(np.int8, copy=False)


def _check_canaries(where: NDArray[Any], canaries: int) -> None:
    if where.dtype.kind not in "iu" or where.min() < 0 or where.max() >= canaries:
        raise VoidAuditError(f"index must hold whole numbers from 0 to {canaries - 1}")
    if len(where) > 1 and len(np.unique(where)) < len(where):
        raise VoidAuditError("a canary was named twice; each may be guessed once")


def _check_guesses(what: NDArray[Any]) -> None:
    if what.dtype.kind == "i":  # many times quicker than to compare
        fine = what.min() >= -1 and what.max() <= 1
    else:
        fine = not ((what != 0) & (what != 1) & (what != -1)).any()
    if not fine:
        raise VoidAuditError("guess must hold -1, 0 or 1 only")
