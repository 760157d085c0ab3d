"""The referee holds the coins and lets no one look before they have guessed.

A game is opened with a design and a key. Guesses come in as arrays. In a one-run game
they come all at once. In an adaptive game they come in turns: the coins of a turn's
canaries are revealed once the turn is in, a pass (0) included, and each canary may be
submitted once. What the design fixed, the referee holds to: the number of guesses, the
slots of each weight, the number of rounds. Every breach raises and reveals nothing.
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
    """Opens a game with a design and a key, takes guesses, and writes them down.

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
        self._used: NDArray[np.int64] | int = 0  # of what the rules limit
        self._over = False

    def __reduce__(self) -> NoReturn:
        raise InvalidRunError("a referee holds the key and cannot be pickled")

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
            InvalidRunError: The rules of the game were broken; nothing is revealed.
        """
        self._check_open()
        rules, n = self.design.rules, self.design.canaries
        where, what = checked(index, guess, canaries=n)
        if self._seen[where].any():
            raise InvalidRunError("a canary was named twice; each may be guessed once")
        turn = np.full(len(where), len(self._turns))
        rules.check_turn(where, turn)
        puts = rules.stakes(what, stake)
        used = self._used + rules.used(what, puts)
        rules.check_used(used, canaries=n)
        self._seen[where], self._used = True, used
        truth: NDArray[np.int8] = 2 * self._bits[where].astype(np.int8) - 1
        self._turns.append((where, what, truth, puts, turn))
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
            # The guesser cannot know them: they come from the key.
            uniforms=self._key.uniforms(self.design.rules.uniforms_needed),
        )

    def summary(self, scores: ArrayLike) -> ScoreSummary:
        """Return what scores of all canaries looked like, once the game is closed."""
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
    """Return one turn's canaries and guesses, if they are what they must be."""
    where, what = np.asarray(index), np.asarray(guess)
    if where.ndim != 1 or where.shape != what.shape:
        raise InvalidRunError(
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
        raise InvalidRunError(f"index must hold whole numbers from 0 to {canaries - 1}")
    if len(where) > 1 and len(np.unique(where)) < len(where):
        raise InvalidRunError("a canary was named twice; each may be guessed once")


def _check_guesses(what: NDArray[Any]) -> None:
    if what.dtype.kind == "i":  # many times quicker than to compare
        fine = what.min() >= -1 and what.max() <= 1
    else:
        fine = not ((what != 0) & (what != 1) & (what != -1)).any()
    if not fine:
        raise InvalidRunError("guess must hold -1, 0 or 1 only")
