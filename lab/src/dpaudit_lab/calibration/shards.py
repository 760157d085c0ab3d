"""Local mechanisms block by block: a hundred million coins in the memory of a few.

A local mechanism treats each element by itself, so a block of elements can be chosen,
run, guessed and compared without the others. A shard is a run of blocks; what it leaves
is a tally, and tallies add up. Coins and the mechanism's randomness of a block come
from the key and the block's number alone, so any division into shards gives the same
tally. The guesser of a block sees that block's output only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.bounds.readings import Counts
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.auditors import check_pairs
from dpaudit.game.coins import Coins, Key
from dpaudit.game.design import Commitment, Design
from dpaudit.game.guessers import Guesser, Submission, everyone
from dpaudit.game.mechanism import Mechanism
from dpaudit.game.pairs import Pairs
from dpaudit.game.referee import checked
from dpaudit.game.result import Result, judge
from dpaudit.game.rules import OneRun

__all__ = ["LocalTally", "conclude_tallies", "tally_local"]

_BLOCK = 1 << 16  # elements; with another, the same key would give another run


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTally:
    """What one shard of an audit found.

    Attributes:
        design: What the audit was opened with.
        commitment: The commitment to key and design.
        first: The first block it covers.
        last: One past the last.
        guesses: Guesses made.
        correct: Guesses that were right.

    """

    design: Design
    commitment: Commitment
    first: int
    last: int
    guesses: int
    correct: int

    def merged(self, other: Self) -> Self:
        """Return the tally of this shard and the one that follows it."""
        if (other.commitment, other.design) != (self.commitment, self.design):
            raise InvalidRunError("the tallies belong to different audits")
        if other.first != self.last:
            raise InvalidRunError(
                f"a shard of blocks {self.first} to {self.last - 1} must be followed "
                f"by one that begins at {self.last}, got {other.first}; every block "
                "counts exactly once"
            )
        return type(self)(
            design=self.design,
            commitment=self.commitment,
            first=self.first,
            last=other.last,
            guesses=self.guesses + other.guesses,
            correct=self.correct + other.correct,
        )


def tally_local(
    mechanism: Mechanism[Any],
    guesser: Guesser[Any],
    *,
    pairs: Pairs,
    design: Design,
    key: Key,
    shard: int = 0,
    shards: int = 1,
) -> LocalTally:
    """Audit one shard of a local mechanism's elements.

    Args:
        mechanism: Local: running it on a block of the data gives that block's output.
        guesser: Guesses the coins of a block from the block's output.
        pairs: Two records for each coin to choose from.
        design: Fixed beforehand; its rules are ``OneRun``.
        key: The secret of the audit: coins and the mechanism's randomness.
        shard: Which shard, from 0.
        shards: Into how many the audit is divided.
    """
    if not isinstance(design.rules, OneRun):
        raise InvalidRunError(
            f"a tally counts guesses: the rules must be OneRun(guesses=...), got "
            f"{type(design.rules).__name__}"
        )
    _validate.whole_number("shards", shards, least=1)
    _validate.whole_number("shard", shard)
    if shard >= shards:
        raise InvalidInputError(f"there is no shard={shard} of shards={shards}")
    check_pairs(pairs, design)
    blocks = _blocks(design)
    first, last = blocks * shard // shards, blocks * (shard + 1) // shards
    coins = Coins(key=key, count=design.canaries)
    guesses = correct = 0
    for block in range(first, last):
        start = block * _BLOCK
        bits = coins.bits(start, min(start + _BLOCK, design.canaries))
        data = pairs.choose(bits, start=start)
        output = mechanism.run(data, key.generator("mechanism", block))
        made, right = _compare(guesser.guess(output), bits)
        guesses, correct = guesses + made, correct + right
    return LocalTally(
        design=design,
        commitment=Commitment.to(key, design),
        first=first,
        last=last,
        guesses=guesses,
        correct=correct,
    )


def conclude_tallies(tallies: Sequence[LocalTally]) -> Result:
    """Judge the tallies of all shards, in the order of their blocks."""
    if not tallies:
        raise InvalidInputError("there is no tally to judge")
    whole, design = tallies[0], tallies[0].design
    for tally in tallies[1:]:
        whole = whole.merged(tally)
    if (whole.first, whole.last) != (0, _blocks(design)):
        raise InvalidRunError(
            f"the tallies cover blocks {whole.first} to {whole.last - 1} of "
            f"{_blocks(design)}; all are needed"
        )
    design.rules.check_used(np.array([whole.guesses]), canaries=design.canaries)
    counts = Counts(
        canaries=design.canaries,
        guesses=design.guesses,
        correct=whole.correct,
        abstained=design.guesses - whole.guesses,
    )
    return judge(counts, design=design, commitment=whole.commitment)


def _blocks(design: Design) -> int:
    return (design.canaries - 1) // _BLOCK + 1


def _compare(handed_in: Submission, bits: NDArray[np.uint8]) -> tuple[int, int]:
    """Return how many guesses of a block were made, and how many were right."""
    index, guess = checked(handed_in.index, handed_in.guess, canaries=len(bits))
    named = bits if index is everyone(len(bits)) else bits[index]
    truth = 2 * named.view(np.int8) - np.int8(1)
    return int(np.count_nonzero(guess)), int(np.count_nonzero(guess == truth))
