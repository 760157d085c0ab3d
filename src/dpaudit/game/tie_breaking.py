"""Tie-breaking by lots that decide between equal scores, and that no coin decided.

Guesses go by rank, so equal scores have to be put in some order. Whatever order it is,
the audit keeps its level as long as the coins have no part in it: given the order, who
is guessed is fixed by the output, and the coins are as fair as before. That must hold
in *every* design, with whatever seed it fixed, and not just on average over seeds: a
seed is public, the same for all the runs of a design, and perhaps in many designs. So
an order may come from two places only.

- *A key.* Lots are drawn from a stream of the committed key that has nothing to do with
  the stream of its coins.
- *The canaries' numbers*, if they were there before the coins were thrown. A seed in
  the design (``tie_seed``) then fixes a lot for each number, which is an order of the
  canaries like any other that was there before.

Where scores come without numbers and without a key no lot may decide. Rows are then all
there is to number, and rows may follow the coins: in a list of the included and one of
the others they do, and a public seed would give high lots to the one or the other.

Without lots, ties are broken *against the auditor*: among equal scores the excluded
rank above the included. This needs no seed, and it keeps the level. Guesses go from the
top ("included") and from the bottom ("excluded") inwards. Of all orders of a tied
group, this one has the fewest ones among its top a and the fewest zeros among its
bottom b, for all a and b at once, so also where one group reaches both ends. Hence, for
every outcome of the coins, it has the fewest correct guesses after each number. The
statistic of each rule is monotone in these counts. ``OneRun`` reads the last of them.
``WeightClasses``, heaviest first, reads a sum of them with coefficients of 0 or more
(Abel). ``Ranking`` reads the least of the tails at its looks, which only rises as
counts fall, and rejects no more than the outputs below one threshold of it. So the
statistic is at most that under the order of the canaries' labels, which came before the
coins whether or not anybody kept them: the audit refutes in a subset of the cases in
which that valid audit refutes. Cells of a histogram are tied groups to this argument,
as the order by score and label keeps cells apart too.

The lot of a number is that number and a salt, mixed as SplitMix64 does (Steele, Lea and
Flood, "Fast splittable pseudorandom number generators", 2014). With one salt no two
numbers have the same lot, and the same lots are drawn in every version of numpy.
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
    """A lot for every number.

    Attributes:
        salt: 64 bits, in which one set of lots differs from another.

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
        """Return lots of which a generator decides; one word is taken from it."""
        return cls(salt=int(rng.bit_generator.random_raw()))

    @classmethod
    def of(cls, design: Design, key: Key | None) -> Self | None:
        """Return the lots of an audit; None if nothing was fixed for them."""
        rng = tie_rng(design, key)
        return None if rng is None else cls.drawn(rng)

    def at(self, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the lots of these numbers, all different; a higher ranks higher."""
        return mixed(numbers, self.salt)

    def uniform(self, number: int) -> float:
        """Return the lot of a number as a uniform number in [0, 1)."""
        return int(self.at(np.array([number]))[0] >> np.uint64(11)) * 2.0**-53


def mixed(numbers: NDArray[np.int64], salt: int) -> NDArray[np.uint64]:
    """Return what each number and the salt are mixed to: 64 bits, one to one."""
    x = (numbers.view(np.uint64) + np.uint64(1)) * _STEP
    x += np.uint64(salt)
    x ^= x >> np.uint64(30)
    x *= _FIRST
    x ^= x >> np.uint64(27)
    x *= _SECOND
    x ^= x >> np.uint64(31)
    return np.asarray(x)


def tie_rng(design: Design, key: Key | None) -> np.random.Generator | None:
    """Return what decides between equal scores; None if nothing was fixed for it.

    Everyone who looks must come to the same lots, and nobody may choose them: they are
    the key's, which the commitment fixed before the run, or else those of the whole
    number ``tie_seed`` in the setting of the design.

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
