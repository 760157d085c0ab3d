"""Nothing is signed that does not hold; needs the extra ``sign``."""

from dataclasses import replace

import pytest
from evidence_samples import KEY, KINDS, of_game, of_scores

from dpaudit import OneRun
from dpaudit.errors import InvalidInputError
from dpaudit.evidence import evidence_of, open_envelope, seal, verify
from dpaudit.evidence.signing import generate_signing_key
from dpaudit.game.result import judge

SIGNER = generate_signing_key()


def luckier(evidence):
    """Return evidence of one more right guess, with everything that follows from it."""
    audit = evidence.result
    result = judge(
        replace(audit.reading, correct=audit.reading.correct + 1),
        design=audit.design,
        commitment=audit.commitment,
        scores=audit.scores,
    )
    return replace(evidence, result=result)


def test_a_tally_that_is_not_that_of_the_guesses_is_not_signed():
    with pytest.raises(InvalidInputError, match=r"does not hold \(tally: "):
        seal(luckier(of_game(OneRun(guesses=30))), SIGNER)


def test_a_tally_that_is_not_that_of_the_score_files_is_not_signed(tmp_path):
    forged = luckier(of_scores(tmp_path, rules=OneRun(guesses=40)))
    with pytest.raises(InvalidInputError, match=r"does not hold \(tally: "):
        seal(forged, SIGNER)  # where they were is known still
    read, _ = open_envelope(seal(forged))
    with pytest.raises(InvalidInputError, match=r"does not hold \(tally: "):
        seal(read, SIGNER, files=tmp_path)


def test_what_cannot_be_checked_may_be_signed_and_says_so():
    bare = evidence_of(of_game(OneRun(guesses=30)).result, key=KEY)
    text = seal(bare, SIGNER)
    found = verify(text, public_key=SIGNER.public_key, accept_unchecked_counts=True)
    assert found.sound
    assert "tallies were not checked" in str(found)


@pytest.mark.parametrize("kind", KINDS)
def test_honest_evidence_of_every_kind_is_signed(kind):
    text = seal(KINDS[kind](), SIGNER)
    assert verify(
        text, public_key=SIGNER.public_key, accept_unchecked_counts=True
    ).sound
