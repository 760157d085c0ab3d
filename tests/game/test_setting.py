"""The setting of a design: typed, read back as it was, closed to misspelled names."""

import json
from dataclasses import replace

import numpy as np
import pytest

from dpaudit import Design, Key, OneRun, PureDP, Setting
from dpaudit._codec import encode
from dpaudit.dpsgd.strategy import Independent, Matrix, Toeplitz, strategy_setting
from dpaudit.errors import InvalidInputError
from dpaudit.game import Commitment
from dpaudit.game.configuration import Participation
from dpaudit.game.setting import (
    CanaryInsertion,
    InsertionPoint,
    MatrixStrategy,
    ToeplitzStrategy,
    Unit,
)

FULL = Setting(
    framework="ours",
    unit=Unit.USER,
    steps=20,
    rate=0.5,
    noise=1.25,
    participation=Participation(every=4, cohorts=2, most=3, first=1),
    strategy=ToeplitzStrategy(steps=20, coefficients=(1.0, 0.1 + 0.2), normalized=True),
    equivalent_steps=5,
    equivalent_noise=0.3,
    coordinates=10,
    per_coordinate=2,
    dimension=100,
    norm_in_sum=0.125,
    insertion=CanaryInsertion(
        point=InsertionPoint.EXAMPLE, norm=2.0, least_norm=1.25, users=(3, 5)
    ),
    expected_epsilon=0.5,
    detectable_factor=1.5,
    canaries_sha256=64 * "a",
    fillers_sha256=64 * "b",
    controls_sha256=64 * "c",
    controls_repeats=2,
    tie_seed=7,
    pooled_runs=3,
    program_sha256=64 * "d",
    nonce="from Ann",
    notes={"text": "a", "whole": 3, "float": 0.5, "flag": True, "nothing": None},
)


def design(setting):
    claim = PureDP(epsilon=1.0)
    return Design(canaries=20, rules=OneRun(guesses=5), claim=claim, setting=setting)


def test_every_entry_is_read_back_as_it_was():
    assert encode(FULL).keys() == set(Setting.optional)
    for name in Setting.optional:
        one = Setting(**{name: getattr(FULL, name)})
        for setting in (one, FULL):
            text = design(setting).to_json()
            again = Design.from_json(text)
            assert again.setting == setting
            assert again.to_json() == text
            assert hash(again.setting) == hash(setting)
        assert encode(one).keys() == {name}


def test_equal_settings_have_equal_texts():
    whole = Setting(noise=2, steps=3.0, rate=np.float64(1), tie_seed=np.int64(4))
    other = Setting(noise=2.0, steps=3, rate=1.0, tie_seed=4)
    assert whole == other
    assert design(whole).to_json() == design(other).to_json()


def test_the_commitment_binds_every_entry():
    key, empty = Key(bytes(range(32))), design(Setting())
    for name in Setting.optional:
        changed = design(Setting(**{name: getattr(FULL, name)}))
        assert not Commitment.to(key, empty).holds_for(key, changed)


def test_a_name_that_is_no_entry_is_refused_with_advice():
    advice = "has no entry 'per_coordinat', did you mean per_coordinate.* notes="
    with pytest.raises(InvalidInputError, match=advice):
        Setting(per_coordinat=2)
    plain = json.loads(design(Setting()).to_json())
    plain["setting"] = {"per_coordinat": 2}
    with pytest.raises(InvalidInputError, match=advice):
        Design.from_json(json.dumps(plain))
    with pytest.raises(InvalidInputError, match="by name, such as"):
        Setting({"per_coordinate": 2})
    for setting in ({"tie_seed": 7}, 5, None):
        with pytest.raises(InvalidInputError, match=r"such as Setting\(tie_seed=7"):
            design(setting)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("tie_seed", [-1, True, 0.5, "1"]),
        ("steps", [0, -3, 2.5]),
        ("rate", [0, 1.5, -0.1, float("nan"), "low"]),
        ("noise", [-1.0, float("inf"), "much"]),
        ("unit", ["record", 3]),
        ("participation", ["every step", 4]),
        ("strategy", ["Toeplitz", Toeplitz(coefficients=(1.0,), steps=3)]),
        ("insertion", ["Sums()"]),
        ("framework", [3]),
        ("nonce", [3]),
        ("program_sha256", ["a", 3]),
        ("notes", [{"a": float("nan")}, {1: 2}, {"a": (1, 2)}, 5, None]),
    ],
)
def test_an_entry_of_another_type_is_refused_by_name(name, values):
    for value in values:
        with pytest.raises(InvalidInputError, match=name):
            Setting(**{name: value})


def test_entries_of_another_setting_take_the_place_of_its_own():
    found = FULL.with_entries(Setting(rate=0.25, notes={"text": "b"}))
    notes = {**FULL.notes, "text": "b"}
    assert found == replace(FULL, rate=0.25, notes=notes)


def test_a_toeplitz_strategy_can_be_built_again():
    strategy = Toeplitz(coefficients=(1.0, 0.5, 0.45), steps=7, normalized=True)
    recorded = strategy_setting(strategy)
    again = Toeplitz(
        steps=recorded.steps,
        coefficients=recorded.coefficients,
        normalized=recorded.normalized,
    )
    assert again == strategy
    assert str(recorded) == str(strategy)


class OwnStrategy:
    """A strategy of somebody else's, which says nothing of itself."""

    steps, bands = 3, 1

    def column(self, step):
        return np.array([1.0 + step])


def test_any_other_strategy_is_bound_by_the_hash_of_its_numbers():
    rows = np.array([[1.0, 0.0], [0.5, 2.0]])
    recorded = strategy_setting(Matrix(rows=rows))
    assert (recorded.steps, recorded.bands) == (2, 2)
    assert recorded == strategy_setting(Matrix(rows=rows.copy()))
    assert recorded != strategy_setting(Matrix(rows=rows * 2))
    own = strategy_setting(OwnStrategy())
    assert isinstance(own, MatrixStrategy)
    assert own == strategy_setting(OwnStrategy())
    assert strategy_setting(Independent()) is strategy_setting(None) is None
