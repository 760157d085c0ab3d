"""A report of redacted evidence says no more of the coins than the counts do."""

import numpy as np
from evidence_samples import design_of, of_transcript
from key_traces import traces

from dpaudit import Coins, OneRun
from dpaudit.game import Referee
from dpaudit.reporting.report import report_html
from dpaudit.testing import fixed_key

KEYS = [fixed_key(np.random.default_rng(seed).bytes(32)) for seed in (1, 2)]
CANARIES = 256


def redacted(key):
    """Return what is left of a game with thirty right guesses of forty."""
    referee = Referee(design_of(OneRun(guesses=40), CANARIES), key)
    guess = 2 * Coins(key=key, count=CANARIES).bits()[:40].astype(int) - 1
    guess[30:] *= -1
    referee.submit(np.arange(40), guess)
    return of_transcript(referee.close(), key).redact().result


def test_a_report_is_the_same_for_every_key_with_the_same_count():
    pages = []
    for key in KEYS:
        result = redacted(key)
        page = report_html(result)
        assert not traces(key, CANARIES, page.encode())
        sha256 = result.commitment.sha256
        assert sha256 in page
        pages.append(page.replace(sha256, "").replace(sha256[:12], ""))
    assert pages[0] == pages[1]
