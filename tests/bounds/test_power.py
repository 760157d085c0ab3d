"""How strong a test is: against a search through every count."""

import math
from types import SimpleNamespace

import pytest
from scipy import special, stats

from dpaudit import ApproxDP, GaussianDP, PureDP
from dpaudit.bounds import Counts, judge_claim, power
from dpaudit.bounds.adaptive import AdaptiveBound
from dpaudit.bounds.exact import SeparateRunsBound
from dpaudit.bounds.power import detectable_accuracy, least_refuting
from dpaudit.errors import InvalidInputError


@pytest.mark.parametrize(
    ("m", "r", "claim"),
    [
        (100, 100, PureDP(epsilon=1.0)),
        (1000, 300, ApproxDP(epsilon=2.0, delta=1e-5)),
        (1, 1, PureDP(epsilon=0.0)),
    ],
)
def test_the_detectable_accuracy_is_the_least_that_refutes(m, r, claim):
    alpha, chance = 0.05, 0.9
    found = detectable_accuracy(claim, canaries=m, guesses=r, alpha=alpha)
    least = [
        v
        for v in range(r + 1)
        if judge_claim(
            claim, Counts(canaries=m, guesses=r, correct=v), alpha=alpha
        ).refuted
    ][:1]
    if not least:
        assert found is None
        return
    assert stats.binom.sf(least[0] - 1, r, found + 1e-12) >= chance
    assert stats.binom.sf(least[0] - 1, r, found - 1e-9) < chance


@pytest.mark.nightly
@pytest.mark.parametrize("bound", [None, AdaptiveBound()])
@pytest.mark.parametrize(
    "claim", [ApproxDP(epsilon=1.0, delta=1e-4), GaussianDP(mu=0.5)]
)
def test_the_least_count_refutes_and_the_one_below_does_not(claim, bound):
    least = least_refuting(claim, canaries=40, guesses=20, alpha=0.05, bound=bound)
    refuted = [
        judge_claim(
            claim,
            Counts(canaries=40, guesses=20, correct=v),
            alpha=0.05,
            bound=bound,
        ).refuted
        for v in range(21)
    ]
    assert least == refuted.index(True)
    assert all(refuted[least:])


def test_a_claim_that_no_guess_can_refute_has_no_least_count():
    claim = PureDP(epsilon=9.0)
    assert least_refuting(claim, canaries=9, guesses=9, alpha=0.05) is None
    assert detectable_accuracy(claim, canaries=9, guesses=9, alpha=0.05) is None


@pytest.mark.nightly
def test_rounding_up_takes_few_steps_however_many_guesses_there_are(monkeypatch):
    """One float after the other took millions of steps with 1e15 guesses."""
    calls = []

    def counted(*args):
        calls.append(args)
        return special.betainc(*args)

    functions = SimpleNamespace(betainc=counted, betaincinv=special.betaincinv)
    monkeypatch.setattr(power, "special", functions)
    claim = ApproxDP(epsilon=1.0, delta=1e-5)
    n = 10**15
    found = detectable_accuracy(claim, canaries=n, guesses=n, alpha=0.05)
    assert 0 < len(calls) < 60
    least = least_refuting(claim, canaries=n, guesses=n, alpha=0.05)
    assert special.betainc(least, n - least + 1, found) >= 0.9
    assert found < least / n + 1e-6


@pytest.mark.parametrize(
    ("claim", "kind", "chance"),
    [
        (PureDP(epsilon=1.2), {}, special.expit(1.2)),
        (
            ApproxDP(epsilon=1.0, delta=0.02),
            {"bound": SeparateRunsBound()},
            (math.e + 0.02) / (1 + math.e),
        ),
    ],
)
def test_rules_of_other_kinds_have_their_own_least_count(claim, kind, chance):
    """Right guesses are binomial at most, with a chance known for each kind."""
    n, alpha = 100, 0.05
    least = next(v for v in range(n + 1) if stats.binom.sf(v - 1, n, chance) <= alpha)
    design = {"canaries": n, "guesses": n, "alpha": alpha}
    assert least_refuting(claim, **design, **kind) == least
    found = detectable_accuracy(claim, **design, **kind)
    assert stats.binom.sf(least - 1, n, found) == pytest.approx(0.9, abs=1e-9)


def test_a_power_that_is_no_probability_is_refused():
    claim = PureDP(epsilon=1.0)
    with pytest.raises(InvalidInputError, match=r"^power must be in"):
        detectable_accuracy(claim, canaries=9, guesses=9, alpha=0.05, power=1.1)
