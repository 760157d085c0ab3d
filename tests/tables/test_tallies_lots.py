"""Lots within cells: the law of what they decide is that of shuffling the ties."""

from collections import Counter
from fractions import Fraction
from itertools import combinations, permutations, product
from math import factorial

import numpy as np
import pytest
from scipy import stats

from dpaudit import (
    ApproxDP,
    Classes,
    Coins,
    Commitment,
    Design,
    Key,
    OneRun,
    PureDP,
    Ranking,
)
from dpaudit.bounds.reads import Counts, Ranked, Weighted
from dpaudit.errors import VoidAuditError
from dpaudit.stats.binomial import rate_limits
from dpaudit.tables.cells import Cells, Lots
from dpaudit.tables.concluding import _reading, _right, conclude_scores

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

    def uniform(self):
        return (self._pick(GRID) + 0.5) / GRID

    def words(self, count):
        every = list(permutations(range(count)))
        return np.array(every[self._pick(factorial(count))], np.uint64)


def law_of(decided):
    """Return the exact law of what a function of lots returns."""
    law, chosen = Counter(), []
    while True:
        lots = EveryLot(chosen)
        found = decided(lots)
        chosen += [0] * (len(lots.options) - len(chosen))
        law[found] += Fraction(1, int(np.prod(lots.options, dtype=object)))
        while chosen and chosen[-1] == lots.options[len(chosen) - 1] - 1:
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
    return Cells(counts=np.array(counts), ones=np.array(ones))


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

    def decided(lots):
        top, bottom = cells_of(counts, ones).ends(high, low, lots)
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

    def decided(lots):
        return tuple(_right(cells_of(counts, ones), list(cuts), lots))

    assert law_of(decided) == law_by_shuffling(counts, ones, read)


def test_where_no_cut_falls_into_a_cell_nothing_is_left_to_lots():
    cells = cells_of([2, 1, 3], [0, 1, 3])
    assert cells.highest([0, 3, 4, 6], None) == [0, 3, 4, 4]


@pytest.mark.parametrize("ones", [0, 1, 2, 3])
def test_ties_without_lots_are_refused_whatever_the_coins_are(ones):
    """A refusal that depended on coins would be a choice by coins."""
    with pytest.raises(VoidAuditError, match="lots decide"):
        cells_of([3], [ones]).highest([1], None)
    with pytest.raises(VoidAuditError, match="lots decide"):
        cells_of([2, 1], [min(ones, 2), 0]).ends(1, 2, None)


def test_lots_are_words_whose_stream_never_changes():
    """PCG64 of numpy, seeded with 1; a change would change results."""
    assert Lots(1).words(2).tolist() == [9441442522235856127, 17532960557476522086]
    assert Lots(1).uniform() == pytest.approx(9441442522235856127 / 2**64, abs=1e-15)


# Whole audits.

N = 120
RULES = [
    OneRun(guesses=60),
    OneRun(guesses=N),
    Ranking(guesses=N),
    Classes(weights=(1.0, 3.0), guesses=(40, 21)),
]


def tails(reading):
    """Return how likely fair coins are to be guessed so well, part by part."""
    match reading:
        case Counts():
            seen = [(reading.correct, reading.guesses)]
        case Ranked():
            seen = [(int(reading.right[:k].sum()), k) for k in (6, 30, N)]
        case Weighted():
            seen = list(zip(reading.correct, reading.guesses, strict=True))
    return [float(stats.binom.sf(right - 1, made, 0.5)) for right, made in seen]


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("keyed", [True, False])
def test_tied_scores_that_say_nothing_seem_to_say_something_no_more_often_than_alpha(
    tally_of, rules, keyed
):
    """Fixed seeds; a valid audit would fail this once in a million choices of them."""
    design = Design(
        canaries=N, rules=rules, claim=PureDP(epsilon=0.0), setting={"tie_seed": 1}
    )
    trials, wrong = 200, []
    for trial in range(trials):
        rng = np.random.default_rng(trial)
        scores = [np.zeros(N), rng.integers(0, 3, N), rng.integers(0, 40, N)][trial % 3]
        bits, key = rng.integers(0, 2, N), None
        commitment, salt = None, "77" * 32
        if keyed:
            key = Key(rng.bytes(32))
            bits = Coins(key=key, count=N).bits()
            commitment = Commitment.to(key, design)
            salt = key.stream("tally", 0, 32).hex()
        tally = tally_of(
            design, range(N), bits, scores, commitment=commitment, salt=salt
        )
        wrong.append([tail <= 0.05 for tail in tails(_reading(tally))])
    for each in np.sum(wrong, axis=0).tolist():
        assert rate_limits(each, trials, alpha=5e-7)[0] <= 0.05


@pytest.mark.parametrize("rules", RULES[1:3])
def test_whole_audits_of_tied_scores_that_say_nothing_refute_hardly_anything(
    tally_of, rules
):
    """Fixed seeds; a valid audit would fail this once in a million choices of them."""
    claim = ApproxDP(epsilon=0.0, delta=1e-6)
    design = Design(canaries=N, rules=rules, claim=claim, setting={"tie_seed": 1})
    wrong = 0
    for trial in range(20):
        rng = np.random.default_rng(trial)
        tally = tally_of(design, range(N), rng.integers(0, 2, N), np.zeros(N))
        result = conclude_scores([tally], coins_were_independent=True)
        wrong += result.claim_test.refuted or result.bound.epsilon_lower > 0
    assert rate_limits(wrong, 20, alpha=2e-6)[0] <= 0.05


@pytest.mark.parametrize("ids", [True, False])
def test_no_salt_decides_whatever_the_coins_are(tally_of, ids):
    """A salt may be public, and fixed before the coins are thrown.

    All 30 scores are equal, and 300 audits share each of 10 salts. 20 or more of 30
    fair coins are guessed once in 20 times. With ids, that is so for each salt alone.
    Without them lots differ with the number of ones alone, and a salt may be lucky more
    often, but none is always. Fixed seeds; a valid audit would fail this once in a
    hundred thousand choices of them.
    """
    n, trials = 30, 300
    assert 0.049 < stats.binom.sf(19, n, 0.5) < 0.05
    design = Design(
        canaries=n,
        rules=OneRun(guesses=n),
        claim=PureDP(epsilon=0.0),
        setting={"tie_seed": 0},
    )
    rng, lucky = np.random.default_rng(5), []
    for salt in range(10):
        tallies = [
            tally_of(
                design,
                range(n),
                rng.integers(0, 2, n),
                np.zeros(n),
                salt=f"{salt:02x}" * 32,
                check=ids,
            )
            for _ in range(trials)
        ]
        lucky.append(sum(_reading(tally).correct >= 20 for tally in tallies))
    limits = [rate_limits(each, trials, alpha=6e-7)[0] for each in lucky]
    assert max(limits) <= (0.05 if ids else 0.3), lucky


@pytest.mark.parametrize("seed", [None, True, -1, 1.5, "1"])
def test_a_tie_seed_that_is_none_decides_nothing(tally_of, seed):
    design = Design(
        canaries=4,
        rules=OneRun(guesses=2),
        claim=PureDP(epsilon=1.0),
        setting={"tie_seed": seed},
    )
    with pytest.raises(VoidAuditError, match="register the design with a key"):
        conclude_scores([tally_of(design, range(4), [0, 1, 1, 1], np.zeros(4))])
