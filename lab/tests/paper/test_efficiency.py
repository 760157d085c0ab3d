"""The figure of efficiency against effectiveness, on counts that are known."""

from dataclasses import replace
from math import log

import numpy as np
import pytest

from dpaudit.engines.local import LocalEngine
from dpaudit_lab.paper import efficiency
from dpaudit_lab.paper.efficiency import (
    ADAPTIVE,
    ALONE,
    AT_ONCE,
    CLASSIC,
    TOGETHER,
    most,
    train,
    trial,
)
from dpaudit_lab.pictures.curves import draw_panels
from dpaudit_lab.sweeps.store import Store
from dpaudit_lab.sweeps.sweep import run


def log_odds(chance: float) -> float:
    return log(chance / (1 - chance))


def audits(panel: str, runs: int, seed: int = 1) -> dict[str, float]:
    rng = np.random.default_rng([seed, runs])
    return dict(trial({"panel": panel, "runs": runs}, rng))


@pytest.mark.parametrize("runs", [10, 30])
def test_parities_are_certain_to_who_knows_the_others(runs):
    found = audits("pairs", runs)
    assert found[CLASSIC] == pytest.approx(log_odds(0.05 ** (1 / runs)), abs=1e-6)
    assert found[AT_ONCE] == 0
    adaptive = log_odds(0.05 ** (1 / (50 * runs)))  # every second coin of a hundred
    assert found[ADAPTIVE] == pytest.approx(adaptive, abs=1e-6)


def test_name_and_shame_shows_one_coin_a_run():
    found = audits("name", 30)
    assert found[AT_ONCE] == pytest.approx(log_odds(0.05 ** (1 / 30)), abs=1e-6)
    assert found[CLASSIC] < found[AT_ONCE]


def test_limits_of_certain_coins_are_neyman_and_pearson_s():
    # All right has the chance p^T of the null, and is rejected with half: 0.05 / p^T.
    found = most({"panel": "name", "runs": 30}, np.random.default_rng(1))
    assert found[TOGETHER] == pytest.approx(log_odds(0.1 ** (1 / 30)), abs=1e-3)
    found = most({"panel": "sets", "runs": 30}, np.random.default_rng(1))
    assert found[ALONE] == pytest.approx(log_odds(0.1 ** (1 / 30)), abs=1e-3)


def test_limit_of_all_or_nothing_lets_runs_of_silence_say_nothing():
    # With three runs all are silent with chance 0.729: no median is above 0. With ten,
    # by trying every number of runs that speak: the best test is of all coins right.
    found = most({"panel": "all", "runs": 3}, np.random.default_rng(1))
    assert found[TOGETHER] == 0
    speaks = 1 - 0.9**10
    more = 1 - 0.9**10 - 10 * 0.1 * 0.9**9
    assert more < 0.5 < speaks  # one run that speaks must do, at least sometimes
    found = most({"panel": "all", "runs": 10}, np.random.default_rng(1))
    assert log_odds(0.05 ** (1 / 100)) < found[TOGETHER] < log_odds(0.5 ** (1 / 200))


@pytest.mark.nightly
def test_one_training_shows_what_ten_classic_ones_do_not():
    rng = np.random.default_rng(1)
    few = [train({"way": CLASSIC, "runs": 10}, rng)["bound"] for _ in range(5)]
    many = [train({"way": AT_ONCE, "runs": 1}, rng)["bound"] for _ in range(5)]
    assert np.mean(few) < 0.2 < np.mean(many) < 1.0  # planned: 0.68 of one training


@pytest.mark.nightly
def test_a_small_figure_is_drawn_from_a_store(tmp_path, monkeypatch):
    monkeypatch.setattr(efficiency, "RUNS", (1, 10))
    monkeypatch.setattr(efficiency, "SEVERAL", ())
    monkeypatch.setattr(efficiency, "FEW", ())
    planned = efficiency.sweeps(2)
    limits = [s for s in planned["limits"].settings if s["panel"] == "name"]
    planned["limits"] = replace(planned["limits"], settings=limits)
    with Store(tmp_path / "store.sqlite") as store:
        for sweep in planned.values():
            done = run(sweep, engine=LocalEngine(workers=1), store=store)
            assert done.failed == 0
        drawn = efficiency.charts(store, planned)
    path = tmp_path / "efficiency.svg"
    draw_panels(drawn, path, width=7.5)
    text = path.read_text()
    for words in ("Name and shame", "Parities of pairs", "DP-SGD"):
        assert words in text
    said = "\n".join(efficiency.worth(drawn))
    assert "Parities of pairs: one run adaptively 2.785" in said
