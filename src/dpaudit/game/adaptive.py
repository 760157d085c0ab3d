"""Adaptive one-run auditing: guess, learn the coin, guess better.

The paper's Adaptive ORA. As in one-run auditing the mechanism runs once; but the
guesser submits canaries in turns and is told the coins of each turn before the next.
The rules of the design fix what must be fixed for the bound to be valid.

Reference: Keinan, Shenfeld and Ligett, https://arxiv.org/abs/2503.07199, definition
"Adaptive ORA"; docs/explanation/adaptive-rules.md for what must be fixed, and why.
"""

from typing import TypeVar

import numpy as np

from dpaudit.errors import VoidAuditError
from dpaudit.game.coins import Coins, Key
from dpaudit.game.design import Commitment, Design
from dpaudit.game.guessers import AdaptiveGuesser, Play
from dpaudit.game.mechanism import Mechanism
from dpaudit.game.one_run import check_pairs
from dpaudit.game.pairs import Pairs
from dpaudit.game.referee import Referee
from dpaudit.game.result import Result, conclude
from dpaudit.game.transcript import Transcript

__all__ = ["audit_adaptive", "drive", "play_adaptive"]

O = TypeVar("O")  # noqa: E741 (the paper's letter for an output)


def audit_adaptive(
    mechanism: Mechanism[O],
    guesser: AdaptiveGuesser[O],
    *,
    pairs: Pairs,
    design: Design,
    rng: np.random.Generator,
    key: Key | None = None,
) -> Result:
    """Audit a mechanism in one run, revealing coins as they are guessed.

    Args:
        mechanism: What is audited.
        guesser: Sees the output, guesses in turns, and learns each turn's coins.
        pairs: Two records for each coin to choose from.
        design: Fixed beforehand; its rules are adaptive rules.
        rng: The mechanism's randomness, unrelated to the coins.
        key: The secret of the coins, to be used once; a new one if left out.
    """
    key = Key.generate() if key is None else key
    transcript = play_adaptive(
        mechanism, guesser, pairs=pairs, design=design, rng=rng, key=key
    )
    return conclude(transcript, commitment=Commitment.to(key, design))


def play_adaptive(
    mechanism: Mechanism[O],
    guesser: AdaptiveGuesser[O],
    *,
    pairs: Pairs,
    design: Design,
    rng: np.random.Generator,
    key: Key,
) -> Transcript:
    """Play the game of an adaptive audit, without judging it."""
    if not design.rules.reveals:
        raise VoidAuditError(
            f"{type(design.rules).__name__} are rules of a one-run game, in which no "
            "coin is revealed; use audit_one_run, or rules such as "
            "AdaptiveCount(guesses=...)"
        )
    check_pairs(pairs, design)
    referee = Referee(design, key)
    data = pairs.choose(Coins(key=key, count=design.canaries).bits())
    drive(referee, guesser.play(mechanism.run(data, rng)))
    return referee.close()


def drive(referee: Referee, play: Play) -> None:
    """Let a guesser play to its end: it is sent coins, and never holds a referee."""
    turn = next(play, None)
    while turn is not None:
        revealed = referee.submit(turn.index, turn.guess, turn.stake)
        try:
            turn = play.send(revealed)
        except StopIteration:
            turn = None
