"""Audits of functions: what they call, what they fix, how often they are wrong."""

import math
import random
from functools import partial

import numpy as np
import pytest
from scipy import stats

from dpaudit import ApproxDP, OneRun, PureDP, RunByRun, SeparateRuns
from dpaudit.bounds import Counts, judge_claim
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.result import judge
from dpaudit.privacy.guarantees import Adjacency
from dpaudit.testing import (
    Calls,
    OneRecord,
    OneValue,
    Seconds,
    audit_function,
    fixed_key,
)
from dpaudit.testing.features import tabulate
from dpaudit.testing.guessers import LEARNERS

RIGHT = math.e / (1 + math.e)
BIT = OneValue(x=0, y=1)


def pure(epsilon):
    return PureDP(epsilon=epsilon, adjacency=Adjacency.REPLACE_ONE)


def key(number):
    return fixed_key(number.to_bytes(32, "little"))


def response(bit, rng, right=RIGHT):
    return bit if rng.random() < right else 1 - bit


def audit(function, *, number=0, calls=300, neighbours=BIT, claim=None, **rest):
    return audit_function(
        function,
        neighbours=neighbours,
        claim=claim or pure(1.0),
        budget=Calls(calls=calls),
        key=key(number),
        **rest,
    )


# Validity


@pytest.mark.parametrize("alpha", [0.05, 1e-3, 1e-3 / 12])
def test_randomised_response_at_its_claim_is_refuted_with_chance_at_most_alpha(alpha):
    """Exactly: once all is fixed, the right guesses are binomial; sum what refutes."""
    result = audit(response, calls=100, alpha=alpha)
    design = result.audit.design
    k = design.guesses

    def refuted(correct):
        counts = Counts(canaries=design.canaries, guesses=k, correct=correct)
        found = judge(counts, design=design, commitment=None)
        return found.claim_test.refuted

    likely = range(int(stats.binom.ppf(0.5, k, RIGHT)), k + 1)
    chance = sum(stats.binom.pmf(v, k, RIGHT) for v in likely if refuted(v))
    assert not refuted(likely[0])  # nor any smaller count
    assert alpha / 10 < chance <= alpha


def test_whole_audits_of_an_honest_mechanism_are_refuted_no_more_than_alpha_says():
    """100 audits, learning included, at alpha = 0.2: more than 41 once in a million."""
    refuted = sum(
        audit(response, number=i, calls=40, alpha=0.2).refuted for i in range(100)
    )
    assert refuted <= stats.binom.isf(1e-6, 100, 0.2)


def test_a_guesser_that_peeks_at_the_coins_would_refute_pure_noise():
    """The breakage that the order of events forbids, to show what it would do."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, 300)
    table = tabulate([float(x) for x in rng.normal(size=300)])
    scores = LEARNERS["values"](table, bits).scores(table)
    right = int(np.sum((scores >= 0) == (bits == 1)))
    counts = Counts(canaries=300, guesses=300, correct=right)
    assert judge_claim(pure(1.0), counts, alpha=1e-6).refuted


def test_learning_sees_other_coins_than_those_of_the_audit():
    """A mechanism that keeps all its inputs: neither part repeats the other."""
    seen = []

    def keep(bit, rng):
        seen.append(bit)
        return response(bit, rng)

    result = audit(keep)
    learned, audited = seen[:300], seen[300:]
    truth = dict(zip(result.transcript.index, result.transcript.truth, strict=True))
    assert all(truth[i] == 2 * audited[i] - 1 for i in truth)
    agree = np.mean(np.array(learned) == np.array(audited))
    assert 0.3 < agree < 0.7


def test_a_mechanism_that_leaks_only_while_it_is_learned_from_is_not_refuted():
    calls = []

    def two_faced(bit, rng):
        calls.append(bit)
        return bit if len(calls) <= 300 else response(bit, rng, right=0.5)

    assert not audit(two_faced, alpha=1e-3).refuted


# Power


@pytest.mark.nightly
def test_a_planted_leak_of_the_size_stated_is_caught_as_often_as_stated():
    """The whole audit of a copy that adds one noisy answer; 40 of them.

    Caught with chance 0.9, fewer than 28 would be once in 15,000 times.
    """
    honest = audit(response, calls=200, alpha=1e-3)

    def planted(bit, rng):
        right = 1 / (1 + math.exp(-honest.detectable_epsilon))
        return round(rng.normal(), 1), response(bit, rng, right)

    caught = [
        audit(planted, number=i, calls=200, alpha=1e-3).refuted for i in range(40)
    ]
    assert sum(caught) >= 28


@pytest.mark.parametrize(
    ("function", "guesser"),
    [
        (lambda v, rng: v + rng.laplace(), "lattice"),
        (lambda v: v + np.random.default_rng(3).laplace(), "values"),
        (lambda v: f"{v}" if random.random() < 0.9 else "-", "values"),
        (lambda v, rng: round(rng.normal(scale=1 + 4 * v), 2), "bins"),
    ],
)
def test_faults_are_found_by_who_looks_for_them(function, guesser):
    result = audit(function, calls=2000, alpha=1e-4)
    assert result.refuted
    assert result.guesser == guesser


class Opaque:
    def __init__(self, bit):
        self.bit = bit


async def waits(bit):
    return bit


def yields(bit):
    yield bit


@pytest.mark.parametrize("function", [waits, yields, Opaque, lambda b: [Opaque(b)]])
def test_a_leak_in_what_cannot_be_compared_does_not_pass(function):
    with pytest.raises(InvalidInputError, match="cannot be compared"):
        audit(function)


@pytest.mark.parametrize("buffer", [np.zeros(3), [0, 0, 0], [0, "text", 0]])
def test_a_leak_in_what_is_returned_again_and_again_is_caught(buffer):
    def reuse(bit):
        buffer[0] = bit
        return buffer

    assert audit(reuse, alpha=1e-3).refuted


@pytest.mark.parametrize("odd", [None, 7.5, "sorry"])
def test_a_rare_output_of_another_kind_hides_no_leak(odd):
    """Randomised response of 2.2 that claims 1: 1000 calls always refute it."""

    def seldom(bit, rng):
        return odd if rng.random() < 1 / 1000 else response(bit, rng, 0.9)

    found = [audit(seldom, number=i, calls=1000, alpha=1e-3) for i in range(6)]
    assert all(result.refuted for result in found)


def test_that_runs_are_independent_is_registered_where_it_is_assumed():
    approximate = ApproxDP(epsilon=1.0, delta=0.1, adjacency=Adjacency.REPLACE_ONE)
    record = OneRecord(data=[0, 0], index=0, x=0, y=1)
    found = {
        "runs": audit(response, claim=approximate),
        "records": audit(lambda d, rng: response(d[0], rng), neighbours=record),
        "one run": audit(response),
    }
    rules = {name: type(r.audit.design.rules) for name, r in found.items()}
    assert rules == {"runs": RunByRun, "records": SeparateRuns, "one run": OneRun}
    methods = {name: r.audit.bound.method for name, r in found.items()}
    assert methods == {
        "runs": "whole claim",
        "records": "separate",
        "one run": "exact",
    }


def test_delta_is_covered_by_the_claim():
    """With chance 0.1 the bit is shown: (0, 0.1)-DP, and not (0, 0.001)-DP."""

    def shown(bit, rng):
        return bit if rng.random() < 0.1 else None

    def claim(delta):
        return ApproxDP(epsilon=0.0, delta=delta, adjacency=Adjacency.REPLACE_ONE)

    found = [
        audit(shown, calls=5000, claim=claim(delta), alpha=1e-3)
        for delta in (0.1, 0.001)
    ]
    assert [result.refuted for result in found] == [False, True]
    assert {result.audit.bound.method for result in found} == {"whole claim"}


def test_outputs_of_all_lengths_are_read():
    """A set of names that grows; the bit is told at its end, after any number of them.

    So the audit may meet longer outputs than were learned from.
    """

    def names(bit, rng):
        many = ["x"] * int(rng.geometric(0.3))
        return [response(bit, rng, 0.95), *many, float(len(many))]

    assert audit(names, calls=600, alpha=1e-4).refuted


# Calls


def test_the_same_key_repeats_an_audit_with_every_kind_of_generator():
    def by_random(bit):
        return response(bit, random)

    def by_numpy(bit):
        return response(bit, np.random)

    for function in (response, by_random, by_numpy):
        first, second, other = (audit(function, number=i) for i in (1, 1, 2))
        assert first.transcript == second.transcript
        assert first.transcript != other.transcript


def test_global_generators_are_left_as_they_were():
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    before = random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    audit(lambda bit: response(bit, random))
    with pytest.raises(ZeroDivisionError):
        audit(lambda bit: 1 / 0)
    assert random.getstate() == before[0]
    np.testing.assert_array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002


@pytest.mark.parametrize(
    ("data", "given"),
    [
        ([5, 6, 7], [[5, 0, 7], [5, 0.5, 7]]),
        ((5, 6, 7), [(5, 0, 7), (5, 0.5, 7)]),
        (np.array([5, 6, 7]), [np.array([5, 0, 7]), np.array([5, 0.5, 7])]),
        ([[1], [2]], [[[1], 0], [[1], 0.5]]),
    ],
)
def test_a_record_is_put_into_a_copy_of_the_data(data, given):
    before = repr(data)
    record = OneRecord(data=data, index=1, x=0, y=0.5)
    for bit in (0, 1):
        found = record.input(bit)
        assert type(found) is type(data)
        np.testing.assert_equal(found, given[bit])
        if not isinstance(found, tuple):
            found[0] = None if isinstance(found, list) else 0
    assert repr(data) == before


def test_a_function_that_changes_its_input_changes_nothing_else():
    def clumsy(values, rng):
        values.append(1)
        return response(len(values) - 2, rng)

    result = audit(clumsy, neighbours=OneValue(x=[1], y=[1, 1]))
    assert 0.6 < result.audit.reading.correct / result.audit.reading.guesses < 0.85


def test_arguments_without_meaning_are_refused():
    with pytest.raises(InvalidInputError, match="index=3"):
        OneRecord(data=[1], index=3, x=0, y=1)
    with pytest.raises(InvalidInputError, match="pass both of its versions"):
        OneRecord(data={1: 2}, index=0, x=0, y=1)
    with pytest.raises(InvalidInputError, match="seconds"):
        Seconds(seconds=0)
    with pytest.raises(InvalidInputError, match="calls"):
        Calls(calls=3)


def test_a_function_without_signature_is_called_with_its_input_alone():
    assert audit(int, neighbours=OneValue(x="0", y="1")).refuted  # type says all


def test_functools_partial_is_a_function_too():
    assert audit(partial(response, right=1.0)).refuted


# Budgets


def test_calls_fit_into_the_time():
    """A clock of the function's own counts; ten times the budget is not reached."""
    made = []

    def slow(bit, rng):
        made.append(bit)
        return response(bit, rng)

    audit_function(
        slow, neighbours=BIT, claim=pure(1.0), budget=Seconds(seconds=0.02), key=key(1)
    )
    few = len(made)
    audit_function(
        slow, neighbours=BIT, claim=pure(1.0), budget=Seconds(seconds=0.4), key=key(1)
    )
    assert few < len(made) - few


@pytest.mark.parametrize("wide", [lambda v: v.tolist(), np.asarray, lambda v: [*v, ""]])
def test_of_wide_outputs_fewer_are_learned_from(wide):
    """Or learning would take many times as long as the calls."""
    result = audit_function(
        lambda bit, rng: wide(np.tile(rng.random(10), 50)),
        neighbours=BIT,
        claim=pure(1.0),
        budget=Seconds(seconds=0.2),
        key=key(1),
    )
    assert 60 <= result.calls <= 200


def test_what_must_be_caught_takes_as_many_calls_as_it_needs():
    result = audit_function(
        response,
        neighbours=BIT,
        claim=pure(1.0),
        alpha=1e-3,
        budget=Seconds(seconds=1e-6),
        must_catch=1.3,
        key=key(1),
    )
    assert result.detectable_epsilon <= 1.3


def test_a_claim_that_no_number_of_calls_refutes_is_refused():
    with pytest.raises(InvalidRunError, match="could not fail"):
        audit(response, claim=pure(12.0))


def test_a_result_says_what_was_found_from_what_and_what_would_be_caught():
    text = str(audit(partial(response, right=1.0), alpha=1e-3))
    assert "gainst an adversary who sees the output" in text
    assert "Of 300 guesses about 300 calls 300 were correct, made from how" in text
    assert "A planted leak of epsilon = 1." in text
