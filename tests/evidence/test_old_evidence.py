"""Evidence that was written once can be verified for good.

The files were sealed by the first version that could, and are not to be made anew. If
a change makes one of them fail, people's evidence would fail: read the old format too.
"""

from pathlib import Path

import pytest

from dpaudit.evidence import Finding, Registration, open_envelope, verify

DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize("kind", ["", "-training", "-redacted", "-rounds"])
def test_the_first_evidence_still_holds(kind):
    text = (DATA / f"evidence-1{kind}.json").read_bytes()
    found = verify(text, accept_unchecked_counts=True)
    assert found.sound, str(found)
    assert open_envelope(text)[1].signature is not None


def test_the_first_evidence_is_of_the_design_that_was_registered():
    registration = Registration.from_json((DATA / "design-1.json").read_text("ascii"))
    text = (DATA / "evidence-1.json").read_bytes()
    found = verify(text, registration=registration)
    assert found.sound, str(found)
    names = {check.name for check in found.checks if check.finding is Finding.HOLDS}
    assert names >= {"registration", "commitment", "coins", "rules", "tally", "bound"}
