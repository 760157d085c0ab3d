"""Evidence that is verified together: one key, one output."""

from dataclasses import replace

import pytest
from evidence_samples import (
    KEY,
    OTHER_KEY,
    design_of,
    of_scores,
    of_transcript,
    played,
    training,
)

from dpaudit import OneRun, Ranking
from dpaudit.errors import InvalidRunError
from dpaudit.evidence import VerificationOutcome as Outcome
from dpaudit.evidence import evidence_of, seal, verify_together
from dpaudit.game.combining import combine_runs
from dpaudit.game.design import ThreatModel
from dpaudit.testing import fixed_key

RULES = OneRun(guesses=20)


def game(*, key=KEY, seed=0, rules=RULES, **about):
    design = replace(design_of(rules), **about)
    return of_transcript(played(design, key, seed=seed), key)


def keys(*evidence, **options):
    """Return what verification says of the key of each."""
    found = verify_together([seal(each) for each in evidence], **options)
    return [
        check.outcome for each in found for check in each.checks if check.name == "key"
    ]


@pytest.mark.parametrize(
    "other",
    [
        lambda: game(seed=1),
        lambda: game(seed=1, rules=Ranking(guesses=20)),
        lambda: game(seed=1, alpha=0.01),
        lambda: game(seed=4).redact(),
        lambda: evidence_of(training(), key=KEY),
    ],
)
def test_a_key_that_was_used_for_two_outputs_fails_in_both(other):
    one, two = game(), other()
    found = verify_together(
        [seal(one), seal(game(key=OTHER_KEY)), seal(two)],
        accept_unchecked_counts=True,
    )
    assert [each.exit_code for each in found] == [1, 0, 1]
    assert "- key: its key was used for another output too, that of evidence 3" in str(
        found[0]
    )


def test_two_training_runs_with_one_key_fail():
    key = fixed_key(KEY.secret)
    runs = [evidence_of(training(key, noise=noise), key=key) for noise in (0.7, 1.4)]
    assert keys(*runs) == [Outcome.FAILS] * 2
    redacted = [each.redact() for each in runs]
    assert keys(*redacted) == [Outcome.FAILS] * 2
    with pytest.raises(InvalidRunError, match="are of one run, or of two by one key"):
        combine_runs([each.result for each in runs])


def test_what_is_of_one_output_passes(tmp_path):
    one = game()
    final = game(threat_model=ThreatModel.FINAL_MODEL, seed=1)
    options = {"accept_unchecked_counts": True}
    assert keys(one, one, one.redact(), **options) == [Outcome.HOLDS] * 3
    assert keys(one, final) == [Outcome.HOLDS] * 2  # two observers of one run
    # One output in the same files of scores, judged by two designs.
    two = [of_scores(tmp_path, rules=rules) for rules in (RULES, Ranking(guesses=40))]
    assert two[0].registration.commitment != two[1].registration.commitment
    assert keys(*two, files=tmp_path) == [Outcome.HOLDS] * 2


def test_what_cannot_be_read_is_told_beside_the_rest():
    good, torn = verify_together([seal(game()), seal(game())[:-20]])
    assert good.sound
    assert torn.exit_code == 1


def test_runs_without_keys_are_not_told_apart():
    bare = evidence_of(replace(game().result, commitment=None), key=None)
    assert keys(bare, bare) == [Outcome.NOT_CHECKED] * 2


def test_results_of_one_run_are_still_called_that():
    result = game().result
    with pytest.raises(InvalidRunError, match="results 1 and 2 are of one run"):
        combine_runs([result, result])
