"""What forecasts of runs that differ from their plan are measured by."""

import pytest
from forecasts import RUNS, holds, upper


def test_the_six_runs_differ_from_their_plan_in_one_thing_each():
    assert {*RUNS} == {
        "rate",
        "noise",
        "steps",
        "coordinates",
        "participation",
        "claim",
    }


def test_a_share_below_nine_tenths_fails():
    assert upper(180, 200) > 0.9 > upper(158, 200)
    assert upper(20, 20) == 1.0


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["rate", "claim"])
def test_a_fault_that_is_printed_is_detected(name):
    assert holds(name, 15)
