"""One small table that every format must tell alike, and tallies of rows in memory."""

import numpy as np
import pytest

from dpaudit.game import Commitment
from dpaudit.game.tie_breaking import TieBreaking
from dpaudit.tables.extreme_scores import ExtremeScoresSoFar
from dpaudit.tables.histogram import HistogramSoFar
from dpaudit.tables.seen_ids import SeenIds
from dpaudit.tables.tally import MOST_EXACT, ScoreTally

ROWS = [(7, 1, 0.5), (3, 0, -2.0), (12, 1, 3.25), (0, 0, 0.125)]
SALT = "0123456789abcdef" * 4


@pytest.fixture
def rows():
    return ROWS


@pytest.fixture
def tally_of():
    """Return the tally of some rows, put together from its parts."""
    return _tally_of


def _tally_of(design, ids, bits, scores, *, key=None, salt=SALT, check=True):
    ids, bits = np.asarray(ids, np.int64), np.asarray(bits, np.uint8)
    guesses, mix = design.guesses, int(salt[:16], 16)
    found = HistogramSoFar(mix)
    if guesses <= MOST_EXACT:
        found = ExtremeScoresSoFar(
            most_high=(guesses + 1) // 2,
            most_low=guesses // 2,
            tie_breaks=TieBreaking.of(design, key) if check else None,
        )
    found.add(np.asarray(scores, np.float64), bits, ids if check else None)
    sets = ()
    if check:
        seen = SeenIds(design.canaries)
        seen.add(ids)
        sets = (seen.found(mix),)
    return ScoreTally(
        design=design,
        commitment=key and Commitment.to(key, design),
        salt=salt,
        rows=len(ids),
        ones=int(bits.sum()),
        ids=sets,
        found=found.found(),
    )
