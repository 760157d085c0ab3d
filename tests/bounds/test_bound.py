"""What results say: never more than was shown."""

import math

import pytest

from dpaudit import ApproxDP
from dpaudit.bounds import ClaimTest, LowerBound
from dpaudit.bounds.bound import Grid, probability
from dpaudit.errors import InvalidInputError


def bound(epsilon):
    return LowerBound(
        epsilon_lower=epsilon, delta=1e-5, alpha=0.05, method="m", reference="r"
    )


@pytest.mark.parametrize(
    ("epsilon", "shown"),
    [
        (2.8028, "2.802"),
        (2.8029999, "2.802"),
        (0.0, "0.000"),
        (1e300, "1e+12"),
        (math.inf, "inf"),
    ],
)
def test_a_lower_bound_is_printed_rounded_down(epsilon, shown):
    assert str(bound(epsilon)).startswith(f"epsilon >= {shown} at delta = 1e-05")


def test_a_lower_bound_names_alpha_method_and_tier():
    assert "(95 % confidence, for any mechanism; method m)" in str(bound(1.0))


@pytest.mark.parametrize(
    ("p_value", "shown", "refuted"),
    [
        (0.0511, "not refuted (p = 0.052)", False),
        (0.0321, "refuted (p = 0.033)", True),
        (0.05, "refuted (p = 0.05)", True),
        (1.0, "not refuted (p = 1)", False),
        (1.234e-7, "refuted (p = 1.3e-07)", True),
        (0.0, "refuted (p < 1e-300)", True),
    ],
)
def test_a_p_value_is_printed_rounded_up(p_value, shown, refuted):
    claim = ApproxDP(epsilon=2.0, delta=1e-5)
    test = ClaimTest(claim=claim, p_value=p_value, alpha=0.05)
    assert str(test) == f"the claim (epsilon = 2, delta = 1e-05)-DP is {shown}"
    assert test.refuted is refuted


def test_no_p_value_is_above_one():
    """Bounds on a chance may exceed one before they are read as a p-value."""
    assert probability(0.3) == 1.0
    assert probability(-math.inf) == 0.0


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"start": -0.1}, "^start must be a finite number >= 0"),
        ({"step": 0.0}, "^step must be"),
    ],
)
def test_a_grid_that_leads_nowhere_is_refused(grid, message):
    with pytest.raises(InvalidInputError, match=message):
        Grid(**grid)
