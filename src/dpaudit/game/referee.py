"""The referee: keeps the coins secret until their canaries have been guessed.

A game is opened with a design and a key. Guesses are submitted as arrays: in a one-run
game all at once, in an adaptive game in turns. The coins of a turn's canaries are
revealed once the turn is submitted, including those of abstentions (0), and each canary
may be submitted once. The referee enforces what the design fixed: the number of
guesses, the slots of each weight, the number of rounds. Every violation raises and
reveals nothing.
"""

from typing import Any, NoReturn, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit.errors import InvalidRunError
from dpaudit.game.coins import Coins, Key
from dpaudit.game.design import Commitment, Design, check_independent_coins
from dpaudit.game.guessers import everyone
from dpaudit.game.score_summary import ScoreSummary
from dpaudit.game.transcript import Transcript

__all__ = ["Referee", "checked"]


@final
class Referee:
    """Opens a game with a design and a key, accepts guesses, and records them.

    Reference: Keinan, Shenfeld and Ligett, "alg:one-run-auditing-auditor",
    "def:adaptive-ora".

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
        Counts(canaries=10, guesses=2, correct=2, adaptive=True)
    """

    def __init__(self, design: Design, key: Key) -> None:
        check_independent_coins(design)
        self.design = design
        self.commitment = Commitment.to(key, design)
        self._key = key
        self._bits = Coins(key=key, count=design.canaries).bits()
        self._seen = np.zeros(design.canaries, bool)
        self._turns: list[tuple[NDArray[np.generic], ...]] = []
        self._used: NDArray[np.int64] | int = 0  # of the guesses or slots allowed
        self._over = False

    def __reduce__(self) -> NoReturn:
        raise InvalidRunError("a referee holds the key and cannot be pickled")

    def submit(
        self, index: ArrayLike, guess: ArrayLike, stake: ArrayLike | None = None
    ) -> NDArray[np.int8]:
        """Record one turn's guesses and return the coins of its canaries, -1 or +1.

        Args:
            index: Canaries, each at most once in the whole game, counted from 0.
            guess: For each, +1 (included, or y), -1 (excluded, or x) or 0 (abstain).
            stake: For each, depending on the rules, the weight of the class whose slot
                it takes, or the log-odds or the probability of being correct. In a
                round without stakes all guesses count the same.

        Raises:
            InvalidRunError: The rules of the game were violated; nothing is revealed.
        """
        self._check_open()
        rules, n = self.design.rules, self.design.canaries
        where, what = checked(index, guess, canaries=n)
        if self._seen[where].any():
            raise InvalidRunError("a canary was named twice; each may be guessed once")
        turn = np.full(len(where), len(self._turns))
        rules.check_turn(where, turn)
        stakes = rules.stakes(what, stake)
        used = self._used + rules.used(what, stakes)
        rules.check_used(used, canaries=n)
        self._seen[where], self._used = True, used
        truth: NDArray[np.int8] = 2 * self._bits[where].astype(np.int8) - 1
        self._turns.append((where, what, truth, stakes, turn))
        return truth.copy()

    def close(self) -> Transcript:
        """End the game and return its record."""
        self._over = True
        columns = [np.concatenate(c) for c in zip(*self._turns, strict=True)]
        index, guess, truth, stake, turn = columns or [np.zeros(0)] * 5
        return Transcript(
            design=self.design,
            index=index.astype(np.int64),
            guess=guess.astype(np.int8),
            truth=truth.astype(np.int8),
            stake=stake,
            turn=turn.astype(np.int64),
            # Unknown to the guesser: they come from the key.
            uniforms=self._key.uniforms(self.design.rules.uniforms_needed),
        )

    def summary(self, scores: ArrayLike) -> ScoreSummary:
        """Return the summary of all canaries' scores, once the game is closed."""
        if not self._over:
            raise InvalidRunError("the game is not over: close it first")
        return ScoreSummary.of(scores, self._bits)

    def _check_open(self) -> None:
        turns = self.design.rules.turns
        if self._over:
            raise InvalidRunError("the game is closed: it is played once")
        if turns is None or len(self._turns) < turns:
            return
        if not self.design.rules.adaptive:
            raise InvalidRunError(
                "guesses were handed in before: a game is played once"
            )
        raise InvalidRunError(
            f"all {turns} planned rounds were played; their number must be fixed "
            "before the run"
        )


def checked(
    index: ArrayLike, guess: ArrayLike, *, canaries: int
) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """Return one turn's canaries and guesses as arrays, if they are valid."""
    where, what = np.asarray(index), np.asarray(guess)
    if where.ndim != 1 or where.shape != what.shape:
        raise InvalidRunError(
            f"index and guess must be two lists of one length, got shapes "
            f"{where.shape} and {what.shape}"
        )
    if not len(where):
        return where.astype(np.int64), what.astype(np.int8)
    # The cached array of all canaries in order need not be checked.
    if where is not everyone(canaries):
        _check_canaries(where, canaries)
    _check_guesses(what)
    return where.astype(np.int64, copy=False), what.astype(np.int8, copy=False)


def _check_canaries(where: NDArray[Any], canaries: int) -> None:
    if where.dtype.kind not in "iu" or where.min() < 0 or where.max() >= canaries:
        raise InvalidRunError(f"index must hold whole numbers from 0 to {canaries - 1}")
    if len(where) > 1 and len(np.unique(where)) < len(where):
        raise InvalidRunError("a canary was named twice; each may be guessed once")


def _check_guesses(what: NDArray[Any]) -> None:
    if what.dtype.kind == "i":  # many times faster than comparisons
        fine = what.min() >= -1 and what.max() <= 1
    else:
        fine = not ((what != 0) & (what != 1) & (what != -1)).any()
    if not fine:
        raise InvalidRunError("guess must hold -1, 0 or 1 only")
