"""Where canaries are, and where noise is watched: drawn from the key, and not known."""

import hashlib

import numpy as np
import pytest
from scipy import stats

from dpaudit import Key
from dpaudit.errors import InvalidInputError
from dpaudit.training.any_loop import noise_watched
from dpaudit.training.layout import Layout, scattered

SHAPES = [(6, 5), (4,), (2, 3, 3)]
SIZES = [30, 4, 18]


def keys(count, seed=0):
    rng = np.random.default_rng(seed)
    return [Key(rng.bytes(32)) for _ in range(count)]


def layouts(key):
    yield Layout.uniform(SHAPES, 20, key=key)
    yield Layout.in_each(SHAPES, 20, key=key)
    yield Layout.spread(SHAPES, 9, over=2, key=key)


def test_whoever_has_the_key_computes_the_coordinates_again():
    """From the bytes of the key alone, as anybody can once it is revealed."""
    key = keys(1)[0]
    for array in (0, 7):
        text = b"dpaudit 1" + key.secret + array.to_bytes(8, "little")
        seed = hashlib.shake_256(text + b"canary coordinates").digest(32)
        rng = np.random.Generator(np.random.PCG64(int.from_bytes(seed, "little")))
        expected = rng.choice(10**10, 1000, replace=False, shuffle=False)
        found = scattered(10**10, 1000, key=key, array=array)
        np.testing.assert_array_equal(found, np.sort(expected))


def test_another_key_gives_other_coordinates_and_as_many_in_each_array():
    one, other = keys(2)
    for mine, again, theirs in zip(
        layouts(one), layouts(one), layouts(other), strict=True
    ):
        np.testing.assert_array_equal(mine.offset, again.offset)
        assert not np.array_equal(mine.offset, theirs.offset)
    _, mine, _ = layouts(one)
    _, theirs, _ = layouts(other)
    np.testing.assert_array_equal(mine.array, theirs.array)


def test_every_coordinate_is_as_probable_as_the_others_of_its_array():
    runs, shares = 2000, [11, 2, 7]
    counts = [np.zeros(size) for size in SIZES]
    for key in keys(runs, seed=1):
        layout = Layout.in_each(SHAPES, 20, key=key)
        assert [len(part.offsets) for part in layout.parts] == shares
        for part in layout.parts:
            counts[part.array][part.offsets] += 1
    for count, share in zip(counts, shares, strict=True):
        size = len(count)
        expected = runs * share / size
        # Draws without replacement: the counts' variance is (1 - share / size) of it.
        statistic = np.square(count - expected).sum() / expected
        statistic *= (size - 1) / size / (1 - share / size)
        assert 1e-4 < stats.chi2.sf(statistic, size - 1) < 1 - 1e-4


def test_what_is_printed_of_a_layout_tells_no_coordinate():
    for layout in layouts(keys(1)[0]):
        assert "offset" not in repr(layout)


def test_what_is_no_key_is_refused():
    with pytest.raises(InvalidInputError, match="key must be"):
        scattered(10, 2, key=0)


@pytest.mark.parametrize("coordinates", [1, 240, 241, 600, 1000])
def test_noise_is_watched_at_one_coordinate_of_each_stretch(coordinates):
    step = -(-coordinates // 240)
    found = np.array([noise_watched(coordinates, key) for key in keys(400)])
    assert found.max() < coordinates
    assert found.shape[1] == len(range(0, coordinates, step)) <= 240
    np.testing.assert_array_equal(
        found // step, np.tile(np.arange(found.shape[1]), (400, 1))
    )
    seen = np.bincount(found.ravel(), minlength=coordinates)
    whole = coordinates - coordinates % step
    assert seen[:whole].min() > 400 / step / 2
    assert seen[:whole].max() < 400 / step * 1.7
