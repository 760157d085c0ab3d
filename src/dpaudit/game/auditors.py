"""The three auditors: one run, one run with coins revealed, and many runs.

- ``audit_one_run``: coins choose one record of each pair, the mechanism runs once on
  the data, the guesser sees the output and guesses all coins at once, and the referee
  compares. Algorithm 1 of the paper.
- ``audit_adaptive``, the paper's Adaptive ORA: the mechanism runs once as well, but the
  guesser submits canaries in turns, and the coins of each turn are revealed before the
  next. The rules of the design fix what must be fixed for the bound to be valid.
- ``audit_classic``: many runs, one coin each. In each run a coin decides which of two
  records is at one place of a fixed data set; the guesser guesses it or abstains. Runs
  are independent, so it detects what one run cannot: it is tight for every mechanism,
  at the cost of the runs. Algorithm 2 of the paper.

Reference: Keinan, Shenfeld and Ligett, https://arxiv.org/abs/2503.07199, algorithms 1
and 2 and definition "Adaptive ORA"; Steinke, Nasr and Jagielski,
https://arxiv.org/abs/2305.08846; Jagielski, Ullman and Oprea,
https://arxiv.org/abs/2006.07709; docs/explanation/bounds.md#adaptive-rules for what an
adaptive audit must fix, and why.
"""

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from dpaudit import _validate
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.coins import Coins, Key
from dpaudit.game.design import Commitment, Design
from dpaudit.game.guessers import AdaptiveGuesser, Guesser, Play
from dpaudit.game.key_use import judge_once, transcript_digest
from dpaudit.game.mechanism import Mechanism
from dpaudit.game.pairs import Pairs, Records
from dpaudit.game.referee import Referee
from dpaudit.game.result import Result, conclude
from dpaudit.game.rules import SeparateRuns
from dpaudit.game.transcript import Transcript

__all__ = [
    "audit_adaptive",
    "audit_classic",
    "audit_one_run",
    "check_adjacency",
    "check_pairs",
    "drive",
    "play_adaptive",
    "play_one_run",
]

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
    """Return the result of auditing a mechanism in one run.

    Reference: Keinan, Shenfeld and Ligett, "alg:one-run-auditing-auditor".

    Args:
        mechanism: The mechanism to audit.
        guesser: Sees the output and guesses.
        pairs: Two records for each coin to choose from.
        design: Fixed before the run; its rules are one-run rules.
        rng: The mechanism's randomness, independent of the coins.
        key: The secret of the coins, to be used once; a new one by default.

    Example:
        >>> from dpaudit import Extremes, OneRun, PureDP
        >>> from dpaudit.privacy.guarantees import Adjacency
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
    """Return the transcript of a one-run audit, without judging it.

    Reference: Keinan, Shenfeld and Ligett, "alg:one-run-auditing-auditor".
    """
    _validate.kind("design", design, Design)
    if design.rules.adaptive:
        raise InvalidRunError(
            f"{type(design.rules).__name__} are rules of an adaptive game; use "
            "audit_adaptive"
        )
    check_pairs(pairs, design)
    _check_players(mechanism, guesser, "guess", rng)
    referee = Referee(design, key)
    data = pairs.choose(Coins(key=key, count=design.canaries).bits())
    handed_in = guesser.guess(mechanism.run(data, rng))
    referee.submit(handed_in.index, handed_in.guess, handed_in.stake)
    return _closed(referee, key)


def _check_players(
    mechanism: object, guesser: object, method: str, rng: object
) -> None:
    """Refuse a mechanism, guesser or rng of the wrong kind, before anything is run."""
    if not callable(getattr(mechanism, "run", None)):
        raise InvalidInputError(
            "mechanism must have a method run(data, rng) that returns the output, got "
            f"mechanism={mechanism!r:.60}"
        )
    if not callable(getattr(guesser, method, None)):
        raise InvalidInputError(
            f"guesser must have a method {method}(output), got guesser={guesser!r:.60}"
        )
    _validate.generator("rng", rng)


def check_pairs(pairs: Pairs, design: Design) -> None:
    """Refuse pairs that do not fit the design's canaries and the claim's adjacency."""
    pairs.check(design.canaries)
    check_adjacency(pairs, design)


def check_adjacency(pairs: Pairs, design: Design) -> None:
    """Refuse pairs with another adjacency than the claim's."""
    if pairs.adjacency is not design.claim.adjacency:
        raise InvalidRunError(
            f"the pairs test {pairs.adjacency} adjacency, but the claim "
            f"{design.claim} is for {design.claim.adjacency}; an epsilon for one "
            "implies nothing exact about the other, so claim and pairs must name the "
            "same"
        )


def audit_adaptive(
    mechanism: Mechanism[O],
    guesser: AdaptiveGuesser[O],
    *,
    pairs: Pairs,
    design: Design,
    rng: np.random.Generator,
    key: Key | None = None,
) -> Result:
    """Return the result of auditing a mechanism in one run, revealing coins in turns.

    Reference: Keinan, Shenfeld and Ligett, "def:adaptive-ora".

    Args:
        mechanism: The mechanism to audit.
        guesser: Sees the output, guesses in turns, and learns each turn's coins.
        pairs: Two records for each coin to choose from.
        design: Fixed before the run; its rules are adaptive rules.
        rng: The mechanism's randomness, independent of the coins.
        key: The secret of the coins, to be used once; a new one by default.
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
    """Return the transcript of an adaptive audit, without judging it.

    Reference: Keinan, Shenfeld and Ligett, "def:adaptive-ora".
    """
    _validate.kind("design", design, Design)
    if not design.rules.adaptive:
        raise InvalidRunError(
            f"{type(design.rules).__name__} are rules of a one-run game, in which no "
            "coin is revealed; use audit_one_run, or rules such as "
            "AdaptiveCount(guesses=...)"
        )
    check_pairs(pairs, design)
    _check_players(mechanism, guesser, "play", rng)
    referee = Referee(design, key)
    data = pairs.choose(Coins(key=key, count=design.canaries).bits())
    drive(referee, guesser.play(mechanism.run(data, rng)))
    return _closed(referee, key)


def _closed(referee: Referee, key: Key) -> Transcript:
    """Return the transcript of a game; refuse a key used for another output."""
    transcript = referee.close()
    judge_once(key, referee.commitment, referee.design, transcript_digest(transcript))
    return transcript


def drive(referee: Referee, play: Play) -> None:
    """Play a game to its end; the guesser is sent coins and never sees the referee."""
    turn = next(play, None)
    while turn is not None:
        revealed = referee.submit(turn.index, turn.guess, turn.stake)
        try:
            turn = play.send(revealed)
        except StopIteration:
            turn = None


def audit_classic(
    mechanism: Mechanism[O],
    guess: Callable[[O], int],
    *,
    base: Records,
    place: int,
    pair: Pairs,
    design: Design,
    rng: np.random.Generator,
    key: Key | None = None,
) -> Result:
    """Return the result of auditing a mechanism in many runs with one coin each.

    Reference: Keinan, Shenfeld and Ligett, "alg:classic-auditor".

    Args:
        mechanism: The mechanism to audit.
        guess: Returns +1 (y), -1 (x) or 0 (abstain) for an output.
        base: The data set; the coin chooses the record at ``place``.
        place: The index of that record.
        pair: The two records x and y; records of several values as lists of one row.
        design: Fixed before the runs, with rules ``SeparateRuns``; ``canaries`` is the
            number of runs.
        rng: The mechanism's randomness, independent of the coins.
        key: The secret of the coins, to be used once; a new one by default.

    Example:
        >>> from dpaudit import PureDP, SeparateRuns
        >>> from dpaudit.privacy.guarantees import Adjacency
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
        raise InvalidRunError(
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
    # A type that fits base and both records: nothing is rounded or truncated.
    data = np.array(base, dtype=np.result_type(np.asarray(base), pair.x, pair.y))
    records = _records(pair)
    guesses = []
    for bit in bits:
        data[place] = records[bit]
        guesses.append(guess(mechanism.run(data.copy(), rng)))
    referee.submit(np.arange(design.canaries), guesses)
    return conclude(_closed(referee, key), commitment=referee.commitment)


def _records(pair: Pairs) -> tuple[Records, Records]:
    """Return the two records of a single pair."""
    if not pair.x.ndim:
        return pair.x, pair.y
    if len(pair.x) != 1:
        raise InvalidInputError(
            f"classic auditing exchanges one pair of records, got {len(pair.x)} pairs"
        )
    return pair.x[0], pair.y[0]
