"""Coins: fair, reproducible, secret."""

import copy
import hashlib
import json
import pickle
import stat

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpaudit import Coins, Key
from dpaudit.errors import InvalidInputError, InvalidRunError

KEY = Key(bytes(range(32)))
BLOCK = 1 << 16


def by_the_book(key, block):
    """A block of coins by the written format, bit by bit."""
    seed = b"dpaudit 1" + key.secret + block.to_bytes(8, "little") + b"coins"
    data = hashlib.shake_256(seed).digest(BLOCK // 8)
    return [byte >> i & 1 for byte in data for i in range(8)]


def test_coins_follow_the_written_format():
    coins = Coins(key=KEY, count=2 * BLOCK + 5)
    want = by_the_book(KEY, 0) + by_the_book(KEY, 1) + by_the_book(KEY, 2)[:5]
    np.testing.assert_array_equal(coins.bits(), want)


def test_uniforms_and_generators_follow_the_written_format():
    def seed(label, index):
        text = b"dpaudit 1" + KEY.secret + index.to_bytes(8, "little") + label
        return int.from_bytes(hashlib.shake_256(text).digest(32), "little")

    words = np.random.PCG64(seed(b"uniforms", 0)).random_raw(4)
    want = [int(word) // 2**11 / 2**53 for word in words]
    assert KEY.uniforms(4).tolist() == want
    draws = np.random.Generator(np.random.PCG64(seed(b"mechanism", 3))).random(2)
    assert KEY.generator("mechanism", 3).random(2).tolist() == draws.tolist()


@given(st.integers(0, 3 * BLOCK - 1), st.integers(1, 2 * BLOCK))
def test_any_stretch_is_a_stretch_of_the_whole(start, length):
    coins = Coins(key=KEY, count=3 * BLOCK)
    stop = min(start + length, coins.count)
    np.testing.assert_array_equal(coins.bits(start, stop), coins.bits()[start:stop])


@given(st.lists(st.integers(0, 3 * BLOCK - 1), max_size=50))
def test_coins_of_named_canaries_are_those_of_the_whole(index):
    coins = Coins(key=KEY, count=3 * BLOCK)
    where = np.array(index, np.int64)
    np.testing.assert_array_equal(coins.at(where), coins.bits()[where])


def test_the_last_of_a_billion_coins_is_at_hand():
    coins = Coins(key=KEY, count=10**9)
    assert coins.bits(10**9 - 3).shape == (3,)


def test_coins_are_fair_and_streams_unrelated():
    """Fixed keys, four tests, each with a false alarm of 1e-6 before it was fixed."""
    coins = Coins(key=KEY, count=10**6).bits().astype(int)
    other = Coins(key=Key(bytes(32)), count=10**6).bits()
    draws = KEY.generator("participation", 0).random(10**6) < 0.5
    for hits in (
        coins.sum(),
        (coins[1:] ^ coins[:-1]).sum(),
        (coins ^ other).sum(),
        (coins ^ draws).sum(),
    ):
        assert stats.binomtest(int(hits), 10**6).pvalue > 1e-6


def test_the_key_is_not_shown():
    assert KEY.secret.hex()[:8] not in repr(KEY) + str(KEY) + repr(
        Coins(key=KEY, count=1)
    )
    assert "x01" not in repr(KEY)


def test_a_key_file_is_private_and_never_overwritten(tmp_path):
    path = tmp_path / "run.key"
    key = Key.generate()
    key.write(path)
    assert Key.read(path) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        key.write(path)


def test_a_file_that_is_no_key_is_refused(tmp_path):
    path = tmp_path / "run.key"
    path.write_text("hello")
    with pytest.raises(InvalidInputError, match="does not hold a key: expected 64 hex"):
        Key.read(path)


def test_a_short_key_is_refused():
    with pytest.raises(InvalidInputError, match="a key has 32 bytes, got 5"):
        Key(b"12345")


@pytest.mark.parametrize(("start", "stop"), [(-1, 3), (3, 3), (0, 11)])
def test_a_stretch_outside_is_refused(start, stop):
    with pytest.raises(InvalidInputError, match="expected 0 <= start < stop <= 10"):
        Coins(key=KEY, count=10).bits(start, stop)


@pytest.mark.parametrize("index", [-1, 10])
def test_a_coin_that_was_never_thrown_is_refused(index):
    with pytest.raises(InvalidInputError, match="from 0 to 9"):
        Coins(key=KEY, count=10).at(np.array([index]))


@pytest.mark.parametrize("count", [0, -1, 2.5])
def test_as_many_coins_as_canaries(count):
    with pytest.raises(InvalidInputError, match=r"^count must be a whole number >= 1"):
        Coins(key=KEY, count=count)


@pytest.mark.parametrize("key", ["hello", 5])
def test_coins_of_no_key_are_refused(key):
    plain = json.loads(Coins(key=KEY, count=3).to_json()) | {"key": key}
    with pytest.raises(InvalidInputError, match=r"^key must be hex digits"):
        Coins.from_json(json.dumps(plain))


def test_a_key_does_not_travel_unnoticed_but_may_be_copied():
    with pytest.raises(InvalidRunError, match=r"^a key cannot be pickled"):
        pickle.dumps(KEY)
    assert copy.copy(KEY) is KEY
    assert copy.deepcopy(KEY) is KEY
