"""Other tools: asked with the same draws, and the published loop against fractions."""

import math
import sys
from fractions import Fraction
from types import ModuleType

import numpy as np
import pytest
from sweep_tools import InOrder

from dpaudit.bounds.readings import Counts
from dpaudit.bounds.steinke import SteinkeBound
from dpaudit.errors import InvalidInputError
from dpaudit_lab.power.jax_privacy import JaxPrivacyDefault, JaxPrivacySplit
from dpaudit_lab.power.methods import RankedAll
from dpaudit_lab.power.peers import PEERS, peer_sweep, peer_trial
from dpaudit_lab.power.plan import Guesses, planned_setting
from dpaudit_lab.power.privacy_guard import PrivacyGuardNode, load
from dpaudit_lab.power.published import published_bound, published_p_value
from dpaudit_lab.power.task import Task, draw
from dpaudit_lab.sweeps.store import Store
from dpaudit_lab.sweeps.sweep import run

SMALL = Task(canaries=20, mu=2.0, delta=1e-3)
PLAN = Guesses(exact=10, steinke=11, weighted=12)
JAX = PEERS["jax-privacy"]


def test_the_published_p_value_is_the_formula_in_fractions():
    m, r, v, delta = 50, 9, 7, Fraction(1, 1000)
    right = Fraction(3, 4)  # epsilon = ln 3

    def mass(k):
        return math.comb(r, k) * right**k * (1 - right) ** (r - k)

    tail = sum(mass(k) for k in range(v, r + 1))
    steepest = max(
        sum(mass(k) for k in range(v - i, v)) / Fraction(i) for i in range(1, v + 1)
    )
    known = tail + 2 * m * delta * steepest
    found = published_p_value(m, r, v, epsilon=math.log(3), delta=float(delta))
    assert found == pytest.approx(float(known), rel=1e-12)


@pytest.mark.parametrize(
    ("m", "r", "v"), [(1000, 75, 66), (10_000, 205, 195), (60, 20, 20), (60, 20, 9)]
)
def test_the_published_loop_finds_our_number(m, r, v):
    counts = Counts(canaries=m, guesses=r, correct=v)
    known = SteinkeBound().epsilon_lower(counts, delta=1e-5, alpha=0.05).epsilon_lower
    found = published_bound(m, r, v, delta=1e-5, alpha=0.05)
    assert found == pytest.approx(known, abs=1e-6)


NODE = """
from dataclasses import dataclass

from privacy_guard.analysis.base_analysis_node import BaseAnalysisNode
from privacy_guard.analysis.base_analysis_output import BaseAnalysisOutput


@dataclass
class Output(BaseAnalysisOutput):
    eps: float


class FDPAnalysisNode(BaseAnalysisNode):
    def __init__(self, m, c, c_cap, threshold, delta):
        self.said = m + 1e3 * c + 1e6 * c_cap + threshold + delta

    def run_analysis(self):
        return Output(eps=self.said)
"""


@pytest.fixture
def privacy_guard(tmp_path, monkeypatch):
    """A package laid out as PrivacyGuard is, whose base classes cannot be imported."""
    folder = tmp_path / "privacy_guard" / "analysis"
    (folder / "mia").mkdir(parents=True)
    (folder / "base_analysis_node.py").write_text("import no_such_package")
    (folder / "mia" / "fdp_analysis_node.py").write_text(NODE)
    monkeypatch.syspath_prepend(tmp_path)
    load.cache_clear()
    yield folder
    load.cache_clear()
    for name in [name for name in sys.modules if name.startswith("privacy_guard")]:
        del sys.modules[name]


@pytest.mark.usefixtures("privacy_guard")
def test_privacy_guards_file_is_loaded_without_the_rest():
    drawn = draw(Task(canaries=300), 0)
    # The forty scores farthest from one half, each guessed by its side of it.
    order = sorted(range(300), key=lambda i: -abs(drawn.scores[i] - 0.5))[:40]
    right = sum((drawn.scores[i] > 0.5) == (drawn.bits[i] == 1) for i in order)
    found = PrivacyGuardNode(guesses=40).epsilon_lower(drawn)
    assert found == pytest.approx(300 + 1e3 * right + 40e6 + 0.05 + 1e-5, abs=1e-8)
    assert "privacy_guard.analysis.base_analysis_node" not in sys.modules
    assert PEERS["PrivacyGuard"].installed() == "of unknown version"


def test_a_privacy_guard_without_that_file_is_refused(privacy_guard):
    (privacy_guard / "mia" / "fdp_analysis_node.py").unlink()
    with pytest.raises(InvalidInputError, match="PrivacyGuard has no file"):
        PrivacyGuardNode(guesses=10).epsilon_lower(draw(SMALL, 0))


def test_slow_peers_get_fewer_draws():
    tasks = [Task(canaries=10**k) for k in (3, 4, 5, 6)]
    guard = PEERS["PrivacyGuard"]
    assert [JAX.draws(task, 200) for task in tasks] == [200, 200, 20, 10]
    assert [JAX.draws(task, 3) for task in tasks] == [3, 3, 3, 3]
    assert [guard.takes(task) for task in tasks] == [True, False, False, False]


class Auditor:
    """Stands where jax-privacy's auditor would, and answers with what it was given."""

    def __init__(self, included, excluded):
        self.sums = included.sum() - excluded.sum()

    def epsilon_one_run(self, significance, delta, *, threshold_strategy=0.0):
        return np.float64(self.sums + 1e6 * significance + delta + threshold_strategy)


def test_the_peer_is_asked_with_the_same_draw(monkeypatch):
    module = ModuleType("jax_privacy.auditing")
    module.CanaryScoreAuditor = Auditor
    module.Split = lambda *, seed: 1e9 * (seed + 1)
    monkeypatch.setitem(sys.modules, "jax_privacy", ModuleType("jax_privacy"))
    monkeypatch.setitem(sys.modules, "jax_privacy.auditing", module)
    sweep = peer_sweep(JAX, "2.0.0", SMALL, PLAN, trials=3)
    assert sweep.function is peer_trial
    setting = planned_setting(SMALL, PLAN) | {"peer": JAX.name, "version": "2.0.0"}
    with Store(":memory:") as store:
        run(sweep, engine=InOrder(), store=store)
        found = list(store.outcomes(sweep.cell(setting)))
    for number, outcome in enumerate(found):
        drawn = draw(SMALL, number)
        signed = float((drawn.scores * (2.0 * drawn.bits - 1)).sum())
        plain = signed + 1e6 * SMALL.alpha + SMALL.delta
        assert outcome[JaxPrivacyDefault().key] == pytest.approx(plain)
        split = plain + 1e9 * (number + 1)
        assert outcome[JaxPrivacySplit().key] == pytest.approx(split)
        assert outcome["ranked"] == RankedAll().epsilon_lower(drawn)
        assert outcome["jax_privacy seconds"] >= 0


def test_a_peer_that_is_absent_has_no_version(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax_privacy", None)
    assert JAX.installed() is None
