"""Shards of a local mechanism: they add up to the whole, and no other way."""

import numpy as np
import pytest
from scipy import special

from dpaudit import Design, Key, OneRun, Pairs, PureDP
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game import Submission
from dpaudit.game.guessers import Echo
from dpaudit.mechanisms.local import LocalRandomisedResponse
from dpaudit.privacy.guarantees import Adjacency
from dpaudit_lab.calibration.shards import conclude_tallies, tally_local

KEY = Key(bytes(range(32)))
SURE = LocalRandomisedResponse(epsilon=8.0)
CLAIM = PureDP(epsilon=1.0, adjacency=Adjacency.REPLACE_ONE)


def design(rules, canaries=200):
    return Design(canaries=canaries, rules=rules, claim=CLAIM)


@pytest.mark.parametrize("shards", [2, 3, 7])
def test_shards_add_up_to_the_whole(shards):
    n = 5 * 65536 + 17
    plan = design(OneRun(guesses=n), canaries=n)
    mechanism = LocalRandomisedResponse(epsilon=1.0)

    def tally(shard, of):
        return tally_local(
            mechanism,
            Echo(),
            pairs=mechanism.pairs,
            design=plan,
            key=KEY,
            shard=shard,
            shards=of,
        )

    parts = [tally(i, shards) for i in range(shards)]
    assert conclude_tallies(parts) == conclude_tallies([tally(0, 1)])
    # Five standard deviations: false alarm 6e-7.
    rate = sum(part.correct for part in parts) / n
    assert abs(rate - special.expit(1.0)) < 5 * 0.5 / np.sqrt(n)


class Shown:
    """Shows what it is given."""

    def run(self, data, rng):
        return data


class Odd:
    """Guesses "in" where the record is odd."""

    def guess(self, output):
        guess = np.where(output % 2, 1, -1).astype(np.int8)
        return Submission(index=np.arange(len(output)), guess=guess)


def test_every_block_has_its_own_pairs():
    """Records that say which element they are of: a block too far would show."""
    n = 65536 + 100
    x = 2 * np.arange(n)
    plan = design(OneRun(guesses=n), canaries=n)
    seen = []

    class Looks(Odd):
        def guess(self, output):
            seen.append((output[0] // 2, output[-1] // 2))
            return super().guess(output)

    tally = tally_local(
        Shown(), Looks(), pairs=Pairs(x=x, y=x + 1), design=plan, key=KEY
    )
    assert (tally.guesses, tally.correct) == (n, n)
    assert seen == [(0, 65535), (65536, n - 1)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shard": 2}, "^there is no shard=2 of shards=2"),
        ({"shard": -1}, "^shard must be a whole number >= 0"),
        ({"shards": 0}, "^shards must be a whole number >= 1"),
    ],
)
def test_a_shard_that_is_none_is_refused(change, message):
    plan = design(OneRun(guesses=10), canaries=10)
    with pytest.raises(InvalidInputError, match=message):
        tally_local(
            SURE,
            Echo(),
            pairs=SURE.pairs,
            design=plan,
            key=KEY,
            **{"shard": 0, "shards": 2} | change,
        )


def test_a_tally_is_the_same_whichever_way_the_guesses_are_named():
    class Backwards:
        def guess(self, output):
            index = np.arange(len(output))[::-1]
            return Submission(index=index, guess=output[::-1])

    plan = design(OneRun(guesses=100_000), canaries=100_000)
    args = {"pairs": SURE.pairs, "design": plan, "key": KEY}
    assert tally_local(SURE, Echo(), **args) == tally_local(SURE, Backwards(), **args)


def test_shards_that_are_missing_repeated_or_of_another_audit_are_refused():
    n = 3 * 65536
    plan = design(OneRun(guesses=n), canaries=n)
    parts = [
        tally_local(
            SURE, Echo(), pairs=SURE.pairs, design=plan, key=KEY, shard=i, shards=3
        )
        for i in range(3)
    ]
    with pytest.raises(InvalidRunError, match="begins at 1, got 2"):
        conclude_tallies([parts[0], parts[2]])
    with pytest.raises(InvalidRunError, match="begins at 1, got 0"):
        conclude_tallies([parts[0], parts[0]])
    with pytest.raises(InvalidRunError, match="cover blocks 0 to 1 of 3"):
        conclude_tallies(parts[:2])
    other = tally_local(
        SURE,
        Echo(),
        pairs=SURE.pairs,
        design=plan,
        key=Key(bytes(32)),
        shard=1,
        shards=3,
    )
    with pytest.raises(InvalidRunError, match="different audits"):
        conclude_tallies([parts[0], other])
    with pytest.raises(InvalidInputError, match="no tally"):
        conclude_tallies([])


def test_more_guesses_than_designed_are_refused_over_all_shards():
    few = design(OneRun(guesses=70_000), canaries=2 * 65536)
    parts = [
        tally_local(
            SURE, Echo(), pairs=SURE.pairs, design=few, key=KEY, shard=i, shards=2
        )
        for i in range(2)
    ]
    with pytest.raises(InvalidRunError, match="the design allows guesses=70000"):
        conclude_tallies(parts)


def test_a_tally_of_another_design_is_refused():
    plans = [design(OneRun(guesses=r), canaries=2 * 65536) for r in (65536, 131072)]
    parts = [
        tally_local(
            SURE, Echo(), pairs=SURE.pairs, design=plan, key=KEY, shard=i, shards=2
        )
        for i, plan in enumerate(plans)
    ]
    with pytest.raises(InvalidRunError, match="different audits"):
        conclude_tallies(parts)


@pytest.mark.parametrize(
    ("index", "guess", "message"),
    [
        ([0, 0], [1, 1], "named twice"),
        ([-1], [1], "from 0"),
        ([9], [1], "from 0"),
        ([0.5], [1], "whole numbers"),
        ([0], [7], "-1, 0 or 1 only"),
        # These would match every coin if they were spread over all canaries.
        ([0, 1], [[1], [-1]], "two lists of one length"),
        ([0, 1], [1], "two lists of one length"),
    ],
)
def test_a_block_is_guessed_within_itself(index, guess, message):
    class Odd:
        def guess(self, output):
            return Submission(index=np.array(index), guess=np.array(guess))

    plan = design(OneRun(guesses=5), canaries=5)
    with pytest.raises(InvalidRunError, match=message):
        tally_local(SURE, Odd(), pairs=SURE.pairs, design=plan, key=KEY)
