"""Studies of mechanisms over the number of elements, one's own among them."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import optimize, special, stats
from sweep_tools import InOrder

from dpaudit import Pairs
from dpaudit.errors import InvalidInputError
from dpaudit.mechanisms.local import LocalLaplace, LocalRandomisedResponse
from dpaudit_lab.paper import study as studies
from dpaudit_lab.paper.study import Study
from dpaudit_lab.pictures import Look

TRIALS = 40


@pytest.fixture
def study(tmp_path, monkeypatch):
    """Randomised response, every coin guessed, its trials run right here."""
    monkeypatch.setattr(studies, "LocalEngine", lambda workers: InOrder())
    return Study(
        mechanisms={"response": LocalRandomisedResponse(epsilon=1.0)},
        epsilon=1.0,
        elements=(50, 200),
        share=1.0,
        store=tmp_path / "study.sqlite",
        trials=TRIALS,
    )


def test_medians_are_those_of_clopper_and_pearson(study):
    right = {p.x: p.mean for p in study.efficacy().of("response")}
    assert right == pytest.approx({50: 0.731, 200: 0.731}, abs=0.035)  # p(1)
    counts = {n: right for _, n, right in study._right()}
    for point in study.bounds().of("response"):
        v = np.array(counts[point.x])
        assert v.mean() / point.x == pytest.approx(right[point.x])
        lower = stats.beta.ppf(0.05, v, point.x - v + 1)
        assert point.mean == pytest.approx(np.median(special.logit(lower)), abs=2e-3)
        assert point.repeats == TRIALS


def test_the_limit_is_that_of_the_best_test_of_a_binomial(study):
    def power(epsilon, n):
        """Of the randomised test of level 0.05, at p(1)."""
        null, true = (stats.binom(n, special.expit(e)) for e in (epsilon, 1.0))
        least = int(null.isf(0.05)) + 1  # rejected for certain from here on
        part = (0.05 - null.sf(least - 1)) / null.pmf(least - 1)
        return true.sf(least - 1) + part * true.pmf(least - 1)

    for point in study.bounds().of("limit of response"):
        best = optimize.brentq(lambda e, n=point.x: power(e, n) - 0.5, 0, 1)
        assert point.mean == pytest.approx(best, abs=2e-4)


def test_truth_is_drawn_in_and_words_say_what_was_done(study):
    bounds, efficacy = study.bounds(), study.efficacy()
    assert [limit.text for limit in bounds.limits] == ["true epsilon 1.000"]
    assert [limit.text for limit in efficacy.limits] == [
        "true epsilon, as a share 0.731"
    ]
    assert bounds.caption.startswith("Every coin guessed; delta = 0, alpha = 0.05.")
    part = replace(study, share=0.5).bounds()
    assert part.caption.startswith("The likeliest 50% of the coins guessed; delta = 0")
    assert bounds.ticks == (50, 200)


def refuse(*_):
    raise RuntimeError("a trial was run")


def test_what_is_in_the_store_is_not_run_again(study, monkeypatch):
    first = study.bounds()
    monkeypatch.setattr(studies, "_trial", refuse)
    assert study.bounds() == first
    other = {"response": LocalRandomisedResponse(epsilon=1.5)}  # another mechanism
    with pytest.raises(InvalidInputError, match="80 trials raised"):
        replace(study, mechanisms=other).bounds()


@dataclass(frozen=True)
class Named:
    """Whatever it is given."""

    inner: object
    pairs = Pairs(x=-1, y=1)

    def run(self, data, rng):
        return self.inner.run(data, rng)

    def log_odds(self, output):
        return self.inner.log_odds(output)


def test_fewer_guesses_are_the_surest_and_a_limit_needs_all_that_is_said(study):
    own = Named(LocalLaplace(epsilon=1.0))
    half = replace(study, mechanisms={"own": own}, elements=(200,), share=0.5)
    whole = replace(half, share=1.0)
    # Half of the outputs are beyond -1 and 1, where the loss is epsilon, and more.
    assert half.efficacy().points[0].mean == pytest.approx(0.731, abs=0.02)
    expected = 1 - np.exp(-0.5) / 2
    assert whole.efficacy().points[0].mean == pytest.approx(expected, abs=0.02)
    chart = half.bounds()
    assert [curve.name for curve in chart.curves] == ["own"]
    assert "Dotted" not in chart.caption


def test_a_mechanism_and_its_limit_share_a_colour(study):
    both = {"a": LocalLaplace(epsilon=1.0), **study.mechanisms}
    chart = replace(study, mechanisms=both, elements=(50,)).bounds()
    looks = {curve.name: (curve.colour, curve.look) for curve in chart.curves}
    assert looks == {
        "a": (0, Look.MEASURED),
        "limit of a": (0, Look.BESIDE),
        "response": (1, Look.MEASURED),
        "limit of response": (1, Look.BESIDE),
    }
    assert "Dotted: no valid audit's median is above." in chart.caption


def test_what_a_mechanism_raises_is_told(study):
    broken = Named(None)
    with pytest.raises(InvalidInputError, match="'NoneType' object has no attribute"):
        replace(study, mechanisms={"broken": broken}).bounds()


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"share": 0.0}, "share must"),
        ({"share": 1.5}, "share must"),
        ({"trials": 1}, "trials must be a whole number >= 2"),
        ({"epsilon": -1.0}, "epsilon must"),
        ({"mechanisms": {"none": 7}}, r"run\(data, rng\), pairs and log_odds"),
        (
            {"mechanisms": {"nameless": Named(object())}},
            "print as what it is, with its parameters",
        ),
    ],
)
def test_what_cannot_be_studied_is_refused(study, wrong, named):
    with pytest.raises(InvalidInputError, match=named):
        replace(study, **wrong)
