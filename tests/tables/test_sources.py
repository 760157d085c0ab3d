"""Lists of scores in and out: read, checked as far as they can be, audited."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dpaudit import ApproxDP, Coins, Design, Key, OneRun, Ranking
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game import Commitment
from dpaudit.game.setting import Setting
from dpaudit.game.text.findings import sentence
from dpaudit.stats.binomial import rate_limits
from dpaudit.tables.sources import (
    ScoreLists,
    ScoreTable,
    read_score_list,
    read_scores,
)

CLAIM = ApproxDP(epsilon=1.0, delta=0.0)


def design(canaries, guesses=None):
    rules = OneRun(guesses=guesses) if guesses else Ranking(guesses=canaries)
    return Design(canaries=canaries, rules=rules, claim=CLAIM)


def lists(included, excluded, *, shift=1.5, seed=0):
    rng = np.random.default_rng(seed)
    return ScoreLists(
        included=rng.standard_normal(included) + shift,
        excluded=rng.standard_normal(excluded),
    )


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("s.csv", "0.5\n-1\n2e3\n"),
        ("s.csv", "score\n0.5\n-1\n2e3\n"),
        ("s.csv", "id,score\na,0.5\nb,-1\nc,2e3\n"),
        ("s.npy", None),
        ("s.npz", {"anything": True}),
        ("s.npz", {"scores": True, "other": False}),
    ],
)
def test_a_list_is_read_from_any_of_its_formats(tmp_path, name, content):
    path, values = tmp_path / name, np.array([0.5, -1.0, 2000.0])
    if isinstance(content, str):
        path.write_text(content)
    elif content is None:
        np.save(path, values.astype(">f4"))
    else:
        arrays = {key: values if real else [0] for key, real in content.items()}
        np.savez(path, **arrays)
    assert read_score_list(path).tolist() == values.tolist()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("s.csv", "", "is empty"),
        ("s.csv", "loss\n1\n", "expected a number a line, or a column 'score'"),
        ("s.csv", "1\nx\n", "row 2: 'x' is not a number"),
        ("s.csv", "1\n2,3\n", "expected 1 fields, got 2"),
        ("s.npz", {"a": [1.0], "b": [2.0]}, "expected one array, or one called"),
        ("s.npy", np.zeros((2, 2)), "expected a list, got an array of shape (2, 2)"),
        ("s.npy", np.array([1.0, np.nan]), "row 2: the score is not a number"),
        ("s.txt", "1\n", "the name must end in"),
    ],
)
def test_a_bad_list_is_refused_with_its_place(tmp_path, name, content, said):
    path = tmp_path / name
    if isinstance(content, str):
        path.write_text(content)
    elif isinstance(content, dict):
        np.savez(path, **content)
    else:
        np.save(path, content)
    with pytest.raises(InvalidInputError) as caught:
        read_score_list(path)
    assert said in str(caught.value)


def test_a_truncated_npy_file_is_named(tmp_path):
    path = tmp_path / "s.npy"
    np.save(path, np.arange(20.0))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InvalidInputError, match="it declares 160 bytes"):
        read_score_list(path)


def test_both_lists_may_be_in_one_file(tmp_path):
    path = tmp_path / "both.npz"
    np.savez(path, in_scores=[1.0, 2.0], out_scores=[0.0])
    both = read_scores(path)
    assert isinstance(both, ScoreLists)
    assert (both.included.tolist(), both.excluded.tolist()) == ([1.0, 2.0], [0.0])
    assert both.canaries == 3
    np.savez(path, in_scores=[1.0, 2.0])
    with pytest.raises(InvalidInputError, match="expected one array 'out_scores'"):
        read_scores(path)
    np.savez(path, id=[1], score=[2.0])
    assert isinstance(read_scores(path), ScoreTable)


def test_the_count_and_the_p_value_are_those_done_by_hand():
    seen = lists(52, 45)
    result = seen.audit(design(97, guesses=30))
    rows = [(s, 1) for s in seen.included] + [(s, 0) for s in seen.excluded]
    ranked = [bit for _, bit in sorted(rows)]
    right = sum(ranked[-15:]) + 15 - sum(ranked[:15])
    assert result.reading.correct == right
    p = math.e / (1 + math.e)
    tail = sum(math.comb(30, k) * p**k * (1 - p) ** (30 - k) for k in range(right, 31))
    assert result.claim_test.p_value == pytest.approx(tail, rel=1e-9)


@pytest.mark.parametrize("ties", [False, True])
def test_the_order_of_a_list_does_not_matter(ties):
    coins = Coins(key=Key(bytes(32)), count=110)
    ones = int(coins.bits().sum())
    seen, rng = lists(ones, 110 - ones), np.random.default_rng(3)
    if ties:
        seen = ScoreLists(
            included=np.round(seen.included), excluded=np.round(seen.excluded)
        )
    shuffled = ScoreLists(
        included=rng.permutation(seen.included), excluded=seen.excluded[::-1]
    )
    one, other = (
        each.audit(design(110), coins.key if ties else None)
        for each in (seen, shuffled)
    )
    assert one == other


def test_ties_are_decided_by_the_key_and_not_by_the_list_they_stand_in():
    """All scores equal: guesses are coins. 400 keys, 40 guesses each.

    The mean of right guesses is 20 with deviation 0.158; 0.8 is five deviations: a
    false alarm in 1.7 million.
    """
    rights = []
    for number in range(400):
        coins = Coins(key=Key(number.to_bytes(32, "big")), count=100)
        ones = int(coins.bits().sum())
        seen = ScoreLists(included=np.zeros(ones), excluded=np.zeros(100 - ones))
        fixed = design(100, guesses=40)
        found = seen.audit(fixed, coins.key)
        rights.append(found.reading.correct)
    assert abs(np.mean(rights) - 20) < 0.8


def test_with_a_key_tied_lists_refute_epsilon_0_no_more_often_than_alpha():
    """300 keys; 20 of 30 coins are guessed once in 20 times (0.0494).

    Fixed keys; a valid audit fails this once in a thousand choices of them.
    """
    n, wrong = 30, 0
    fixed = replace(design(n, guesses=n), claim=ApproxDP(epsilon=0.0, delta=0.0))
    for number in range(300):
        coins = Coins(key=Key(number.to_bytes(32, "big")), count=n)
        ones = int(coins.bits().sum())
        seen = ScoreLists(included=np.zeros(ones), excluded=np.zeros(n - ones))
        found = seen.audit(fixed, coins.key)
        wrong += found.claim_test.refuted
        assert found.claim_test.refuted == (found.reading.correct >= 20)
    assert rate_limits(wrong, 300, alpha=2e-3)[0] <= 0.05


@pytest.mark.parametrize("setting", [Setting(), Setting(tie_seed=7)])
@pytest.mark.parametrize(("guesses", "right"), [(39, 0), (40, 0), (98, 1), (100, 2)])
def test_ties_without_a_key_are_broken_against_the_auditor(setting, guesses, right):
    """All equal: the 48 excluded come first. No seed decides, as there are no ids."""
    seen = ScoreLists(included=np.zeros(52), excluded=np.zeros(48))
    fixed = replace(design(100, guesses), setting=setting)
    result = seen.audit(fixed)
    assert result.reading.correct == right
    assert f"of {guesses} guesses, all against the auditor; next time" in str(
        sentence(result.sanity_checks[1])
    )


@pytest.mark.parametrize(
    ("guesses", "right", "decided"),
    [(2, 2, 0), (8, 6, 0), (7, 5, 1), (9, 6, 1), (11, 6, 2)],
)
def test_equal_scores_cost_something_where_a_guess_ends_between_them(
    guesses, right, decided
):
    """Scores 1, then 2 and 5 and 8, each three times, then 9; counted by hand."""
    seen = ScoreLists(
        included=np.array([9.0, 8, 8, 5, 2]), excluded=np.array([8.0, 5, 5, 2, 2, 1])
    )
    fixed = design(11, guesses)
    found = seen.audit(fixed, coins_were_independent=True)
    assert found.reading.correct == right
    ties = [sentence(each) for each in found.sanity_checks[1:]]
    assert len(ties) == (decided > 0)
    assert all(f"ties decided {decided} of {guesses}" in each for each in ties)


def test_lengths_that_fair_coins_do_not_give_are_refused():
    """900 in and 100 out, without leakage, would certify epsilon about 2 elsewhere."""
    with pytest.raises(InvalidRunError, match="less than once in a million times"):
        lists(900, 100, shift=0).audit(design(1000))


def test_exactly_half_is_refused_unless_it_is_said_to_be_chance():
    seen = lists(50, 50)
    with pytest.raises(InvalidRunError, match="exactly half of the coins are ones"):
        seen.audit(design(100))
    result = seen.audit(design(100), coins_were_independent=True)
    assert result.commitment is None


def test_with_a_key_as_many_must_be_in_as_its_coins_say():
    key = Key(bytes(32))
    coins = Coins(key=key, count=100)
    ones = int(coins.bits().sum())
    fixed = design(100)
    result = lists(ones, 100 - ones).audit(fixed, coins.key)
    assert result.commitment == Commitment.to(key, fixed)
    for included, total in ((ones + 1, 100), (ones, 101)):
        with pytest.raises(InvalidRunError, match=r"coins put \d+ in|101 scores"):
            lists(included, total - included).audit(fixed, coins.key)


def test_scores_that_say_nothing_refute_a_true_claim_rarely():
    """400 audits of epsilon = 0, alpha = 0.05: more than 38 has a chance below 1e-3."""
    rng = np.random.default_rng(11)
    fixed = Design(
        canaries=60,
        rules=OneRun(guesses=60),
        claim=ApproxDP(epsilon=0.0, delta=0.0),
    )
    refuted = 0
    for seed in range(400):
        ones = int(rng.binomial(60, 0.5))
        result = lists(ones, 60 - ones, shift=0, seed=seed).audit(
            fixed, coins_were_independent=True
        )
        refuted += result.claim_test.refuted
    assert refuted <= 38
