"""Adaptive slots: valid however the guesser fills them, useful, silent at chance."""

import math
from functools import cache
from itertools import product

import pytest
from scipy import special

from dpaudit.bounds import Weighted
from dpaudit.bounds.weighted import AdaptiveSlots
from dpaudit.errors import VoidAuditError

WEIGHTS, SIZES = (3, 2, 1), (2, 2, 2)


def slots(correct, sizes=SIZES, canaries=6):
    return Weighted(
        canaries=canaries,
        weights=WEIGHTS,
        guesses=sizes,
        correct=correct,
        committed=True,
    )


def p_value(reading, epsilon, delta=0.0):
    found = AdaptiveSlots().log_p_value(reading, epsilon=epsilon, delta=delta)
    return math.exp(found)


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
@pytest.mark.parametrize("threshold", range(1, 13))
def test_no_order_of_slots_beats_the_tail(threshold, epsilon):
    """Optimal control: the guesser picks the next slot, or stops, knowing the score."""
    p = special.expit(epsilon)

    @cache
    def best(left, score):
        if score >= threshold:
            return 1.0
        chances = [0.0]
        for c, size in enumerate(left):
            if size:
                rest = (*left[:c], size - 1, *left[c + 1 :])
                won = best(rest, score + WEIGHTS[c])
                chances.append(p * won + (1 - p) * best(rest, score))
        return max(chances)

    reached = [
        correct
        for correct in product(*(range(n + 1) for n in SIZES))
        if sum(w * v for w, v in zip(WEIGHTS, correct, strict=True)) == threshold
    ]
    assert reached
    for correct in reached:
        assert best(SIZES, 0) <= p_value(slots(correct), epsilon) * (1 + 1e-9)


def test_delta_costs_the_coupling():
    plain, with_delta = (p_value(slots((2, 2, 1)), 1.0, d) for d in (0.0, 1e-3))
    assert with_delta - plain == pytest.approx(6 * 1e-3 / (1 + math.e), rel=1e-9)


def test_sure_guesses_show_most_of_a_large_epsilon():
    reading = slots((199, 196, 190), sizes=(200, 200, 200), canaries=600)
    found = AdaptiveSlots().epsilon_lower(reading, delta=1e-6, alpha=0.05)
    assert 3.2 < found.epsilon_lower < math.log(585 / 15) + 0.5


def test_nothing_is_said_at_chance():
    reading = slots((100, 100, 100), sizes=(200, 200, 200), canaries=600)
    found = AdaptiveSlots().epsilon_lower(reading, delta=1e-6, alpha=0.05)
    assert found.epsilon_lower == 0.0


def test_slots_that_were_not_fixed_are_refused():
    loose = Weighted(
        canaries=6, weights=(1,), guesses=(3,), correct=(3,), committed=False
    )
    with pytest.raises(VoidAuditError, match="must be fixed before the run"):
        AdaptiveSlots().epsilon_lower(loose, delta=0.0, alpha=0.05)
