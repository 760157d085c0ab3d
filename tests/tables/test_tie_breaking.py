"""Lots in tallies: within cells they have the law of shuffling the ties.

That the level holds for every seed, with scores kept one by one, is in ``test_ties``.
"""

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, permutations, product
from math import factorial

import numpy as np
import pytest
from scipy import stats

from dpaudit import Coins, Design, Key, OneRun, PureDP
from dpaudit.game.setting import Setting
from dpaudit.game.text.findings import sentence
from dpaudit.game.tie_breaking import TieBreaking
from dpaudit.stats.binomial import rate_limits
from dpaudit.tables.score_bins import ScoreBins
from dpaudit.tables.tally import _by_class, _reading, conclude_scores

GRID = 12  # a multiple of the chances in cells of four


class EveryLot:
    """Goes through all that lots can be, each uniform number as a grid of equal parts.

    A law whose chances are multiples of 1 / GRID comes out exactly.
    """

    def __init__(self, chosen):
        self._chosen, self.options = list(chosen), []

    def _pick(self, options):
        place = len(self.options)
        self.options.append(options)
        return self._chosen[place] if place < len(self._chosen) else 0

    def uniform(self, _number):
        return (self._pick(GRID) + 0.5) / GRID

    def at(self, numbers):
        every = list(permutations(range(len(numbers))))
        return np.array(every[self._pick(factorial(len(numbers)))], np.uint64)


class Cuts:
    """Rules that count correct guesses up to these numbers, from both ends."""

    def __init__(self, cuts):
        self._cuts = list(cuts)

    def class_ends(self, _canaries):
        return self._cuts

    @staticmethod
    def from_top(guesses):
        return (guesses + 1) // 2


def law_of(decided):
    """Return the exact law of what a function of lots returns."""
    law, chosen = Counter(), []
    while True:
        tie_breaks = EveryLot(chosen)
        found = decided(tie_breaks)
        chosen += [0] * (len(tie_breaks.options) - len(chosen))
        law[found] += Fraction(1, int(np.prod(tie_breaks.options, dtype=object)))
        while chosen and chosen[-1] == tie_breaks.options[len(chosen) - 1] - 1:
            chosen.pop()
        if not chosen:
            return law
        chosen[-1] += 1


def shuffled(counts, ones):
    """Yield the coins from the lowest score to the highest, for every order of ties."""
    cells = []
    for size, has in zip(counts, ones, strict=True):
        places = [set(each) for each in combinations(range(size), has)]
        cells.append([[int(i in each) for i in range(size)] for each in places])
    for arrangement in product(*cells):
        yield [bit for cell in arrangement for bit in cell]


def law_by_shuffling(counts, ones, read):
    every = [read(bits) for bits in shuffled(counts, ones)]
    return {found: Fraction(n, len(every)) for found, n in Counter(every).items()}


def cells_of(counts, ones):
    return ScoreBins(counts=np.array(counts), ones=np.array(ones))


CELLS = [
    ([4], [2]),
    ([4], [1]),
    ([3], [2]),
    ([1, 4, 1], [0, 2, 1]),
    ([2, 0, 3], [1, 0, 2]),
    ([3, 1, 2], [1, 1, 1]),
]


@pytest.mark.parametrize(
    ("counts", "ones", "guesses"),
    [
        *(
            (counts, ones, guesses)
            for counts, ones in CELLS
            for guesses in (1, 2, 3, 4)
        ),
        ([3, 1, 2], [1, 1, 1], 6),
        ([1, 1, 1, 1, 2, 2], [0, 1, 0, 0, 1, 1], 8),  # two cells of ties at one end
    ],
)
def test_ranked_guesses_have_the_law_of_shuffled_ties(counts, ones, guesses):
    """Top and bottom together, also where both cut the same cell."""
    guesses = min(guesses, sum(counts))
    high, low = (guesses + 1) // 2, guesses // 2

    def read(bits):
        return tuple(bits[::-1][:high]), tuple(bits[:low])

    def decided(tie_breaks):
        top, bottom = cells_of(counts, ones).ends(high, low, tie_breaks)
        return tuple(top.astype(int).tolist()), tuple(bottom.astype(int).tolist())

    assert law_of(decided) == law_by_shuffling(counts, ones, read)


@pytest.mark.parametrize(("counts", "ones"), CELLS)
@pytest.mark.parametrize("cuts", [(1,), (2,), (3,), (1, 2), (2, 3)])
def test_counts_of_right_guesses_have_the_law_of_shuffled_ties(counts, ones, cuts):
    if cuts[-1] > sum(counts):
        cuts = (sum(counts),)

    def read(bits):
        return tuple(
            sum(bits[::-1][: (cut + 1) // 2]) + cut // 2 - sum(bits[: cut // 2])
            for cut in cuts
        )

    def decided(tie_breaks):
        return tuple(
            _by_class(cells_of(counts, ones), Cuts(cuts), sum(counts), tie_breaks)
        )

    assert law_of(decided) == law_by_shuffling(counts, ones, read)


def test_where_no_cut_falls_into_a_cell_nothing_is_left_to_lots():
    cells = cells_of([2, 1, 3], [0, 1, 3])
    assert cells.highest([0, 3, 4, 6], None) == [0, 3, 4, 4]


@pytest.mark.parametrize(("counts", "ones"), CELLS)
def test_without_lots_no_arrangement_of_a_cell_has_fewer_right(counts, ones):
    """After any number of guesses, and one arrangement attains it everywhere."""
    n = sum(counts)
    high, low = (n + 1) // 2, n // 2

    def right(bits):
        found = np.empty(n, bool)
        found[0::2] = np.array(bits[::-1][:high]) == 1
        found[1::2] = np.array(bits[:low]) == 0
        return np.cumsum(found).tolist()

    every = [right(bits) for bits in shuffled(counts, ones)]
    least = [min(each[k] for each in every) for k in range(n)]
    cells = cells_of(counts, ones)
    assert _by_class(cells, Cuts(range(1, n + 1)), n, None) == least
    top, bottom = cells.ends(high, low, None)
    ranked = np.empty(n, bool)
    ranked[0::2], ranked[1::2] = top, ~bottom
    assert np.cumsum(ranked).tolist() == least


def test_lots_are_those_of_a_generator_whose_numbers_are_known():
    """SplitMix64 seeded with 1234567, as it is published with other generators."""
    first = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert TieBreaking(salt=1234567).at(np.arange(3)).tolist() == first
    assert TieBreaking(salt=1234567).uniform(0) == pytest.approx(
        first[0] / 2**64, abs=1e-15
    )


# Whole audits.

MANY = 70_000  # canaries, all of them guessed: more than are kept one by one
CUT = int(stats.binom.isf(0.05, MANY, 0.5)) + 1  # right guesses, once in 20 times


def large(setting=None, guesses=MANY):
    return Design(
        canaries=MANY,
        rules=OneRun(guesses=guesses),
        claim=PureDP(epsilon=0.0),
        setting=setting or Setting(),
    )


@pytest.mark.parametrize("keyed", [True, False])
def test_cells_that_say_nothing_seem_to_say_something_no_more_often_than_alpha(
    tally_of, keyed
):
    """All scores are equal, and 120 audits share a salt, but for those with a key.

    Fixed seeds; a valid audit would fail this once in a million choices of them.
    """
    design, rng, wrong = large(Setting(tie_seed=1)), np.random.default_rng(5), 0
    for trial in range(120):
        bits, key = rng.integers(0, 2, MANY), None
        if keyed:
            key = Key(trial.to_bytes(32, "big"))
            bits = Coins(key=key, count=MANY).bits()
        tally = tally_of(design, np.arange(MANY), bits, np.zeros(MANY), key=key)
        wrong += _reading(tally)[0].correct >= CUT
    assert rate_limits(wrong, 120, alpha=2e-6)[0] <= 0.05
    assert rate_limits(wrong, 120, alpha=2e-6)[1] >= 0.04


def test_lots_within_a_cell_are_others_where_other_canaries_are_in(tally_of):
    """As many are in, and the ids of those have the same sum: only who differs."""
    design = large(Setting(tie_seed=1))
    bits = np.arange(MANY) % 2
    seen = set()
    for place in range(0, 80, 4):
        now = bits.copy()
        now[place : place + 4] = [1, 0, 0, 1]  # was 0, 1, 0, 1; so one is moved
        now[[40_000, 40_001]] = [1, 0]
        tally = tally_of(design, np.arange(MANY), now, np.zeros(MANY))
        assert tally.ones == MANY // 2
        seen.add(_reading(tally)[0].correct)
    assert len(seen) > 10


@pytest.mark.parametrize("digits", [17, 2])
def test_a_cell_that_nothing_decides_in_is_counted_against_the_auditor(
    tally_of, digits
):
    """Ids unchecked. ScoreBins of scores that differ cost little, rounded ones more."""
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 2, MANY)
    scores = (rng.standard_normal(MANY) + bits).round(digits)
    design = large(Setting(tie_seed=1), guesses=66_001)
    tally = tally_of(design, np.arange(MANY), bits, scores, check=False)
    result = conclude_scores([tally], coins_were_independent=True)
    order = np.lexsort((1 - bits, scores))
    least = bits[order[-33_001:]].sum() + (1 - bits[order[:33_000]]).sum()
    if digits == 2:
        assert result.reading.correct == least
        assert "ties decided 30 of 66,001 guesses" in sentence(result.sanity_checks[1])
    else:
        assert least - 66 <= result.reading.correct <= least


def test_without_a_tie_seed_nothing_is_decided(tally_of):
    for many in (False, True):
        design = large()
        if not many:
            rules = OneRun(guesses=2)
            design = replace(design, canaries=4, rules=rules)
        n = design.canaries
        tally = tally_of(design, range(n), np.arange(n) < 3 * n / 4, np.zeros(n))
        _, ties = _reading(tally)
        assert "all against the auditor; next time" in sentence(ties[0])
