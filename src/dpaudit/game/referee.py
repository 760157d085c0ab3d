"""The referee holds the coins and lets no one look before they have guessed.

In the one-run game all guesses come at once and nothing is revealed before. Whoever
guesses hands in arrays and holds no reference to the coins.
"""

from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit.errors import VoidAuditError
from dpaudit.game.coins import Coins, Key
from dpaudit.game.design import Commitment, Design
from dpaudit.game.transcript import Transcript

__all__ = ["Referee"]


@final
class Referee:
    """Opens a game with a design and a key, and takes the guesses once.

    Example:
        >>> from dpaudit import ApproxDP
        >>> claim = ApproxDP(epsilon=1.0, delta=0.0)
        >>> design = Design(canaries=10, guesses=2, claim=claim)
        >>> referee = Referee(design, Key(bytes(32)))
        >>> transcript = referee.submit(index=[0, 3], guess=[1, -1])
        >>> transcript.truth
        array([ 1, -1], dtype=int8)
    """

    def __init__(self, design: Design, key: Key) -> None:
        self.design = design
        self.commitment = Commitment.to(key, design)
        self._coins = Coins(key=key, count=design.canaries)
        self._over = False

    def submit(self, index: ArrayLike, guess: ArrayLike) -> Transcript:
        """Take all guesses at once and reveal the coins of the canaries guessed.

        Args:
            index: Canaries, each at most once, counted from 0.
            guess: For each, +1 (included), -1 (excluded) or 0 (pass).

        Raises:
            VoidAuditError: The rules of the game were broken; nothing is revealed.
        """
        where, what = np.asarray(index), np.asarray(guess)
        self._check(where, what)
        self._over = True
        where, what = where.astype(np.int64), what.astype(np.int8)
        truth = 2 * self._coins.at(where).astype(np.int8) - 1
        return Transcript(design=self.design, index=where, guess=what, truth=truth)

    def _check(self, where: NDArray[Any], what: NDArray[Any]) -> None:
        n, r = self.design.canaries, self.design.guesses
        if self._over:
            raise VoidAuditError("guesses were handed in before: a game is played once")
        if where.ndim != 1 or where.shape != what.shape:
            raise VoidAuditError(
                f"index and guess must be two lists of one length, got shapes "
                f"{where.shape} and {what.shape}"
            )
        if where.dtype.kind not in "iu" or not np.all((where >= 0) & (where < n)):
            raise VoidAuditError(f"index must hold whole numbers from 0 to {n - 1}")
        if len(np.unique(where)) < len(where):
            raise VoidAuditError("a canary was named twice; each may be guessed once")
        if not np.all(np.isin(what, (-1, 0, 1))):
            raise VoidAuditError("guess must hold -1, 0 or 1 only")
        if np.count_nonzero(what) > r:
            raise VoidAuditError(
                f"{np.count_nonzero(what)} guesses were made, but the design allows "
                f"guesses={r}; the number must be fixed before the run"
            )
