"""Draws of which the truth is known: their law, their truth, exact limits of a rate."""

import math

import mpmath
import numpy as np
import pytest
from sweep_tools import InOrder

from dpaudit.errors import InvalidInputError
from dpaudit_lab.power.methods import methods
from dpaudit_lab.power.nulls import NULLS, Null, Wrong, null_draw
from dpaudit_lab.power.plan import Guesses
from dpaudit_lab.power.sweeps import null_sweep
from dpaudit_lab.power.task import Task
from dpaudit_lab.sweeps.store import Store
from dpaudit_lab.sweeps.sweep import run

SMALL = Task(canaries=20, mu=2.0, delta=1e-3)
PLAN = Guesses(exact=10, steinke=11, weighted=12)


def test_the_truth_of_laplace_scores_is_that_of_their_densities():
    """The integral of p - e^epsilon q over the scores where it is positive."""

    def density(x):
        return mpmath.exp(-abs(x)) / 2

    for shift, delta in ((1.0, 0.1), (0.5, 0.02)):
        truth = Null(epsilon=shift).truth(delta)
        assert 0 < truth < shift

        def excess(x, shift=shift, truth=truth):
            return density(x - shift) - mpmath.exp(truth) * density(x)

        start = (truth + shift) / 2  # from where on the log-odds exceed the truth
        found = mpmath.quad(excess, [start, shift, 40])
        assert found == pytest.approx(delta, rel=1e-9)
    assert Null(epsilon=0.0).truth(1e-5) == 0.0
    with pytest.raises(InvalidInputError, match="epsilon"):
        Null(epsilon=-1.0)


def test_null_draws_have_the_law_that_is_promised():
    """Each mean within 5 standard errors: false alarm below 4e-6."""
    task = Task(canaries=100_000)
    for null in NULLS:
        drawn = null_draw(task, null, 3)
        assert np.array_equal(null_draw(task, null, 3).scores, drawn.scores)
        assert not np.array_equal(null_draw(task, null, 4).scores, drawn.scores)
        for bit in (0, 1):
            scores = drawn.scores[drawn.bits == bit]
            error = math.sqrt(2 / len(scores))  # the variance is 2
            assert abs(scores.mean() - bit * null.epsilon) < 5 * error


def test_limits_of_a_rate_are_exact():
    every = Wrong(epsilon=0.0, draws=10, hits=10)
    assert every.limits == (pytest.approx(0.001**0.1), 1.0)
    assert every.fails(0.5)
    none = Wrong(epsilon=0.0, draws=10, hits=0)
    assert none.limits == (0.0, pytest.approx(1 - 0.001**0.1))
    assert not none.fails(0.0)


def test_our_methods_are_bounded_on_the_null_draws():
    null = NULLS[1]
    sweep = null_sweep(SMALL, PLAN, null, trials=2)
    with Store(":memory:") as store:
        run(sweep, engine=InOrder(), store=store)
        found = list(store.outcomes(sweep.cell(sweep.settings[0])))
    for number, outcome in enumerate(found):
        drawn = null_draw(SMALL, null, number)
        known = {m.key: m.epsilon_lower(drawn) for m in methods(PLAN)}
        assert outcome == known
