"""One-run auditing: one run of the mechanism, one guess per coin, all at once.

Algorithm 1 of the paper. Coins choose one record of each pair, the mechanism runs once
on the data, the guesser sees the output, and the referee compares.

Reference: Steinke, Nasr and Jagielski, https://arxiv.org/abs/2305.08846; Keinan,
Shenfeld and Ligett, https://arxiv.org/abs/2503.07199, algorithm 1.
"""

from typing import TypeVar

import numpy as np

from dpaudit.errors import VoidAuditError
from dpaudit.game.coins import Coins, Key
from dpaudit.game.design import Commitment, Design
from dpaudit.game.guessers import Guesser
from dpaudit.game.mechanism import Mechanism
from dpaudit.game.pairs import Pairs
from dpaudit.game.referee import Referee
from dpaudit.game.result import Result, conclude
from dpaudit.game.transcript import Transcript

__all__ = ["audit_one_run", "check_adjacency", "check_pairs", "play_one_run"]

O = TypeVar("O")  # noqa: E741 (the paper's letter for an output)


def audit_one_run(
    mechanism: Mechanism[O],
    guesser: Guesser[O],
    *,
    pairs: Pairs,
    design: Design,
    rng: np.random.Generator,
    key: Key | None = None,
) -> Result:
    """Audit a mechanism in one run.

    Args:
        mechanism: What is audited.
        guesser: Sees the output and guesses.
        pairs: Two records for each coin to choose from.
        design: Fixed beforehand; its rules are one-run rules.
        rng: The mechanism's randomness, unrelated to the coins.
        key: The secret of the coins, to be used once; a new one if left out.

    Example:
        >>> from dpaudit import Extremes, OneRun, PureDP
        >>> from dpaudit.privacy.adjacency import Adjacency
        >>> class Noisy:
        ...     def run(self, data, rng):
        ...         return data + rng.laplace(scale=2.0, size=len(data))
        >>> claim = PureDP(epsilon=0.1, adjacency=Adjacency.REPLACE_ONE)
        >>> design = Design(canaries=10_000, rules=OneRun(guesses=500), claim=claim)
        >>> result = audit_one_run(
        ...     Noisy(),
        ...     Extremes(score=np.asarray, top=250, bottom=250),
        ...     pairs=Pairs(x=-1, y=1),
        ...     design=design,
        ...     rng=np.random.default_rng(1),
        ...     key=Key(bytes(32)),
        ... )
        >>> result.claim_test.refuted
        True
    """
    key = Key.generate() if key is None else key
    transcript = play_one_run(
        mechanism, guesser, pairs=pairs, design=design, rng=rng, key=key
    )
    return conclude(transcript, commitment=Commitment.to(key, design))


def play_one_run(
    mechanism: Mechanism[O],
    guesser: Guesser[O],
    *,
    pairs: Pairs,
    design: Design,
    rng: np.random.Generator,
    key: Key,
) -> Transcript:
    """Play the game of a one-run audit, without judging it."""
    if design.rules.reveals:
        raise VoidAuditError(
            f"{type(design.rules).__name__} are rules of an adaptive game; use "
            "audit_adaptive"
        )
    check_pairs(pairs, design)
    referee = Referee(design, key)
    data = pairs.choose(Coins(key=key, count=design.canaries).bits())
    handed_in = guesser.guess(mechanism.run(data, rng))
    referee.submit(handed_in.index, handed_in.guess, handed_in.stake)
    return referee.close()


def check_pairs(pairs: Pairs, design: Design) -> None:
    """Refuse pairs that do not play the game that the claim is about."""
    pairs.check(design.canaries)
    check_adjacency(pairs, design)


def check_adjacency(pairs: Pairs, design: Design) -> None:
    """Refuse pairs that test another adjacency than the claim's."""
    if pairs.adjacency is not design.claim.adjacency:
        raise VoidAuditError(
            f"the pairs test {pairs.adjacency} adjacency, but the claim "
            f"{design.claim} is for {design.claim.adjacency}; an epsilon for one says "
            "nothing exact about the other, so claim and pairs must name the same"
        )
