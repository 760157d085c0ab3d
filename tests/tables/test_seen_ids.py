"""Which ids were seen: twice, unknown, missing, in one shard or in two."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpaudit import Design, OneRun, PureDP
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.coins import Coins, Key
from dpaudit.tables.seen_ids import IdSet, SeenIds, fingerprint_of_run
from dpaudit.tables.tally import CoinTable, conclude_scores

SALT = 0x0123456789ABCDEF
N = 40
DESIGN = Design(canaries=N, rules=OneRun(guesses=4), claim=PureDP(epsilon=1.0))
BITS = Coins(key=Key(bytes(32)), count=N).bits()


def seen(*batches, canaries=N):
    found = SeenIds(canaries)
    for batch in batches:
        found.add(np.array(batch, np.int64))
    return found


def mixed(number):
    """SplitMix64, from its paper, in whole numbers."""
    z = number % 2**64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
    return z ^ (z >> 31)


def fingerprint(ids, salt=SALT):
    return sum(mixed((i + 1) * 0x9E3779B97F4A7C15 + salt) for i in ids) % 2**64


@settings(max_examples=150)
@given(st.lists(st.integers(-2, N + 1), min_size=1, max_size=60), st.randoms())
def test_ids_are_taken_if_they_are_known_and_new_and_no_other(ids, random):
    """A set in plain Python beside it, whatever the batches are."""
    edges = sorted(random.randrange(len(ids) + 1) for _ in range(4))
    batches = [ids[a:b] for a, b in pairwise([0, *edges, len(ids)]) if a < b]
    if random.random() < 0.5:
        batches = [sorted(batch) for batch in batches]
    known, found = set(), SeenIds(N)
    for batch in batches:
        odd = [i for i in batch if not 0 <= i < N]
        again = {i for i in batch if i in known or batch.count(i) > 1}
        if odd or again:
            with pytest.raises(InvalidRunError) as refusal:
                found.add(np.array(batch, np.int64))
            named = int(str(refusal.value).split()[1])
            assert named in (odd or again)
            return
        found.add(np.array(batch, np.int64))
        known.update(batch)
    got = found.found(SALT)
    assert (got.first, got.last, got.count) == (min(known), max(known), len(known))
    broken = len(known) < max(known) - min(known) + 1
    assert got.fingerprint == (fingerprint(known) if broken else None)


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([[3, 5, 3]], "id 3 appears twice"),
        ([[3, 3, 4]], "id 3 appears twice"),
        ([[7], [5, 6, 7, 8]], "id 7 appears twice"),
        ([[5, 6, 7, 8], [20, 7]], "id 7 appears twice"),
        ([range(0, 24), range(16, 40)], "id 16 appears twice"),
        ([[1, 2], [0, 1]], "id 1 appears twice"),
        ([[0, 40]], "id 40 is unknown"),
        ([[-1, 0]], "id -1 is unknown"),
        ([[2**63 - 1]], "id 9223372036854775807 is unknown"),
        ([[-(2**63), 2**63 - 1]], "id -9223372036854775808 is unknown"),
        ([[2**63 - 1, -(2**63)]], "id -9223372036854775808 is unknown"),
    ],
)
def test_a_refusal_names_the_id(batches, message):
    with pytest.raises(InvalidRunError, match=message):
        seen(*batches)


def test_ids_of_more_than_32_bits_are_told_apart():
    """Only what is touched of a gigabyte of bits takes memory."""
    far = 1 << 32
    ids = [far + 40, far - 3, far + 5]
    found = seen(ids, canaries=2 * far)
    for again in ids:
        with pytest.raises(InvalidRunError, match=f"id {again} appears twice"):
            found.add(np.array([far + 100, again]))
    got = found.found(SALT)
    assert (got.first, got.last, got.count) == (far - 3, far + 40, 3)
    assert got.fingerprint == fingerprint(ids)


def test_every_run_of_ids_is_marked_bit_by_bit():
    """Runs begin and end anywhere in a byte; what is next to them stays free."""
    for first, last in combinations(range(20), 2):
        found = seen(range(first, last + 1))
        rest = [i for i in range(N) if not first <= i <= last]
        found.add(np.array(rest))
        assert found.found(SALT) == IdSet(
            first=0, last=N - 1, count=N, fingerprint=None
        )


def test_sets_that_differ_are_told_apart():
    """Sets of one size and one sum of ids, too, as {0, 3} and {1, 2}."""
    for size in (2, 3):
        sets = list(combinations(range(12), size))
        assert len({fingerprint(ids) for ids in sets}) == len(sets)
        for ids in sets:
            if ids[-1] - ids[0] >= size:
                assert seen(ids).found(SALT).fingerprint == fingerprint(ids)
    assert fingerprint({0, 3}) != fingerprint({0, 3}, salt=SALT + 1)


def test_the_fingerprint_of_a_run_is_that_of_its_ids():
    block = 1 << 20
    for first, last in ((0, 0), (5, 9), (block - 2, block + 1)):
        assert fingerprint_of_run(first, last, SALT) == fingerprint(
            range(first, last + 1)
        )
    whole = fingerprint_of_run(0, 3 * block, SALT)
    parts = ((0, 7), (8, 2 * block - 1), (2 * block, 3 * block))
    assert whole == sum(fingerprint_of_run(*part, SALT) for part in parts) % 2**64


def test_scattered_ids_of_many_blocks_have_their_fingerprint():
    ids = [5, (1 << 20) - 1, 1 << 20, 3_000_001]
    found = seen(ids, canaries=3_000_002).found(SALT)
    assert found.fingerprint == fingerprint(ids)


@pytest.mark.parametrize(
    ("first", "last", "count", "mark"),
    [
        (3, 2, 1, None),
        (-1, 2, 4, None),
        (0, 3, 5, 1),
        (0, 3, 0, 1),
        (0, 3, 4, 1),
        (0, 3, 3, None),
        (0, 3, 3, 2**64),
        (0, 3, 3, -1),
    ],
)
def test_what_is_no_set_of_ids_is_refused(first, last, count, mark):
    with pytest.raises(InvalidInputError, match="ids"):
        IdSet(first=first, last=last, count=count, fingerprint=mark)


# Shards.


def concluded(tally_of, *shards, **options):
    tallies = [
        tally_of(DESIGN, ids, BITS[list(ids)], np.array(ids) * 1.0, **options)
        for ids in shards
    ]
    return conclude_scores(tallies, coins_were_independent=True)


EVEN, ODD = list(range(0, N, 2)), list(range(1, N, 2))


@pytest.mark.parametrize(
    "shards",
    [
        [range(N)],
        [range(20), range(20, N)],
        [range(20, 30), range(30, N), range(20)],
        [EVEN, ODD],
        [EVEN, ODD[:7], ODD[7:]],
        [[0, 2, 3], [1], range(4, N)],
        [range(5), [5, 7], [6, *range(8, N)]],
    ],
)
def test_shards_that_hold_every_canary_once_are_taken(tally_of, shards):
    whole = concluded(tally_of, range(N))
    assert concluded(tally_of, *shards).to_json() == whole.to_json()
    assert concluded(tally_of, *shards[::-1]).to_json() == whole.to_json()


@pytest.mark.parametrize(
    ("shards", "message"),
    [
        ([range(20), range(19, N - 1)], "ids 19 to 19 are in two tallies"),
        ([range(30), range(10, 20)], "ids 10 to 19 are in two tallies"),
        ([range(20), range(20)], "ids 0 to 19 are in two tallies"),
        ([range(20)], "20 rows for canaries=40"),
        ([range(20), range(20, N), range(20)], "ids 0 to 19 are in two tallies"),
        ([EVEN, EVEN], "not those from 0 to 39, each once"),
        ([EVEN, [*ODD[:-1], 0]], "not those from 0 to 39, each once"),
        ([EVEN, ODD, [3]], "rows are more than canaries=40"),
        ([[*EVEN[1:], 3], [*ODD[1:], 2]], "not those from 0 to 39"),
        ([range(1, N), [1]], "ids 1 to 1 are in two tallies"),
    ],
)
def test_a_shard_that_is_missing_or_there_twice_is_noticed(tally_of, shards, message):
    with pytest.raises(InvalidRunError, match=message):
        concluded(tally_of, *shards)


def test_one_canary_for_another_is_noticed_wherever_it_is(tally_of):
    """Each id of a scattered shard in turn is put in the place of each other."""
    for gone in range(0, N, 2):
        for twice in range(1, N, 6):
            shard = [twice if i == gone else i for i in EVEN]
            with pytest.raises(InvalidRunError, match="each once"):
                concluded(tally_of, shard, ODD)


def test_ids_that_one_tally_has_not_checked_are_refused(tally_of):
    one = tally_of(DESIGN, range(20), BITS[:20], range(20))
    other = tally_of(DESIGN, range(20, N), BITS[20:], range(20), check=False)
    for pair in ([one, other], [other, one]):
        with pytest.raises(InvalidRunError, match="checked in one tally"):
            conclude_scores(pair, coins_were_independent=True)


# Coins by id.


@settings(max_examples=20)
@given(st.lists(st.integers(0, 200_000), min_size=1, max_size=20))
def test_coins_are_looked_up_by_id_in_any_order(ids):
    coins = Coins(key=Key(bytes(range(32))), count=200_001)
    table, every = CoinTable(coins), coins.bits()
    for _ in range(2):
        assert table.at(np.array(ids)).tolist() == every[ids].tolist()


def test_a_table_of_coins_has_all_of_them():
    for count in (1, 7, 65_535, 65_536, 65_537, 140_001):
        coins = Coins(key=Key(bytes(range(32))), count=count)
        found = CoinTable(coins).at(np.arange(count))
        assert np.array_equal(found, coins.bits())
