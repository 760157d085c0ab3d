"""The auditors: whole audits on mechanisms that one can see through."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dpaudit import (
    AdaptiveBets,
    AdaptiveClasses,
    AdaptiveCount,
    AdaptiveMostLikely,
    AdaptiveRounds,
    ApproxDP,
    Coins,
    Design,
    Extremes,
    Key,
    MostLikely,
    OneRun,
    Pairs,
    PureDP,
    Ranking,
    SeparateRuns,
    WeightClasses,
    audit_adaptive,
    audit_classic,
    audit_one_run,
)
from dpaudit.bounds import Counts, ExactBound
from dpaudit.bounds.adaptive import AdaptiveBound
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game import Everyone, Submission
from dpaudit.game.design import Commitment
from dpaudit.game.guessers import Confident, Echo
from dpaudit.game.result import judge
from dpaudit.mechanisms.local import LocalRandomisedResponse
from dpaudit.privacy.guarantees import Adjacency

KEY = Key(bytes(range(32)))
SURE = LocalRandomisedResponse(epsilon=8.0)
CLAIM = PureDP(epsilon=1.0, adjacency=Adjacency.REPLACE_ONE)


def design(rules, canaries=200):
    return Design(canaries=canaries, rules=rules, claim=CLAIM)


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize(
    ("guesser", "rules"),
    [
        (Everyone(mechanism=SURE), OneRun(guesses=200)),
        (Echo(), OneRun(guesses=200)),
        (MostLikely(mechanism=SURE, guesses=50), OneRun(guesses=50)),
        (MostLikely(mechanism=SURE, guesses=200), Ranking(guesses=200)),
        (Confident(mechanism=SURE, threshold=3.0, guesses=90), OneRun(guesses=90)),
        (Extremes(score=np.asarray, top=20, bottom=20), OneRun(guesses=40)),
    ],
)
def test_a_false_claim_is_refuted_in_one_run(guesser, rules):
    result = audit_one_run(
        SURE, guesser, pairs=SURE.pairs, design=design(rules), rng=rng(), key=KEY
    )
    assert result.claim_test.refuted
    assert 1.0 < result.bound.epsilon_lower <= result.ceiling


@pytest.mark.parametrize(
    "rules",
    [
        AdaptiveCount(guesses=100),
        AdaptiveClasses(weights=(1.0, 4.0), guesses=(50, 50)),
        AdaptiveRounds(round_weights=(1.0,)),
        AdaptiveRounds(round_weights=(1.0, 2.0, 1.0), max_jump=0.4),
        AdaptiveBets(),
    ],
)
def test_a_false_claim_is_refuted_adaptively(rules):
    guesser = AdaptiveMostLikely(mechanism=SURE, threshold=1.0, rules=rules)
    result = audit_adaptive(
        SURE, guesser, pairs=SURE.pairs, design=design(rules), rng=rng(), key=KEY
    )
    assert result.commitment == Commitment.to(KEY, design(rules))
    assert result.claim_test.refuted
    assert 1.0 < result.bound.epsilon_lower <= result.ceiling


@pytest.mark.parametrize(
    ("rules", "bound"),
    [
        (AdaptiveCount(guesses=100), AdaptiveBound()),
        (OneRun(guesses=100), ExactBound()),
    ],
)
def test_the_accuracy_that_would_be_caught_is_that_of_the_rules(rules, bound):
    """Delta costs an adaptive game more, so its guesses must be better."""
    claim = ApproxDP(epsilon=1.0, delta=1e-3, adjacency=Adjacency.REPLACE_ONE)
    plan = Design(canaries=200, rules=rules, claim=claim)
    adaptive = isinstance(rules, AdaptiveCount)
    counts = Counts(canaries=200, guesses=100, correct=80, adaptive=adaptive)
    found = judge(counts, design=plan, commitment=None)
    least = next(
        v
        for v in range(101)
        if bound.log_p_value(replace(counts, correct=v), epsilon=1.0, delta=1e-3)
        <= np.log(0.05)
    )
    chance = stats.binom.sf(least - 1, 100, found.detectable_accuracy)
    assert chance == pytest.approx(0.9, abs=1e-9)
    p_value = np.exp(bound.log_p_value(counts, epsilon=1.0, delta=1e-3))
    assert found.claim_test.p_value == pytest.approx(p_value)


def test_an_audit_repeats_itself_from_key_and_seed():
    def run(seed):
        return audit_one_run(
            SURE,
            Everyone(mechanism=SURE),
            pairs=SURE.pairs,
            design=design(OneRun(guesses=200)),
            rng=rng(seed),
            key=KEY,
        )

    assert run(0) == run(0)
    assert run(0).commitment == run(1).commitment


def test_a_new_key_is_made_if_none_is_given():
    def run():
        return audit_one_run(
            SURE,
            Everyone(mechanism=SURE),
            pairs=SURE.pairs,
            design=design(OneRun(guesses=200)),
            rng=rng(),
        )

    assert run().commitment != run().commitment


class Peeker:
    """An adaptive guesser that repeats the last coin it was shown."""

    def __init__(self):
        self.shown = []

    def play(self, output):
        last = np.ones(1, np.int8)
        for i in range(10):
            last = yield Submission(index=np.array([i]), guess=last)
            self.shown.append(int(last[0]))


def test_an_adaptive_guesser_is_sent_the_coins_it_submitted_and_no_others():
    peeker = Peeker()
    rules = AdaptiveCount(guesses=10)
    audit_adaptive(
        SURE, peeker, pairs=SURE.pairs, design=design(rules), rng=rng(), key=KEY
    )
    bits = Coins(key=KEY, count=200).bits()[:10].astype(int)
    assert peeker.shown == (2 * bits - 1).tolist()


class Quiet:
    def play(self, output):
        yield from ()


def test_a_guesser_that_says_nothing_shows_nothing():
    result = audit_adaptive(
        SURE,
        Quiet(),
        pairs=SURE.pairs,
        design=design(AdaptiveCount(guesses=10)),
        rng=rng(),
    )
    assert result.bound.epsilon_lower == 0


def test_rules_of_the_other_game_are_refused():
    guesser = Everyone(mechanism=SURE)
    with pytest.raises(InvalidRunError, match="use audit_adaptive"):
        audit_one_run(
            SURE,
            guesser,
            pairs=SURE.pairs,
            design=design(AdaptiveCount(guesses=10)),
            rng=rng(),
        )
    with pytest.raises(InvalidRunError, match="use audit_one_run"):
        audit_adaptive(
            SURE,
            Quiet(),
            pairs=SURE.pairs,
            design=design(OneRun(guesses=10)),
            rng=rng(),
        )
    with pytest.raises(InvalidRunError, match="in classic auditing every coin"):
        audit_classic(
            SURE,
            lambda output: int(output[0]),
            base=np.array([1]),
            place=0,
            pair=SURE.pairs,
            design=design(Ranking(guesses=10)),
            rng=rng(),
        )


@pytest.mark.parametrize("audit", [audit_one_run, audit_adaptive])
def test_pairs_of_other_canaries_are_refused(audit):
    rules = {audit_one_run: OneRun, audit_adaptive: AdaptiveCount}[audit]
    with pytest.raises(InvalidInputError, match=r"^3 pairs were given for canaries"):
        audit(
            SURE,
            Quiet(),
            pairs=Pairs(x=np.zeros(3), y=np.ones(3)),
            design=design(rules(guesses=10)),
            rng=rng(),
        )


def test_an_adjacency_that_the_pairs_do_not_test_is_refused():
    pairs = Pairs(x=-1, y=1, adjacency=Adjacency.ADD_REMOVE)
    with pytest.raises(InvalidRunError, match="the pairs test add-remove adjacency"):
        audit_one_run(
            SURE,
            Everyone(mechanism=SURE),
            pairs=pairs,
            design=design(OneRun(guesses=200)),
            rng=rng(),
        )


class NoisySum:
    def run(self, data, rng):
        return data.sum() + rng.laplace(scale=0.25)


def test_classic_auditing_sees_what_interference_hides_from_one_run():
    """One sum of a hundred coins says nothing of one; a hundred runs say all."""
    claim = design(SeparateRuns(guesses=100), canaries=100)
    base = np.zeros(100)
    base[1:50] = 1
    result = audit_classic(
        NoisySum(),
        lambda total: 1 if total > 49.5 else -1,
        base=base,
        place=0,
        pair=Pairs(x=0, y=1),
        design=claim,
        rng=rng(),
        key=KEY,
    )
    assert result.claim_test.refuted
    assert result.bound.method == "separate"
    assert base[0] == 0  # the caller's data are left as they were


def test_classic_auditing_passes_are_wrong_guesses():
    result = audit_classic(
        NoisySum(),
        lambda total: 0,
        base=np.zeros(3),
        place=2,
        pair=Pairs(x=0, y=1),
        design=design(SeparateRuns(guesses=20), canaries=20),
        rng=rng(),
    )
    assert result.reading.correct == 0


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (3, "^there is no place=3 among 3 records"),
        (-1, "^place must be a whole number"),
    ],
)
def test_a_place_that_is_none_is_refused(place, message):
    with pytest.raises(InvalidInputError, match=message):
        audit_classic(
            NoisySum(),
            lambda total: 0,
            base=np.zeros(3),
            place=place,
            pair=Pairs(x=0, y=1),
            design=design(SeparateRuns(guesses=20), canaries=20),
            rng=rng(),
        )


def test_classes_are_submitted_with_their_weights():
    class Halves:
        def guess(self, output):
            stake = np.repeat([1.0, 2.0], 100)
            return Submission(index=np.arange(200), guess=output, stake=stake)

    rules = WeightClasses(weights=(1.0, 2.0), guesses=(100, 100))
    result = audit_one_run(
        SURE, Halves(), pairs=SURE.pairs, design=design(rules), rng=rng(), key=KEY
    )
    assert result.claim_test.refuted
    assert result.bound.method == "weighted"


class Publishes:
    """Says what the record at place 0 is."""

    def run(self, data, rng):
        return data[0].tolist()


@pytest.mark.parametrize(
    ("base", "pair"),
    [
        (np.array([0, 1]), Pairs(x=0.2, y=0.7)),
        (np.array(["a", "b"]), Pairs(x="abc", y="abd")),
        (np.zeros((2, 3)), Pairs(x=[[0, 0, 1]], y=[[0, 1, 0]])),
    ],
)
def test_records_of_classic_auditing_are_neither_rounded_nor_cut_off(base, pair):
    y = pair.y.tolist() if pair.y.ndim == 0 else pair.y[0].tolist()
    result = audit_classic(
        Publishes(),
        lambda output: 1 if output == y else -1,
        base=base,
        place=0,
        pair=pair,
        design=design(SeparateRuns(guesses=100), canaries=100),
        rng=rng(),
        key=KEY,
    )
    assert result.reading.correct == 100


@pytest.mark.parametrize("wrong", [0.9, None, 257])
def test_a_classic_guess_that_is_none_is_refused(wrong):
    with pytest.raises(InvalidRunError, match="-1, 0 or 1 only"):
        audit_classic(
            NoisySum(),
            lambda total: wrong,
            base=np.zeros(3),
            place=2,
            pair=Pairs(x=0, y=1),
            design=design(SeparateRuns(guesses=20), canaries=20),
            rng=rng(),
        )


def test_scores_of_any_type_are_ordered_as_numbers():
    for kind in (np.uint8, np.int64, float):
        guesser = Extremes(score=np.asarray, top=1, bottom=1)
        made = guesser.guess(np.array([0, 5, 9], kind))
        assert made.index.tolist() == [2, 0]
