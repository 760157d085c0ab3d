"""Guesses are held against the rules, however many canaries there are."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from evidence_samples import CLAIM, KEY, design_of, played

from dpaudit import (
    AdaptiveBets,
    AdaptiveClasses,
    AdaptiveCount,
    AdaptiveRounds,
    Classes,
    Coins,
    Design,
    OneRun,
    PureDP,
    Ranking,
)
from dpaudit.bounds.readings import Counts
from dpaudit.errors import DpAuditError, VoidAuditError
from dpaudit.evidence import (
    Evidence,
    Registration,
    register,
    seal,
    verify,
)
from dpaudit.evidence import (
    VerificationOutcome as Outcome,
)
from dpaudit.evidence.derivation import check_obeyed
from dpaudit.game import Referee
from dpaudit.game.result import judge
from dpaudit.game.transcript import Transcript

RULES = {
    "one run": (OneRun(guesses=30), 1),
    "ranking": (Ranking(guesses=30), 1),
    "classes": (Classes(weights=(1.0, 2.0), guesses=(20, 20)), 1),
    "adaptive count": (AdaptiveCount(guesses=40), 5),
    "adaptive classes": (AdaptiveClasses(weights=(1.0, 2.0), guesses=(20, 20)), 4),
    "rounds": (AdaptiveRounds(weights=(1.0, 1.0, 2.0)), 3),
    "jump": (AdaptiveRounds(weights=(1.0, 1.0), jump=1.5, noise=0.1), 2),
    "bets": (AdaptiveBets(), 6),
}
COLUMNS = ("index", "guess", "stake", "turn", "uniforms")


def referee_takes(transcript: Transcript) -> bool:
    """Hand the guesses to a referee once more, turn by turn."""
    rules = transcript.design.rules
    referee, turn = Referee(transcript.design, KEY), transcript.turn
    if rules.reveals and not isinstance(rules, AdaptiveRounds):
        turns = np.unique(turn)  # one in which nothing was handed in leaves no trace
    else:
        turns = np.arange(int(turn.max(initial=-1)) + 1)
    staked = not isinstance(rules, OneRun | Ranking | AdaptiveCount)
    try:
        if turns.size > 10 or (np.diff(turn, prepend=0) < 0).any():
            return False
        for number in turns:
            here = turn == number
            stake = transcript.stake[here] if staked else None
            referee.submit(transcript.index[here], transcript.guess[here], stake)
    except DpAuditError:
        return False
    again = referee.close()
    return all(
        np.array_equal(getattr(again, name), getattr(transcript, name))
        for name in ("index", "guess", "stake", "uniforms")
    )


def disturbed(transcript: Transcript, rng: np.random.Generator) -> Transcript:
    """Change one entry of one column, or let one more canary be guessed."""
    name = COLUMNS[rng.integers(len(COLUMNS))]
    column = getattr(transcript, name).copy()
    if not len(column) or rng.random() < 0.2:
        unused = np.setdiff1d(np.arange(60), transcript.index)
        more = int(rng.integers(1, len(unused) + 1))
        last = int(transcript.turn.max(initial=0))
        columns = {
            "index": unused[:more],
            "guess": rng.choice([-1, 1], more).astype(np.int8),
            "truth": np.ones(more, np.int8),
            "stake": np.full(more, transcript.stake.max()),
            "turn": np.full(more, last),
        }
        return replace(
            transcript,
            **{
                k: np.concatenate([getattr(transcript, k), v])
                for k, v in columns.items()
            },
        )
    other = {
        "index": [0, 1, 58, 59, 60, -1],
        "guess": [-1, 0, 1, 1, 2],
        "stake": [0.0, 0.5, 0.7, 1.0, 2.0, -1.0, 1e12],
        "turn": [0, 1, 2, 5, 7, -1],
        "uniforms": [0.5],
    }[name]
    column[rng.integers(len(column))] = other[rng.integers(len(other))]
    return replace(transcript, **{name: column})


@pytest.mark.parametrize("kind", RULES)
def test_what_is_refused_is_what_a_referee_refuses(kind):
    rules, turns = RULES[kind]
    rng = np.random.default_rng(list(RULES).index(kind))
    seen = {True: 0, False: 0}
    for seed in range(4):
        transcript = played(design_of(rules), seed=seed, turns=turns)
        check_obeyed(transcript, KEY)
        for _ in range(60):
            other = disturbed(transcript, rng)
            taken = referee_takes(other)
            seen[taken] += 1
            if taken:
                check_obeyed(other, KEY)
            else:
                with pytest.raises(VoidAuditError):
                    check_obeyed(other, KEY)
    assert min(seen.values()) > 10, seen


def test_turns_that_only_wrap_around_are_not_in_order():
    transcript = played(design_of(AdaptiveCount(guesses=40)), turns=2)
    turn = transcript.turn.copy()
    turn[-2:] = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    with pytest.raises(VoidAuditError, match="in order"):
        check_obeyed(replace(transcript, turn=turn), KEY)


def blind(canaries: int) -> Transcript:
    """Guess +1 until 950 are right, of 1000 guesses that are allowed."""
    claim = PureDP(epsilon=1.0)
    design = Design(canaries=canaries, rules=OneRun(guesses=1000), claim=claim)
    bits = Coins(key=KEY, count=canaries).at(np.arange(2500)).astype(np.int8)
    made = int(np.argmax(np.cumsum(bits) >= 950)) + 1
    return Transcript(
        design=design,
        index=np.arange(made),
        guess=np.ones(made, np.int8),
        truth=2 * bits[:made] - 1,
        stake=np.ones(made),
        turn=np.zeros(made, np.int64),
        uniforms=np.zeros(0),
    )


@pytest.mark.parametrize("canaries", [3000, 2**32 + 1, 10**15])
@pytest.mark.parametrize("key", [KEY, None], ids=["key", "no key"])
def test_blind_guesses_beyond_the_number_allowed_do_not_refute_a_claim(canaries, key):
    transcript = blind(canaries)
    assert len(transcript.index) > 1800
    with pytest.raises(VoidAuditError, match="the design allows guesses=1000"):
        transcript.reading()
    design = transcript.design
    bare = Registration(design=design, commitment=None)
    registration = register(design, key) if key else bare
    result = judge(
        Counts(canaries=canaries, guesses=1000, correct=950),
        design=design,
        commitment=registration.commitment,
    )
    assert result.claim_test.refuted
    evidence = Evidence(
        registration=registration,
        key=key,
        guesses=transcript,
        result=result,
        versions={},
    )
    found = verify(seal(evidence), registration=registration)
    wrong = {c.name: c.sentence for c in found.checks if c.finding is Outcome.FAILS}
    assert wrong.keys() == {"rules"}
    assert "the design allows guesses=1000" in wrong["rules"]


def test_slots_are_counted_by_weight():
    rules = Classes(weights=(1.0, 2.0), guesses=(20, 20))
    transcript = played(design_of(rules))
    made = np.flatnonzero(transcript.guess)
    stake = transcript.stake.copy()
    stake[made[:25]] = 2.0
    with pytest.raises(VoidAuditError, match="20 slots"):
        replace(transcript, stake=stake).reading()


def test_memory_is_for_guesses_and_not_for_canaries():
    """A few kB of evidence of 4 billion canaries; their coins alone would take GBs."""
    canaries = 2**32
    design = Design(canaries=canaries, rules=OneRun(guesses=20), claim=CLAIM)
    index = np.arange(20)
    truth = 2 * Coins(key=KEY, count=canaries).at(index).astype(np.int8) - 1
    transcript = Transcript(
        design=design,
        index=index,
        guess=np.ones(20, np.int8),
        truth=truth,
        stake=np.ones(20),
        turn=np.zeros(20, np.int64),
        uniforms=np.zeros(0),
    )
    registration = register(design, KEY)
    result = judge(
        transcript.reading(), design=design, commitment=registration.commitment
    )
    evidence = Evidence(
        registration=registration,
        key=KEY,
        guesses=transcript,
        result=result,
        versions={},
    )
    text = seal(evidence)
    tracemalloc.start()
    found = verify(text, registration=registration)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.sound, str(found)
    assert {c.name: c.finding for c in found.checks}["rules"] is Outcome.HOLDS
    assert peak < 20e6
