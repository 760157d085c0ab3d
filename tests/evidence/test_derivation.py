"""What evidence says is derived again: guesses by the rules, controls, bounds."""

import tracemalloc
from dataclasses import dataclass, replace
from math import exp
from typing import ClassVar

import numpy as np
import pytest
from evidence_samples import (
    CLAIM,
    KEY,
    KINDS,
    check,
    design_of,
    of_scores,
    of_transcript,
    played,
    torn,
)

from dpaudit import (
    AdaptiveBets,
    AdaptiveClasses,
    AdaptiveCount,
    AdaptiveRounds,
    ApproxDP,
    Coins,
    Design,
    OneRun,
    PureDP,
    Ranking,
    WeightClasses,
    audit_scores,
)
from dpaudit.bounds.bound import largest_rejected_of_rising
from dpaudit.bounds.exact import PureBound
from dpaudit.bounds.readings import Counts
from dpaudit.bounds.steinke import SteinkeBound
from dpaudit.errors import DpAuditError, InvalidRunError
from dpaudit.evidence import (
    Registration,
    evidence_of,
    register,
    score_files,
    seal,
    verify,
)
from dpaudit.evidence import (
    VerificationOutcome as Outcome,
)
from dpaudit.evidence.derivation import check_obeyed
from dpaudit.evidence.files import read_score_files
from dpaudit.explanation import explain
from dpaudit.game import Referee
from dpaudit.game.findings import passed
from dpaudit.game.result import effect_seen, judge
from dpaudit.game.transcript import Transcript
from dpaudit.game.verdict import BETTER_THAN_CHANCE, Verdict

RULES = {
    "one run": (OneRun(guesses=30), 1),
    "ranking": (Ranking(guesses=30), 1),
    "classes": (WeightClasses(weights=(1.0, 2.0), guesses=(20, 20)), 1),
    "adaptive count": (AdaptiveCount(guesses=40), 5),
    "adaptive classes": (AdaptiveClasses(weights=(1.0, 2.0), guesses=(20, 20)), 4),
    "rounds": (AdaptiveRounds(round_weights=(1.0, 1.0, 2.0)), 3),
    "jump": (
        AdaptiveRounds(round_weights=(1.0, 1.0), max_jump=1.5, randomness_share=0.1),
        2,
    ),
    "bets": (AdaptiveBets(), 6),
}
COLUMNS = ("index", "guess", "stake", "turn", "uniforms")


def referee_takes(transcript: Transcript) -> bool:
    """Hand the guesses to a referee once more, turn by turn."""
    rules = transcript.design.rules
    referee, turn = Referee(transcript.design, KEY), transcript.turn
    if rules.adaptive and not isinstance(rules, AdaptiveRounds):
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
                with pytest.raises(InvalidRunError):
                    check_obeyed(other, KEY)
    assert min(seen.values()) > 10, seen


def test_turns_that_only_wrap_around_are_not_in_order():
    transcript = played(design_of(AdaptiveCount(guesses=40)), turns=2)
    turn = transcript.turn.copy()
    turn[-2:] = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    with pytest.raises(InvalidRunError, match="in order"):
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
    with pytest.raises(InvalidRunError, match="the design allows guesses=1000"):
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
    evidence = torn(registration, result, transcript, key=key)
    found = verify(seal(evidence), registration=registration)
    wrong = {c.name: c.sentence for c in found.checks if c.outcome is Outcome.FAILS}
    assert wrong.keys() == {"rules"}
    assert "the design allows guesses=1000" in wrong["rules"]


def test_slots_are_counted_by_weight():
    rules = WeightClasses(weights=(1.0, 2.0), guesses=(20, 20))
    transcript = played(design_of(rules))
    made = np.flatnonzero(transcript.guess)
    stake = transcript.stake.copy()
    stake[made[:25]] = 2.0
    with pytest.raises(InvalidRunError, match="20 slots"):
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
    evidence = torn(registration, result, transcript)
    text = seal(evidence)
    tracemalloc.start()
    found = verify(text, registration=registration)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.sound, str(found)
    assert {c.name: c.outcome for c in found.checks}["rules"] is Outcome.HOLDS
    assert peak < 20e6


# What guesses say of themselves is made anew, and what a design is worth is said.


SEEN = passed(BETTER_THAN_CHANCE, p_value=1e-9)


def of_noise(folder):
    """Return evidence of scores that know nothing of the coins."""
    path = folder / "noise.csv"
    lines = [f"{i},{(37 * i) % 61}" for i in range(60)]
    path.write_text("\n".join(["id,score", *lines]) + "\n")
    design = Design(canaries=60, rules=OneRun(guesses=40), claim=CLAIM)
    files = score_files([path])
    table = read_score_files(files, folder)
    coins = Coins(key=KEY, count=60)
    result = audit_scores(table.ids, coins, table.scores, design=design)
    assert result.verdict is Verdict.INCONCLUSIVE
    return evidence_of(result, key=KEY, files=files)


def test_what_scores_say_of_themselves_is_derived_again(tmp_path):
    for evidence in (of_scores(tmp_path), of_noise(tmp_path)):
        found = verify(seal(evidence), files=tmp_path)
        assert check(found, "controls").outcome is Outcome.HOLDS
        assert "result.sanity_checks" not in found.stated


def test_an_effect_that_was_not_seen_cannot_be_stated(tmp_path):
    honest = of_noise(tmp_path)
    result = replace(honest.result, sanity_checks=(SEEN,))
    found = verify(seal(replace(honest, result=result)), files=tmp_path)
    assert check(found, "controls").outcome is Outcome.FAILS
    assert not found.sound


def test_a_tally_without_guesses_cannot_state_an_effect_either():
    """Half of 40 guesses right show nothing, whatever the result says."""
    design = Design(canaries=60, rules=OneRun(guesses=40), claim=CLAIM)
    counts = Counts(canaries=60, guesses=40, correct=20)
    honest = judge(
        counts,
        design=design,
        commitment=None,
        sanity_checks=(effect_seen(counts, design=design),),
    )
    assert verify(
        seal(evidence_of(honest, key=None)), accept_unchecked_counts=True
    ).sound
    forged = replace(honest, sanity_checks=(SEEN,))
    found = verify(seal(evidence_of(forged, key=None)), accept_unchecked_counts=True)
    assert check(found, "controls").outcome is Outcome.FAILS


def test_what_is_said_is_said_once_and_in_the_words_it_has(tmp_path):
    honest = of_scores(tmp_path)
    (seen,) = honest.result.sanity_checks
    other = replace(seen, code="indeed")
    for controls, finding in (
        ((seen, seen), Outcome.FAILS),
        ((), Outcome.NOT_CHECKED),
        ((other,), Outcome.NOT_CHECKED),
    ):
        result = replace(honest.result, sanity_checks=controls)
        found = verify(seal(replace(honest, result=result)), files=tmp_path)
        assert check(found, "controls").outcome is finding


def test_a_picture_that_was_taken_out_is_missed(tmp_path):
    honest = of_scores(tmp_path)
    assert check(verify(seal(honest), files=tmp_path), "picture").outcome == "holds"
    bare = replace(honest, result=replace(honest.result, scores=None))
    found = verify(seal(bare), files=tmp_path)
    assert check(found, "picture").outcome is Outcome.NOT_CHECKED


def test_where_the_control_was_taken_out_its_word_is_said_all_the_same(tmp_path):
    honest = of_noise(tmp_path)
    result = replace(honest.result, sanity_checks=())
    found = verify(seal(replace(honest, result=result)), files=tmp_path)
    assert check(found, "controls").outcome is Outcome.NOT_CHECKED
    assert check(found, "bound").sentence.startswith("inconclusive: ")


@pytest.mark.parametrize("kind", KINDS)
def test_the_strength_of_every_design_is_said(kind):
    told = check(verify(seal(KINDS[kind]())), "strength")
    assert told.outcome is Outcome.HOLDS
    assert told.sentence


def test_a_design_that_could_not_refute_its_claim_is_called_so():
    """All of 30 guesses right show less than epsilon = 9: log(30 / log 20) = 2.3."""
    claim = ApproxDP(epsilon=9.0, delta=1e-6)
    design = Design(canaries=60, rules=OneRun(guesses=30), claim=claim)
    told = check(verify(seal(of_transcript(played(design)))), "strength")
    assert "had no power" in told.sentence


def test_what_would_have_been_caught_is_a_binomial_tail():
    """Of 30 guesses at epsilon = 0.5, computed here by hand."""
    told = check(verify(seal(KINDS["one run"]())), "strength")
    percent = told.sentence.split("guesses that are correct ")[1].split(" %")[0]
    share = float(percent) / 100
    tail = _tail(30, 1 / (1 + 2.718281828459045**-0.5))
    least = next(v for v in range(31) if tail[v] <= 0.05 - 2e-4)
    assert _tail(30, share)[least] >= 0.9
    assert _tail(30, share - 0.002)[least] < 0.9


def _tail(n, p):
    """Return P[Bin(n, p) >= v] for every v, by Pascal's rule."""
    law = [1.0]
    for _ in range(n):
        law = [
            (law[v] * (1 - p) if v < len(law) else 0.0)
            + (law[v - 1] * p if v > 0 else 0.0)
            for v in range(len(law) + 1)
        ]
    return [sum(law[v:]) for v in range(n + 1)]


def test_guesses_not_made_are_counted_again_where_guesses_are_kept():
    design = Design(canaries=60, rules=OneRun(guesses=60), claim=CLAIM)
    honest = of_transcript(played(design))
    made = int((honest.guesses.guess != 0).sum())
    told = check(verify(seal(honest)), "guesses made")
    assert told.outcome is Outcome.HOLDS
    assert f"{60 - made} of the 60 guesses" in told.sentence
    silent = replace(honest, result=replace(honest.result, sanity_checks=()))
    found = verify(seal(silent))
    assert check(found, "guesses made").outcome is Outcome.NOT_CHECKED


# A bound of the user's own: not checked, not called wrong, and explained by itself.


DESIGN = Design(canaries=60, rules=OneRun(guesses=30), claim=PureDP(epsilon=0.5))


@dataclass(frozen=True)
class Hoeffding:
    """As docs/how-to/extend.md writes it."""

    method: ClassVar[str] = "hoeffding"
    reference: ClassVar[str] = "Hoeffding, JASA 58, 1963, theorem 1"

    def log_p_value(self, counts, *, epsilon, delta):
        assert delta == 0
        r, v = counts.guesses, counts.correct
        p = 1 / (1 + exp(-epsilon))
        return -2 * r * (v / r - p) ** 2 if v > r * p else 0.0

    def epsilon_lower(self, counts, *, delta, alpha):
        return largest_rejected_of_rising(self, counts, delta=delta, alpha=alpha)


def evidence(bound):
    transcript = played(DESIGN)
    result = judge(
        transcript.reading(),
        design=DESIGN,
        commitment=Referee(DESIGN, KEY).commitment,
        bound=bound,
    )
    return evidence_of(result, key=KEY, transcript=transcript)


def test_a_bound_of_the_users_own_is_not_checked_and_not_wrong():
    sealed = evidence(Hoeffding())
    found = verify(seal(sealed), registration=sealed.registration)
    assert not any(each.outcome is Outcome.FAILS for each in found.checks)
    bound = check(found, "bound")
    assert bound.outcome is Outcome.NOT_CHECKED
    assert "hoeffding" in bound.sentence
    assert "its author's word" in bound.sentence
    assert not found.sound
    assert str(found).startswith("This evidence could not be checked to the end.")


def test_what_does_not_hang_on_the_bound_is_still_derived():
    sealed = evidence(Hoeffding())
    assert check(verify(seal(sealed)), "claim test").outcome is Outcome.HOLDS
    test = replace(sealed.result.design_test, p_value=1e-6)
    forged = replace(sealed, result=replace(sealed.result, design_test=test))
    assert check(verify(seal(forged)), "bound").outcome is Outcome.FAILS


def test_a_name_of_ours_must_give_our_number():
    sealed = evidence(Hoeffding())
    bound = replace(sealed.result.bound, method="exact")
    forged = replace(sealed, result=replace(sealed.result, bound=bound))
    assert check(verify(seal(forged)), "bound").outcome is Outcome.FAILS


@pytest.mark.parametrize("bound", [PureBound(), SteinkeBound()])
def test_a_bound_of_ours_that_holds_for_the_game_is_found_again(bound):
    found = verify(seal(evidence(bound)))
    assert found.sound, str(found)


def test_the_explanation_leaves_it_to_its_author():
    explained = str(explain(evidence(Hoeffding()).result))
    assert "The method hoeffding states epsilon >= " in explained
    assert "Hoeffding, JASA 58, 1963, theorem 1" in explained
    assert "the method hoeffding is valid, for which its author answers" in explained
    assert "% confidence" not in explained
    assert "for any mechanism" not in explained
