"""Scores from elsewhere: what can be seen to void an audit is refused."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dpaudit import (
    AdaptiveBets,
    ApproxDP,
    Coins,
    Design,
    Key,
    OneRun,
    PureDP,
    Ranking,
    Result,
    WeightClasses,
    audit_scores,
)
from dpaudit.errors import InvalidRunError
from dpaudit.game.score_summary import ScoreSummary
from dpaudit.game.scores import check_assigned, reading_of_scores
from dpaudit.stats.binomial import rate_limits

N = 200
COINS = Coins(key=Key(bytes(range(32))), count=N)
IDS = np.arange(N)
CLAIM = PureDP(epsilon=0.5)
DESIGN = Design(canaries=N, rules=OneRun(guesses=100), claim=CLAIM)


def scores_of(bits, seed, shift=2.0):
    rng = np.random.default_rng(seed)
    return shift * bits + rng.standard_normal(len(bits))


def test_the_highest_and_the_lowest_are_guessed():
    bits = COINS.bits()
    scores = scores_of(bits, 0)
    result = audit_scores(IDS, COINS, scores, design=DESIGN)
    order = np.argsort(scores)
    right = bits[order[-50:]].sum() + (1 - bits[order[:50]]).sum()
    assert result.reading.correct == right
    assert result.commitment.holds_for(COINS.key, DESIGN)


def test_rows_may_come_in_any_order():
    bits = COINS.bits()
    scores = scores_of(bits, 0)
    order = np.random.default_rng(1).permutation(N)
    whole = audit_scores(IDS, COINS, scores, design=DESIGN)
    mixed = audit_scores(IDS[order], COINS, scores[order], design=DESIGN)
    assert mixed == whole


def test_a_ranking_puts_the_surest_first():
    bits = COINS.bits()
    scores = np.where(bits == 1, 1.0, -1.0) * np.arange(N, 0, -1)
    design = Design(canaries=N, rules=Ranking(guesses=N), claim=CLAIM)
    right = audit_scores(IDS, COINS, scores, design=design).reading.right
    few = min(bits.sum(), N - bits.sum())
    assert right[: 2 * few].all()


def test_classes_are_filled_from_the_surest_in_order_of_weight():
    """Highest, lowest, second highest, ...: the first 7 are of weight 5."""
    bits = COINS.bits()
    scores = scores_of(bits, 0)
    rules = WeightClasses(weights=(2.0, 5.0, 1.0), guesses=(11, 7, 20))
    design = Design(canaries=N, rules=rules, claim=CLAIM)
    read = audit_scores(IDS, COINS, scores, design=design).reading
    order, right = np.argsort(scores).tolist(), []
    while len(right) < 38:
        right.append(
            bits[order.pop(-1 if len(right) % 2 == 0 else 0)] == len(right) % 2
        )
    right = [not each for each in right]
    assert read.correct == (sum(right[7:18]), sum(right[:7]), sum(right[18:38]))
    assert (read.guesses, read.weights) == (rules.guesses, rules.weights)
    assert read.committed  # to weights and numbers, which are the design's


def test_one_class_says_what_plain_counts_say():
    scores = scores_of(COINS.bits(), 3)
    found = []
    for rules in (WeightClasses(weights=(1.0,), guesses=(100,)), OneRun(guesses=100)):
        design = Design(canaries=N, rules=rules, claim=CLAIM)
        found.append(audit_scores(IDS, COINS, scores, design=design))
    assert found[0].reading.correct == (found[1].reading.correct,)
    p_values = [each.claim_test.p_value for each in found]
    assert p_values[0] == pytest.approx(p_values[1], rel=1e-6)


@pytest.mark.parametrize("guesses", [1, 2, 3, 7, N - 1, N])
def test_the_first_guesses_of_a_ranking_are_those_of_a_shorter_one(guesses):
    scores = scores_of(COINS.bits(), 4)
    read = [
        audit_scores(
            IDS,
            COINS,
            scores,
            design=Design(canaries=N, rules=Ranking(guesses=n), claim=CLAIM),
        ).reading.right
        for n in (guesses, N)
    ]
    assert read[0].tolist() == read[1][:guesses].tolist()


def test_bits_may_be_given_instead_of_coins_and_the_result_says_so():
    bits = COINS.bits()
    scores = scores_of(bits, 0)
    result = audit_scores([f"canary {i}" for i in IDS], bits, scores, design=DESIGN)
    assert result.reading == audit_scores(IDS, COINS, scores, design=DESIGN).reading
    assert "not committed, so nobody can check" in result.details()
    assert Result.from_json(result.to_json()) == result


def test_the_result_names_what_the_scores_could_not_see():
    scores = scores_of(COINS.bits(), 0)
    parts = ("the sampler", "the clipping")
    result = audit_scores(IDS, COINS, scores, design=DESIGN, not_exercised=parts)
    assert result.not_exercised == parts
    assert "Not exercised: the sampler, the clipping." in str(result)


HALF = np.random.default_rng(0).permutation(np.arange(N) % 2)
UNFAIR = (np.arange(N) < 180).astype(int)


@pytest.mark.parametrize(
    ("ids", "bits", "scores", "message"),
    [
        (IDS, UNFAIR, IDS, "180 of 200 coins are ones"),
        (IDS, HALF, IDS, "exactly half of the coins are ones"),
        (IDS // 2, COINS.bits(), IDS, "an id appears twice"),
        (IDS // 2, COINS, IDS, "an id appears twice"),
        (IDS + 1, COINS, IDS, "an id is unknown"),
        (IDS - 1, COINS, IDS, "an id is unknown"),
        (IDS * 1.0, COINS, IDS, "an id is unknown"),
        (IDS, COINS.bits(), np.where(IDS == 3, np.nan, IDS), "must be numbers"),
        (IDS, COINS.bits(), [str(i) for i in IDS], "must be numbers"),
        (IDS, np.sort(COINS.bits()), IDS, "1 of 199 coins differ from the one before"),
        (IDS, COINS.bits() + 1, IDS, "0 or 1 for every row"),
        (IDS, COINS.bits()[1:], IDS, "0 or 1 for every row"),
        (IDS[1:], COINS.bits()[1:], IDS[1:], "199 rows for canaries=200"),
        (IDS, COINS.bits(), IDS[1:], "two lists of one length"),
        (IDS, Coins(key=COINS.key, count=N + 1), IDS, "201 coins for canaries=200"),
    ],
)
def test_a_table_that_voids_the_audit_is_refused(ids, bits, scores, message):
    with pytest.raises(InvalidRunError, match=message):
        audit_scores(ids, bits, scores, design=DESIGN)


def test_as_near_to_half_as_can_be_counts_as_half():
    design = Design(canaries=101, rules=OneRun(guesses=10), claim=CLAIM)
    with pytest.raises(InvalidRunError, match="50 of 101"):
        audit_scores(np.arange(101), np.arange(101) % 2, np.arange(101), design=design)


def test_ids_of_mixed_kinds_are_refused():
    ids = np.array([*range(N - 1), "x"], object)
    with pytest.raises(InvalidRunError, match="all numbers or all text"):
        audit_scores(ids, COINS.bits(), IDS, design=DESIGN)


def test_exactly_half_is_taken_if_it_was_chance():
    audit_scores(IDS, HALF, IDS, design=DESIGN, coins_were_independent=True)


def test_coins_of_pairs_of_which_one_is_in_are_refused_though_said_to_be_chance():
    """Within a pair the coins differ; from pair to pair they do so every other time."""
    first = COINS.bits()[::2]
    pairs = np.stack([first, 1 - first], axis=1).ravel()
    changes = 100 + np.count_nonzero(first[1:] == first[:-1])
    with pytest.raises(InvalidRunError, match=f"{changes} of 199 coins differ"):
        audit_scores(IDS, pairs, IDS, design=DESIGN, coins_were_independent=True)
    # Names that were there before are in another order, and those are what counts.
    names = np.random.default_rng(1).permutation(N)
    audit_scores(names, pairs, IDS, design=DESIGN, coins_were_independent=True)


@pytest.mark.parametrize(("n", "least"), [(40, 5), (60, 11), (200, 65)])
def test_coins_that_seldom_change_by_id_are_refused_once_in_a_million_times(n, least):
    """The chance of so few changes, or so many, is a sum of whole numbers."""

    def chance(changes):
        ways = sum(math.comb(n - 1, k) for k in range(changes + 1))
        return Fraction(2 * ways, 2 ** (n - 1))

    def read(changes):
        bits = np.arange(n) * (changes + 1) // n % 2
        assert np.count_nonzero(np.diff(bits)) == changes
        design = Design(canaries=n, rules=OneRun(guesses=2), claim=CLAIM)
        said = {"design": design, "coins_were_independent": True}
        reading_of_scores(np.arange(n), bits, np.arange(n), **said)

    assert chance(least - 1) < Fraction(1, 10**6) <= chance(least)
    for changes in (least, n - 1 - least):
        read(changes)
    for changes in (least - 1, n - least):
        with pytest.raises(InvalidRunError, match=f"{changes} of {n - 1} coins differ"):
            read(changes)


def test_rules_of_other_games_are_refused():
    design = Design(canaries=N, rules=AdaptiveBets(), claim=CLAIM)
    with pytest.raises(InvalidRunError, match="got AdaptiveBets"):
        audit_scores(IDS, COINS, IDS, design=design)


def test_scores_that_say_nothing_are_right_in_every_class_as_often_as_coins():
    """Fixed seeds; a valid audit would fail this once in a million choices of them."""
    rules = WeightClasses(weights=(1.0, 3.0), guesses=(60, 21))
    design = Design(canaries=N, rules=rules, claim=CLAIM)
    right = np.zeros(2, int)
    for seed in range(300):
        rng = np.random.default_rng(seed)
        coins = Coins(key=Key(rng.bytes(32)), count=N)
        right += reading_of_scores(IDS, coins, rng.random(N), design=design).correct
    for correct, guesses in zip(right.tolist(), rules.guesses, strict=True):
        low, high = rate_limits(correct, 300 * guesses, alpha=1e-6)
        assert low <= 0.5 <= high


@pytest.mark.parametrize("rules", [OneRun(guesses=20), Ranking(guesses=N)])
def test_scores_that_say_nothing_refute_nothing_more_often_than_alpha(rules):
    """Fixed seeds; a valid audit would fail this once in a million choices of them."""
    claim = ApproxDP(epsilon=0.0, delta=1e-6)
    design = Design(canaries=N, rules=rules, claim=claim)
    wrong = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        coins = Coins(key=Key(rng.bytes(32)), count=N)
        result = audit_scores(IDS, coins, rng.random(N), design=design)
        wrong += result.claim_test.refuted or result.bound.epsilon_lower > 0
    assert rate_limits(wrong, 300, alpha=2e-6)[0] <= 0.05


def test_rows_in_another_order_are_the_same_audit_even_with_ties():
    n, rng = 400, np.random.default_rng(1)
    coins = Coins(key=Key(bytes(32)), count=n)
    scores = np.round(coins.bits() + rng.normal(size=n))
    design = Design(canaries=n, rules=Ranking(guesses=n), claim=PureDP(epsilon=1.0))
    found = set()
    for _ in range(10):
        order = rng.permutation(n)
        result = audit_scores(
            order,
            coins,
            scores[order],
            design=design,
            tie_rng=np.random.default_rng(7),
        )
        found.add(result.to_json())
    assert len(found) == 1


def test_the_scores_are_summed_up_beside_the_verdict():
    scores = scores_of(COINS.bits(), 5)
    result = audit_scores(IDS, COINS, scores, design=DESIGN)
    assert result.scores == ScoreSummary.of(scores, COINS.bits())


@pytest.mark.parametrize("ones", [60, 140])
def test_seven_in_ten_ones_are_no_fair_coins(ones):
    """Fair coins: once in 70 million times; coins of 73 %: every other time."""
    with pytest.raises(InvalidRunError, match=f"^{ones} of 200 coins are ones"):
        check_assigned(ones, DESIGN, stated_independent=True)


def test_one_or_two_coins_may_be_half_ones_only_if_that_was_chance():
    def check(ones, rows, *, said):
        design = Design(canaries=rows, rules=OneRun(guesses=1), claim=CLAIM)
        check_assigned(ones, design, stated_independent=said)

    check(1, 1, said=False)
    check(3, 4, said=False)
    check(100, 200, said=True)
    for ones, rows in ((1, 2), (1, 3), (2, 3), (100, 200), (100, 201)):
        with pytest.raises(InvalidRunError, match=r"^exactly half of the coins"):
            check(ones, rows, said=False)


def test_what_was_not_assigned_at_random_is_refused_with_what_to_do_next_time():
    for ones in (100, 180):
        with pytest.raises(InvalidRunError, match=r"Next time let a coin .* register"):
            check_assigned(ones, DESIGN, stated_independent=False)


@pytest.mark.parametrize("weights", [(2.0, 5.0, 1.0), (1.0, 2.0, 5.0)])
def test_the_heaviest_class_takes_the_surest_also_where_some_are_wrong(weights):
    """Right for seven, wrong for eleven, right for twenty: no two classes alike."""
    right = np.repeat([True, False, True], [7, 11, 20])
    sizes = dict(zip((5.0, 2.0, 1.0), (7, 11, 20), strict=True))
    hits = dict(zip((5.0, 2.0, 1.0), (7, 0, 20), strict=True))
    rules = WeightClasses(weights=weights, guesses=tuple(sizes[w] for w in weights))
    found = rules.read_surest(right, canaries=N)
    assert found.correct == tuple(hits[w] for w in weights)
