"""Scores of a stream, kept in part: any division of it leaves the same."""

import struct
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpaudit.errors import InvalidInputError
from dpaudit.game.tie_breaking import TieBreaking
from dpaudit.tables import extreme_scores
from dpaudit.tables import histogram as histogram_module
from dpaudit.tables.extreme_scores import ExtremeScores, ExtremeScoresSoFar, Tail
from dpaudit.tables.histogram import MOST_CELLS, Histogram, HistogramSoFar

ODD = [0.0, -0.0, np.inf, -np.inf, 5e-324, -5e-324, 2.2e-308, 1e-310, -1e-310]
ODD += [1.7e308, -1.7e308, 1.0, -1.0, 1.0 + 2**-52, 2.0, 3.0]
SCORES = st.one_of(
    st.sampled_from(ODD),
    st.integers(-3, 3).map(float),
    st.floats(allow_nan=False),
    st.floats(allow_nan=False, width=32),
)
ROWS = st.lists(st.tuples(SCORES, st.integers(0, 1)), min_size=1, max_size=40)
SEEDS = st.integers(0, 2**32 - 1)


def columns(rows):
    scores = np.array([score for score, _ in rows], np.float64)
    return scores, np.array([bit for _, bit in rows], np.uint8)


def fed(so_far, rows, rng):
    """Give rows to what takes them, in batches of any size, some of them empty."""
    edges = np.sort(rng.integers(0, len(rows) + 1, rng.integers(0, 6)))
    for first, last in pairwise([0, *edges.tolist(), len(rows)]):
        so_far.add(*columns(rows[first:last]))
    return so_far.found()


def shards(rows, rng):
    """Deal rows in any order into shards, of which some have one row."""
    rows = [rows[i] for i in rng.permutation(len(rows))]
    edges = np.unique(rng.integers(1, len(rows) + 1, rng.integers(0, 6)))
    parts = [rows[a:b] for a, b in pairwise([0, *edges.tolist(), len(rows)])]
    return [part for part in parts if part]


def merged(parts, rng):
    """Merge any two until one is left."""
    parts = list(parts)
    while len(parts) > 1:
        one = parts.pop(int(rng.integers(len(parts))))
        other = parts.pop(int(rng.integers(len(parts))))
        parts.append(one.merged(other))
    return parts[0]


def plain(found):
    if isinstance(found, Histogram):
        lists = (found.keys, found.counts, found.ones)
        assert found.coins == 0
        return found.mantissa_bits, *(each.tolist() for each in lists)
    tails = (found.high, found.low)
    return [
        (
            [score.hex() for score in tail.scores.tolist()],
            tail.tie_breaks.tolist(),
            tail.counts.tolist(),
            tail.ones.tolist(),
        )
        for tail in tails
    ]


# The ends.


def counted(rows):
    """Return every score with its canaries and its ones, lowest first."""
    every = Counter(score + 0.0 for score, _ in rows)
    ones = Counter(score + 0.0 for score, bit in rows if bit)
    return [(score, every[score], ones[score]) for score in sorted(every)]


def covering(groups, needed):
    """Take groups until as many canaries as needed are covered."""
    taken, covered = [], 0
    for group in groups:
        if covered >= needed:
            break
        taken.append(group)
        covered += group[1]
    return taken


def ends_by_sorting(rows, high, low):
    groups = counted(rows)
    tails = (covering(groups[::-1], high)[::-1], covering(groups, low))
    return [
        (
            [float(score).hex() for score, _, _ in tail],
            [0] * len(tail),
            [count for _, count, _ in tail],
            [ones for _, _, ones in tail],
        )
        for tail in tails
    ]


@settings(max_examples=100)
@given(ROWS, st.integers(1, 12), st.integers(0, 1), SEEDS, st.integers(0, 9))
@example([(0.0, 1), (-0.0, 0), (5e-324, 1)], 1, 1, 0, 0)
@example([(-1.7e308, 1), (1.7e308, 0), (np.inf, 1), (-np.inf, 0)], 2, 0, 0, 0)
@example([(float(i), 1) for i in range(30, 0, -1)], 1, 1, 0, 2)
@example([(float(i), i & 1) for i in [1, 9, 1, 9, 5, 1, 9, 9, 1]], 2, 0, 0, 0)
def test_any_division_keeps_the_ends_of_a_full_sort(rows, high, less, seed, pending):
    rng, low = np.random.default_rng(seed), high - less
    expected = ends_by_sorting(rows, high, low)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extreme_scores, "_PENDING", pending)

        def kept(part):
            return fed(ExtremeScoresSoFar(most_high=high, most_low=low), part, rng)

        assert plain(kept(rows)) == expected
        one_by_one = ExtremeScoresSoFar(most_high=high, most_low=low)
        for row in rows:
            one_by_one.add(*columns([row]))
        assert plain(one_by_one.found()) == expected
        parts = [kept(part) for part in shards(rows, rng)]
        assert plain(merged(parts, rng)) == expected


@settings(max_examples=60)
@given(ROWS, st.integers(1, 30))
def test_what_lies_between_the_ends_is_one_cell(rows, guesses):
    guesses = min(guesses, len(rows))
    high, low = (guesses + 1) // 2, guesses // 2
    kept = ExtremeScoresSoFar(most_high=high, most_low=low)
    kept.add(*columns(rows))
    cells = kept.found().cells(len(rows), sum(bit for _, bit in rows))
    groups = counted(rows)
    bottom, top = covering(groups, low), covering(groups[::-1], high)[::-1]
    if len(bottom) + len(top) >= len(groups):
        middle, expected = [], groups
    else:
        middle = groups[len(bottom) : len(groups) - len(top)]
        between = [sum(each[place] for each in middle) for place in (1, 2)]
        expected = [*bottom, (None, *between), *top]
    found = [pair for pair in zip(cells.counts, cells.ones, strict=True) if pair[0]]
    assert found == [(count, ones) for _, count, ones in expected]


def tie_break(number, salt):
    """SplitMix64, from its paper, in whole numbers."""
    z = ((number + 1) * 0x9E3779B97F4A7C15 + salt) % 2**64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
    return z ^ (z >> 31)


@settings(max_examples=100)
@given(
    ROWS,
    st.integers(1, 12),
    st.integers(0, 1),
    SEEDS,
    st.integers(0, 9),
    st.integers(0, 2**64 - 1),
)
@example([(0.0, i & 1) for i in range(40)], 5, 1, 0, 3, 2**64 - 1)
@example([(0.0, 1), (-0.0, 0), (5e-324, 1), (-0.0, 1)], 2, 1, 0, 0, 0)
def test_any_division_keeps_those_whose_score_and_then_whose_lot_is_at_an_end(
    rows, high, less, seed, pending, salt
):
    rng, low = np.random.default_rng(seed), high - less
    ranked = sorted(
        (s + 0.0, tie_break(i, salt), bit) for i, (s, bit) in enumerate(rows)
    )
    expected = [
        (
            [float(score).hex() for score, _, _ in part],
            [each for _, each, _ in part],
            [1] * len(part),
            [bit for _, _, bit in part],
        )
        for part in (ranked[max(0, len(ranked) - high) :], ranked[:low])
    ]

    def kept(ids):
        found = ExtremeScoresSoFar(
            most_high=high, most_low=low, tie_breaks=TieBreaking(salt=salt)
        )
        edges = np.sort(rng.integers(0, len(ids) + 1, rng.integers(0, 6))).tolist()
        for first, last in pairwise([0, *edges, len(ids)]):
            part = ids[first:last]
            found.add(*columns([rows[i] for i in part]), np.array(part, np.int64))
        return found.found()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extreme_scores, "_PENDING", pending)
        assert plain(kept(range(len(rows)))) == expected
        parts = [kept(part) for part in shards(list(range(len(rows))), rng)]
        whole = merged(parts, rng)
        assert plain(whole) == expected
    # Each canary is a cell of its own but for those between the ends.
    n, ones = len(rows), sum(bit for _, bit in rows)
    cells = whole.cells(n, ones)
    middle = max(0, n - high - low)
    assert sorted(cells.counts) == sorted([1] * (n - middle) + [middle])
    assert cells.ones.sum() == ones


def test_a_long_stream_that_rises_or_falls_leaves_its_ends():
    """More rows than wait to be sorted, in the orders that let everything through."""
    n = 600_000
    bits = (np.arange(n) % 3 == 0).astype(np.uint8)
    for scores in (np.arange(n) / 7, -np.arange(n) / 7):
        kept = ExtremeScoresSoFar(most_high=100, most_low=99)
        for start in range(0, n, 50_000):
            kept.add(scores[start : start + 50_000], bits[start : start + 50_000])
        found = kept.found()
        order = np.argsort(scores)
        assert found.high.scores.tolist() == scores[order[-100:]].tolist()
        assert found.low.scores.tolist() == scores[order[:99]].tolist()
        assert found.high.ones.tolist() == bits[order[-100:]].tolist()
        assert found.low.ones.tolist() == bits[order[:99]].tolist()


def test_tied_ends_are_kept_whole():
    kept = ExtremeScoresSoFar(most_high=2, most_low=1)
    kept.add(np.array([1.0, 5.0, 5.0, 5.0, 1.0]), np.array([1, 0, 1, 1, 1], np.uint8))
    found = kept.found()
    assert (found.high.counts.tolist(), found.high.ones.tolist()) == ([3], [2])
    assert (found.low.counts.tolist(), found.low.ones.tolist()) == ([2], [2])


@pytest.mark.parametrize(
    ("scores", "counts", "ones"),
    [
        ([2.0, 1.0], [1, 1], [0, 0]),
        ([1.0, 1.0], [1, 1], [0, 0]),
        ([np.inf, np.inf], [1, 1], [0, 0]),
        ([np.nan], [1], [0]),
        ([1.0], [0], [0]),
        ([1.0], [1], [2]),
        ([1.0], [1], [-1]),
        ([1.0, 2.0], [1], [0]),
        ([1.0, 2.0], [1, 1], [0]),
    ],
)
def test_what_is_no_tail_is_refused(scores, counts, ones):
    with pytest.raises(InvalidInputError, match="tail"):
        Tail(
            scores=np.array(scores),
            tie_breaks=np.zeros(len(scores), np.uint64),
            counts=np.array(counts),
            ones=np.array(ones),
        )


@pytest.mark.parametrize("tie_breaks", [[1, 0], [1, 1], [0], [0, 1, 2]])
def test_lots_that_do_not_rise_with_equal_scores_are_refused(tie_breaks):
    one = np.array([1, 1])
    with pytest.raises(InvalidInputError, match="tail"):
        Tail(
            scores=np.array([1.0, 1.0]),
            tie_breaks=np.array(tie_breaks, np.uint64),
            counts=one,
            ones=one,
        )


def test_ends_that_hold_more_than_the_rows_are_refused():
    tail = Tail(
        scores=np.array([1.0]),
        tie_breaks=np.array([0], np.uint64),
        counts=np.array([3]),
        ones=np.array([2]),
    )
    found = ExtremeScores(high=tail, low=tail, most_high=1, most_low=1)
    for rows, ones in ((2, 2), (3, 1), (4, 4)):
        with pytest.raises(InvalidInputError, match="more canaries or coins"):
            found.cells(rows, ones)


# The histogram.


def histogram_by_counting(rows, most):
    """Count the cells that the module describes, from the 64 bits of each score."""
    parts = []
    for score, bit in rows:
        word = struct.unpack(">Q", struct.pack(">d", score))[0]
        parts.append((-1 if word >> 63 else 1, word & (2**63 - 1), bit))
    octaves = {sign * (size >> 52) for sign, size, _ in parts}
    bits = max(b for b in range(19) if len(octaves) << b <= most)
    keys = [(sign * (size >> (52 - bits)), bit) for sign, size, bit in parts]
    every = Counter(key for key, _ in keys)
    ones = Counter(key for key, bit in keys if bit)
    order = sorted(every)
    return bits, order, [every[key] for key in order], [ones[key] for key in order]


@settings(max_examples=100)
@given(ROWS, SEEDS, st.sampled_from([1 << 12, 5_000, 1 << 13]))
@example([(0.0, 1), (-0.0, 0), (5e-324, 1), (-5e-324, 1)], 0, MOST_CELLS)
@example([(np.inf, 1), (-np.inf, 0), (1.7e308, 1), (-1.7e308, 1)], 3, 1 << 12)
@example([(1.5, 1)] * 9, 3, MOST_CELLS)
def test_any_division_counts_the_same_cells(rows, seed, most):
    rng = np.random.default_rng(seed)
    expected = histogram_by_counting(rows, most)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(histogram_module, "MOST_CELLS", most)
        assert plain(fed(HistogramSoFar(), rows, rng)) == expected
        parts = [fed(HistogramSoFar(), part, rng) for part in shards(rows, rng)]
        assert plain(merged(parts, rng)) == expected


def test_cells_are_in_the_order_of_the_scores():
    rng = np.random.default_rng(0)
    scores = rng.standard_normal(20_000) * np.exp(20 * rng.standard_normal(20_000))
    whole = HistogramSoFar()
    whole.add(scores, np.zeros(20_000, np.uint8))
    found = whole.found()
    edges = np.cumsum(found.counts)[:-1]
    cells = np.split(np.sort(scores), edges)
    width = 2.0**-found.mantissa_bits
    for cell in cells:
        assert cell[-1] - cell[0] < width * np.abs(cell).max()
    for lower, higher in pairwise(cells):
        assert lower[-1] < higher[0]
    # And no two cells lie so near that they should be one.
    powers = 2.0 ** np.floor(np.log2(np.abs(scores)))
    places = np.trunc(scores / powers / width) * width * powers
    assert len(cells) == len(np.unique(places))


def test_scores_near_a_thousand_get_narrow_cells():
    """As the module says: cells of 0.002, and of forty octaves 4,096 in each."""
    narrow = HistogramSoFar()
    narrow.add(np.linspace(997, 1003, 50_000), np.zeros(50_000, np.uint8))
    assert 6 / 0.0021 < len(narrow.found().keys) < 6 / 0.0019
    wide = HistogramSoFar()
    octaves = 2.0 ** np.arange(-20, 20)
    scores = np.concatenate([octaves * (1 + i / 5000) for i in range(5000)])
    wide.add(scores, np.zeros(len(scores), np.uint8))
    assert wide.found().mantissa_bits == 12
    assert len(wide.found().keys) == 40 * 4096


def test_no_scores_make_more_cells_than_twice_the_limit():
    """The octave around zero has cells of both signs, each of them full here."""
    tiny = np.arange(1 << 18) * 2.0 ** (34 - 1074)
    both = np.concatenate([tiny, -tiny])
    found = HistogramSoFar()
    found.add(both, np.zeros(len(both), np.uint8))
    assert len(found.found().keys) == 2 * MOST_CELLS - 1


@pytest.mark.parametrize(
    ("bits", "keys", "counts", "ones", "message"),
    [
        (19, [1], [1], [0], "mantissa_bits must be from 0 to 18"),
        (-1, [1], [1], [0], "mantissa_bits"),
        (0, [2, 1], [1, 1], [0, 0], "must rise"),
        (0, [1, 1], [1, 1], [0, 0], "must rise"),
        (0, [2048], [1], [0], "be scores'"),
        (0, [-2048], [1], [0], "be scores'"),
        (0, [1], [0], [0], "counts of 1 or more"),
        (0, [1], [1], [2], "no more ones"),
        (0, [1], [1], [-1], "no more ones"),
        (0, [1, 2], [1], [1], "a count and ones for every key"),
    ],
)
def test_what_is_no_histogram_is_refused(bits, keys, counts, ones, message):
    with pytest.raises(InvalidInputError, match=message):
        Histogram(
            mantissa_bits=bits,
            keys=np.array(keys),
            counts=np.array(counts),
            ones=np.array(ones),
            coins=0,
        )


def test_a_histogram_of_other_rows_is_refused():
    found = HistogramSoFar()
    found.add(np.array([1.0, 2.0]), np.array([1, 0], np.uint8))
    for rows, ones in ((3, 1), (1, 1), (2, 0), (2, 2)):
        with pytest.raises(InvalidInputError, match="does not hold all rows"):
            found.found().cells(rows, ones)
