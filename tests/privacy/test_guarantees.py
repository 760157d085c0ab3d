"""Claims that have no meaning are refused when they are made."""

import math

import pytest

from dpaudit import ApproxDP
from dpaudit.errors import InvalidInputError


@pytest.mark.parametrize("epsilon", [-0.1, math.inf, math.nan])
def test_epsilon_is_finite_and_not_negative(epsilon):
    with pytest.raises(InvalidInputError, match="epsilon must be a finite number"):
        ApproxDP(epsilon=epsilon, delta=0.0)


@pytest.mark.parametrize("delta", [-1e-9, 1.1, math.nan])
def test_delta_is_a_probability(delta):
    with pytest.raises(InvalidInputError, match=r"delta must be in \[0, 1\]"):
        ApproxDP(epsilon=1.0, delta=delta)
