"""Whether a transcript keeps to the rules of its design, whatever coins it holds.

A referee refuses guesses as they come in. A record of them is looked at all at once:
each canary is named once, the turns are those that the rules have, no more guesses are
made and no more slots taken than were fixed, every stake is one that the rules know.
Coins do not matter for any of it, so it is checked with a key and without one, and it
takes memory for the guesses that were made and not for the canaries.
"""

import numpy as np

from dpaudit.errors import VoidAuditError
from dpaudit.game.coins import Key
from dpaudit.game.transcript import Transcript

__all__ = ["check_obeyed"]


def check_obeyed(transcript: Transcript, key: Key | None) -> None:
    """Refuse a transcript that no referee would have written.

    Raises:
        VoidAuditError: It breaks the rules of its design.

    Example:
        >>> from dpaudit import Design, OneRun, PureDP
        >>> rules, claim = OneRun(guesses=2), PureDP(epsilon=1.0)
        >>> design = Design(canaries=10**12, rules=rules, claim=claim)
        >>> ones = np.ones(3, np.int8)
        >>> blind = Transcript(
        ...     design=design,
        ...     index=np.arange(3),
        ...     guess=ones,
        ...     truth=ones,
        ...     stake=np.ones(3),
        ...     turn=np.zeros(3, np.int64),
        ...     uniforms=np.zeros(0),
        ... )
        >>> check_obeyed(blind, None)
        Traceback (most recent call last):
        dpaudit.errors.VoidAuditError: 3 guesses were made, but the design allows \
guesses=2; the number must be fixed before the run
    """
    _check_canaries(transcript)
    _check_turns(transcript)
    _check_stakes(transcript)
    transcript.check_made()
    _check_uniforms(transcript, key)


def _check_canaries(transcript: Transcript) -> None:
    index, n = transcript.index, transcript.design.canaries
    if len(index) and not (index.min() >= 0 and int(index.max()) < n):
        raise VoidAuditError(f"a canary is none of those numbered from 0 to {n - 1}")
    if len(np.unique(index)) < len(index):
        raise VoidAuditError("a canary was named twice; each may be guessed once")
    if not np.isin(transcript.guess, (-1, 0, 1)).all():
        raise VoidAuditError("a guess is -1, 1, or 0 for a pass")


def _check_turns(transcript: Transcript) -> None:
    turn, rules = transcript.turn, transcript.design.rules
    if not ((turn >= 0).all() and (turn[1:] >= turn[:-1]).all()):
        raise VoidAuditError("turns must come in order")
    last = int(turn.max(initial=0))
    # Elsewhere turns in which nothing was submitted leave no trace, and do not count.
    if rules.turns is not None and last >= rules.turns:
        raise VoidAuditError(f"turn {last} is one that the rules do not have")
    rules.check_turn(transcript.index, turn)


def _check_stakes(transcript: Transcript) -> None:
    rules = transcript.design.rules
    if not rules.are_stakes(transcript.guess, transcript.stake):
        raise VoidAuditError(
            f"a stake is none that {type(rules).__name__} has, or is put on a pass"
        )


def _check_uniforms(transcript: Transcript, key: Key | None) -> None:
    """Check committed chance: one number for each round, and one for the end."""
    size, held = transcript.design.rules.uniforms, transcript.uniforms
    if len(held) != size:
        raise VoidAuditError(
            f"there are {len(held)} uniforms, and the rules need {size}"
        )
    if key is not None and not np.array_equal(held, key.uniforms(size)):
        raise VoidAuditError("the uniforms are not those of the key")
