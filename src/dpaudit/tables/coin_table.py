"""The coins of a stream of canaries, by id, each block of them derived once.

``Coins`` derives a block of 65,536 coins at a time. Canaries that come in no order
touch every block again and again, so blocks are kept as they are derived, a bit per
coin: a billion coins take 125 MB, and less where only some blocks are asked for.
"""

from typing import final

import numpy as np
from numpy.typing import NDArray

from dpaudit.game.coins import BLOCK, Coins

__all__ = ["CoinTable"]


@final
class CoinTable:
    """Looks coins up, for ids in any order."""

    def __init__(self, coins: Coins) -> None:
        self._coins = coins
        self._bits = np.zeros((coins.count + 7) // 8, np.uint8)
        self._derived = np.zeros((coins.count - 1) // BLOCK + 1, bool)

    def at(self, ids: NDArray[np.int64]) -> NDArray[np.uint8]:
        """Return the coins of canaries whose ids are known to be in range."""
        first, last = int(ids.min()) // BLOCK, int(ids.max()) // BLOCK
        for block in first + np.flatnonzero(~self._derived[first : last + 1]):
            self._derive(int(block))
        return np.asarray(self._bits[ids >> 3] >> (ids & 7).astype(np.uint8) & 1)

    def _derive(self, block: int) -> None:
        here = self._bits[block * BLOCK // 8 : (block + 1) * BLOCK // 8]
        here[:] = self._coins.packed(block)[: len(here)]  # the last may be shorter
        self._derived[block] = True
