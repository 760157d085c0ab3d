"""Tie-breaking between equal scores, independently of the coins.

Guesses are made by rank, so equal scores have to be put in some order. The audit keeps
its level under any order that does not depend on the coins: given the order, the output
determines which canaries are guessed, and the coins are as fair as before. That must
hold in *every* design, with whatever seed it fixed, and not just on average over seeds:
a seed is public, the same for all runs of a design, and perhaps used in many designs.
So an order may come from two sources only.

- *A key.* The order is drawn from a stream of the committed key that is independent of
  the stream of its coins.
- *The canaries' numbers*, if they were assigned before the coin flips. A seed in the
  design (``tie_seed``) then fixes a random value for each number, which orders the
  canaries as any other order fixed before the coin flips would.

Scores without numbers and without a key must not be ordered at random. Only their rows
could be numbered, and rows may depend on the coins: if the included are listed before
the others they do, and a public seed would then favour one of the two groups.

Otherwise ties are broken *against the auditor*: among equal scores the excluded rank
above the included. This needs no seed, and it keeps the level. Guesses go from the top
("included") and from the bottom ("excluded") inwards. Of all orders of a tied group,
this one has the fewest ones among its top a and the fewest zeros among its bottom b,
for all a and b at once, so also where one group reaches both ends. Hence, for every
outcome of the coins, it has the fewest correct guesses after any number of guesses. The
statistic of each rule is monotone in these counts. ``OneRun`` reads the last of them.
``WeightClasses``, heaviest first, reads a sum of them with nonnegative coefficients
(Abel summation). ``Ranking`` reads the smallest of the tails at its looks, which only
rises as counts fall, and rejects no more than the outputs below one threshold of it. So
the statistic is at most that under the order of the canaries' labels, which were
assigned before the coin flips whether or not anybody kept them: the audit refutes in a
subset of the cases in which that valid audit refutes. In this argument the bins of a
histogram are tied groups, as the order by score and label keeps bins apart too.

The tie-breaking value of a number is that number and a salt, mixed as in SplitMix64
(Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014). Values
under one salt are all different, and they are the same in every version of numpy.
"""

from dataclasses import dataclass
from typing import Self, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError
from dpaudit.game.coins import Key
from dpaudit.game.design import Design

__all__ = ["TieBreaking", "mixed", "tie_rng"]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TieBreaking:
    """A random value for every canary number, which decides between equal scores.

    Attributes:
        salt: 64 bits that determine all the values.

    Example:
        >>> TieBreaking(salt=7).at(np.array([0, 1, 2])).argsort()
        array([1, 0, 2])
        >>> TieBreaking(salt=9).at(np.array([0, 1, 2])).argsort()
        array([2, 0, 1])
    """

    salt: int

    def __post_init__(self) -> None:
        if not 0 <= self.salt < 1 << 64:
            raise InvalidInputError(f"a salt has 64 bits, got salt={self.salt}")

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> Self:
        """Return tie-breaking with a salt drawn from a generator (one raw word)."""
        return cls(salt=int(rng.bit_generator.random_raw()))

    @classmethod
    def of(cls, design: Design, key: Key | None) -> Self | None:
        """Return the tie-breaking of an audit; None if it has neither key nor seed."""
        rng = tie_rng(design, key)
        return None if rng is None else cls.drawn(rng)

    def at(self, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the values of these numbers, all different; a higher ranks higher."""
        return mixed(numbers, self.salt)

    def uniform(self, number: int) -> float:
        """Return the value of a number as a uniform number in [0, 1)."""
        return int(self.at(np.array([number]))[0] >> np.uint64(11)) * 2.0**-53


def mixed(numbers: NDArray[np.int64], salt: int) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each number under a salt; it is one to one."""
    x = (numbers.view(np.uint64) + np.uint64(1)) * _STEP
    x += np.uint64(salt)
    x ^= x >> np.uint64(30)
    x *= _FIRST
    x ^= x >> np.uint64(27)
    x *= _SECOND
    x ^= x >> np.uint64(31)
    return np.asarray(x)


def tie_rng(design: Design, key: Key | None) -> np.random.Generator | None:
    """Return the generator for tie-breaking; None without a key and a ``tie_seed``.

    Everyone who recomputes the order must get the same one, and nobody may choose it:
    it comes from the key, which the commitment fixed before the run, or else from the
    whole number ``tie_seed`` in the setting of the design.

    Example:
        >>> from dpaudit import OneRun, PureDP
        >>> claim = PureDP(epsilon=1.0)
        >>> design = Design(canaries=9, rules=OneRun(guesses=5), claim=claim)
        >>> tie_breaking = TieBreaking.drawn(tie_rng(design, Key(bytes(32))))
        >>> tie_breaking.at(np.arange(5)).argsort()
        array([3, 1, 0, 4, 2])
        >>> tie_rng(design, None) is None
        True
    """
    if key is not None:
        return key.generator("ties", 0)
    seed = design.setting.tie_seed
    return None if seed is None else np.random.default_rng(seed)
