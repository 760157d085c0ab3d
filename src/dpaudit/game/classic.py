"""Classic auditing: many runs, one coin each.

Algorithm 2 of the paper. In each run a coin decides which of two records stands at one
place of a fixed data set; the guesser names it or passes. Runs are independent, so it
finds what one run cannot: it is tight for every mechanism, at the price of the runs.

Reference: Keinan, Shenfeld and Ligett, https://arxiv.org/abs/2503.07199, algorithm 2;
Jagielski, Ullman and Oprea, https://arxiv.org/abs/2006.07709.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.errors import InvalidInputError, VoidAuditError
from dpaudit.game.coins import Coins, Key
from dpaudit.game.design import Design
from dpaudit.game.mechanism import Mechanism
from dpaudit.game.one_run import check_adjacency
from dpaudit.game.pairs import Pairs
from dpaudit.game.referee import Referee
from dpaudit.game.result import Result, conclude
from dpaudit.game.rules import SeparateRuns

__all__ = ["audit_classic"]

O = TypeVar("O")  # noqa: E741 (the paper's letter for an output)


def audit_classic(
    mechanism: Mechanism[O],
    guess: Callable[[O], int],
    *,
    base: NDArray[Any],
    place: int,
    pair: Pairs,
    design: Design,
    rng: np.random.Generator,
    key: Key | None = None,
) -> Result:
    """Audit a mechanism in many runs.

    Args:
        mechanism: What is audited.
        guess: Says of one output +1 (y), -1 (x) or 0 (pass).
        base: The data set; the record at ``place`` is the coin's to choose.
        place: Which record.
        pair: The two records x and y; records that are rows of several values as lists
            of one row.
        design: Fixed beforehand, with rules ``SeparateRuns``; ``canaries`` is the
            number of runs.
        rng: The mechanism's randomness, unrelated to the coins.
        key: The secret of the coins, to be used once; a new one if left out.

    Example:
        >>> from dpaudit import PureDP, SeparateRuns
        >>> from dpaudit.privacy.adjacency import Adjacency
        >>> class LeakyCount:
        ...     def run(self, data, rng):
        ...         return data.sum() + rng.laplace(scale=0.2)
        >>> claim = PureDP(epsilon=1.0, adjacency=Adjacency.REPLACE_ONE)
        >>> result = audit_classic(
        ...     LeakyCount(),
        ...     lambda total: 1 if total > 3.5 else -1,
        ...     base=np.array([1, 1, 1, 0]),
        ...     place=3,
        ...     pair=Pairs(x=0, y=1),
        ...     design=Design(
        ...         canaries=300, rules=SeparateRuns(guesses=300), claim=claim
        ...     ),
        ...     rng=np.random.default_rng(1),
        ...     key=Key(bytes(32)),
        ... )
        >>> result.claim_test.refuted
        True
    """
    if not isinstance(design.rules, SeparateRuns):
        raise VoidAuditError(
            "in classic auditing every coin has a run of its own: its rules are "
            f"SeparateRuns(guesses=...), got {type(design.rules).__name__}"
        )
    _validate.whole_number("place", place)
    if place >= len(base):
        raise InvalidInputError(f"there is no place={place} among {len(base)} records")
    check_adjacency(pair, design)
    key = Key.generate() if key is None else key
    referee = Referee(design, key)
    bits = Coins(key=key, count=design.canaries).bits()
    # A type that holds base and records alike: nothing is rounded or cut off.
    data = np.array(base, dtype=np.result_type(np.asarray(base), pair.x, pair.y))
    records = _records(pair)
    guesses = []
    for bit in bits:
        data[place] = records[bit]
        guesses.append(guess(mechanism.run(data.copy(), rng)))
    referee.submit(np.arange(design.canaries), guesses)
    return conclude(referee.close(), commitment=referee.commitment)


def _records(pair: Pairs) -> tuple[Any, Any]:
    """Return the two records of a single pair."""
    if not pair.x.ndim:
        return pair.x, pair.y
    if len(pair.x) != 1:
        raise InvalidInputError(
            f"classic auditing exchanges one pair of records, got {len(pair.x)} pairs"
        )
    return pair.x[0], pair.y[0]
