"""The sensitivity of a strategy, recomputed and held against what was claimed."""

from itertools import combinations
from math import sqrt

import numpy as np
import pytest

from dpaudit.dpsgd.strategy import Independent, Matrix, Toeplitz
from dpaudit.errors import InvalidInputError
from dpaudit.game.findings import Stage, Status
from dpaudit.game.text.findings import fault_parts, sentence
from dpaudit.training.strategy_check import check_strategy

STEPS = 6


def largest(matrix, separation, most):
    """Try every way to join."""
    best = 0.0
    for count in range(1, most + 1):
        for joins in combinations(range(len(matrix)), count):
            if all(np.diff(joins) >= separation):
                best = max(best, float(np.linalg.norm(matrix[:, joins].sum(axis=1))))
    return best


def banded(bands, seed):
    rng = np.random.default_rng(seed)
    lower = np.tril(rng.uniform(0.2, 1.5, (STEPS, STEPS)))
    return np.triu(lower, 1 - bands)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("separation", "most"), [(2, None), (2, 2), (3, None)])
def test_noise_for_a_little_less_than_the_worst_joins_is_a_fault(
    seed, separation, most
):
    matrix = banded(2, seed)
    worst = largest(matrix, separation, most or STEPS)
    asked = {"steps": STEPS, "separation": separation, "most": most}
    look, fault = check_strategy(Matrix(rows=matrix), claimed=worst, **asked)
    assert fault is None
    assert look.status is Status.INSPECTED
    _, fault = check_strategy(Matrix(rows=matrix), claimed=worst / 1.01, **asked)
    assert fault.stage is Stage.NOISE_SCALE
    assert fault.probability == 0
    assert "a factor of 1.01" in fault_parts(fault)[0]


@pytest.mark.parametrize("seed", range(4))
def test_where_joins_meet_a_fault_is_one_and_silence_is_none(seed):
    matrix = banded(5, seed)
    worst = largest(matrix, 2, STEPS)
    asked = {"steps": STEPS, "separation": 2}
    look, fault = check_strategy(Matrix(rows=matrix), claimed=worst, **asked)
    assert fault is None  # never more than is reached
    assert "at least" in sentence(look)
    assert not look.numbers["exact"]
    _, fault = check_strategy(Matrix(rows=matrix), claimed=worst / 3, **asked)
    assert fault is not None


def test_the_longest_column_is_named():
    matrix = np.diag(np.full(4, 1.3))
    _, fault = check_strategy(
        Matrix(rows=matrix), steps=4, separation=2, claimed=sqrt(2)
    )
    assert "the strategy's largest column norm, 1.3" in fault_parts(fault)[0]
    uneven = np.diag([2.0, 1.0, 1.0, 1.0])
    _, fault = check_strategy(
        Matrix(rows=uneven), steps=4, separation=2, claimed=sqrt(2)
    )
    assert "a factor of 1.58" in fault_parts(fault)[0]  # sqrt(5 / 2)
    assert "the longest is 2" in fault_parts(fault)[3]


def test_unit_columns_are_no_fault():
    toeplitz = Toeplitz(coefficients=(0.8, 0.6), steps=8, normalized=True)
    for strategy in (toeplitz, Independent()):
        assert check_strategy(strategy, steps=8, separation=4, claimed=sqrt(2))[1] is (
            None
        )


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"claimed": 0.0}, "claimed"),
        ({"claimed": float("inf")}, "claimed"),
        ({"steps": 5}, "for 8 steps"),
        ({"separation": 0}, "separation"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong, said):
    strategy = Toeplitz(coefficients=(1.0,), steps=8)
    asked = {"steps": 8, "separation": 2, "claimed": 1.0, **wrong}
    with pytest.raises(InvalidInputError, match=said):
        check_strategy(strategy, **asked)
