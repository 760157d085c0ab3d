"""What guesses say of themselves is made anew, and what a design is worth is said."""

from dataclasses import replace

import pytest
from evidence_samples import CLAIM, KEY, KINDS, of_scores, of_transcript, played

from dpaudit import ApproxDP, Coins, Design, OneRun, audit_scores
from dpaudit.bounds import Counts
from dpaudit.evidence import VerificationOutcome as Outcome
from dpaudit.evidence import evidence_of, score_files, seal, verify
from dpaudit.evidence.files import read_score_files
from dpaudit.game.findings import passed
from dpaudit.game.result import effect_seen, judge
from dpaudit.game.verdict import CHANCE_RATE, Verdict

SEEN = passed(CHANCE_RATE, p_value=1e-9)


def check(found, name):
    return next(each for each in found.checks if each.name == name)


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
        assert check(found, "controls").finding is Outcome.HOLDS
        assert "result.sanity_checks" not in found.stated


def test_an_effect_that_was_not_seen_cannot_be_stated(tmp_path):
    honest = of_noise(tmp_path)
    result = replace(honest.result, sanity_checks=(SEEN,))
    found = verify(seal(replace(honest, result=result)), files=tmp_path)
    assert check(found, "controls").finding is Outcome.FAILS
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
    assert check(found, "controls").finding is Outcome.FAILS


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
        assert check(found, "controls").finding is finding


def test_a_picture_that_was_taken_out_is_missed(tmp_path):
    honest = of_scores(tmp_path)
    assert check(verify(seal(honest), files=tmp_path), "picture").finding == "holds"
    bare = replace(honest, result=replace(honest.result, scores=None))
    found = verify(seal(bare), files=tmp_path)
    assert check(found, "picture").finding is Outcome.NOT_CHECKED


def test_where_the_control_was_taken_out_its_word_is_said_all_the_same(tmp_path):
    honest = of_noise(tmp_path)
    result = replace(honest.result, sanity_checks=())
    found = verify(seal(replace(honest, result=result)), files=tmp_path)
    assert check(found, "controls").finding is Outcome.NOT_CHECKED
    assert check(found, "bound").sentence.startswith("inconclusive: ")


@pytest.mark.parametrize("kind", KINDS)
def test_the_strength_of_every_design_is_said(kind):
    told = check(verify(seal(KINDS[kind]())), "strength")
    assert told.finding is Outcome.HOLDS
    assert told.sentence


def test_a_design_that_could_not_refute_its_claim_is_called_so():
    """All of 30 guesses right show less than epsilon = 9: log(30 / log 20) = 2.3."""
    claim = ApproxDP(epsilon=9.0, delta=1e-6)
    design = Design(canaries=60, rules=OneRun(guesses=30), claim=claim)
    told = check(verify(seal(of_transcript(played(design)))), "strength")
    assert "could not have refuted the claim" in told.sentence


def test_what_would_have_been_caught_is_a_binomial_tail():
    """Of 30 guesses at epsilon = 0.5, computed here by hand."""
    told = check(verify(seal(KINDS["one run"]())), "strength")
    share = float(told.sentence.split("guesses right ")[1].split(" %")[0]) / 100
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
    assert told.finding is Outcome.HOLDS
    assert f"{60 - made} of the 60 guesses" in told.sentence
    silent = replace(honest, result=replace(honest.result, sanity_checks=()))
    found = verify(seal(silent))
    assert check(found, "guesses made").finding is Outcome.NOT_CHECKED
