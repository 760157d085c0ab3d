"""The figures are the paper's: which there are, and with which parameters."""

import csv
import re
from dataclasses import replace
from math import comb, log
from pathlib import Path

import numpy as np
import pytest
from scipy import special

from dpaudit.accounting import accountant_curve
from dpaudit.bounds.power import mechanism_ceiling
from dpaudit.dpsgd.planning import TrainingSetup
from dpaudit.dpsgd.planning.limit import training_limit
from dpaudit.dpsgd.sampling import Poisson
from dpaudit.errors import InvalidInputError
from dpaudit_lab.paper import adaptive_steps, counting, elements, guesses, sets
from dpaudit_lab.paper.counting import ALPHA, DELTA
from dpaudit_lab.paper.names import FIGURES, named
from dpaudit_lab.paper.training import CEILING, EPSILON, MOST, NOISE, TRUTH, dp_sgd

# Every figure's label in the paper's LaTeX source, with the experiments behind each of
# its points; the local Laplace figure is a curve without experiments.
LABELS = {
    "fig:effect-of-taken-guesses-number-single-epsilon": 200,
    "fig:effect-of-elements-number-single-epsilon": 200,
    "fig:dp-sgd-ora-vs-aora": 200,
    "fig:results-of-ora-for-local-laplace": None,
    "fig:effect-of-taken-guesses-number-single-epsilon-efficacy": 200,
    "fig:effect-of-elements-number-single-epsilon-efficacy": 200,
    "fig:effect-of-taken-guesses-number-multiple-epsilons": 20,
    "fig:effect-of-elements-number-multiple-epsilons": 20,
    "fig:ora-and-aora-of-count-in-sets": 100,
}


def test_every_figure_of_the_paper_is_there_with_its_repeats():
    found = {figure.label: figure.paper_repeats for figure in FIGURES.values()}
    assert list(found) == list(LABELS)
    assert found == LABELS


def test_figures_have_the_paper_s_numbers_in_its_order():
    assert [figure.number for figure in FIGURES.values()] == list(range(1, 10))


def test_the_page_in_the_docs_has_every_figure_with_its_number():
    docs = Path(__file__).parents[3] / "docs" / "explanation" / "figures.md"
    written = docs.read_text(encoding="utf-8")
    for figure in FIGURES.values():
        assert f"Figure {figure.number} of the paper, `{figure.label}`: " in written


def test_as_many_are_run_as_in_the_paper_if_it_has_any():
    for figure in FIGURES.values():
        (sweep,) = figure.sweeps()
        assert sweep.trials == (LABELS[figure.label] or 200)
    with pytest.raises(InvalidInputError, match="must be the paper's, 100, got rep"):
        replace(FIGURES["sets"], repeats=50)


def test_figures_are_called_what_the_table_calls_them():
    assert all(name == figure.name for name, figure in FIGURES.items())
    assert named("all") == tuple(FIGURES.values())
    assert named("sets") == (FIGURES["sets"],)
    with pytest.raises(InvalidInputError, match="choose one of guesses, elements"):
        named("figure 1")


def test_the_training_is_the_paper_s():
    mechanism = dp_sgd(8000, EPSILON)
    assert EPSILON == 2
    assert DELTA == 1e-5
    assert ALPHA == 0.05
    assert mechanism.coordinates == 1000
    assert mechanism.per_coordinate == 8
    assert mechanism.steps == 100
    assert mechanism.sampling == Poisson(rate=0.1)


@pytest.mark.parametrize("n", [100, 1000])
def test_up_to_one_element_per_coordinate_none_overlap(n):
    mechanism = dp_sgd(n, EPSILON)
    assert (mechanism.coordinates, mechanism.per_coordinate) == (n, 1)


def test_what_is_not_the_paper_s_training_is_refused():
    with pytest.raises(InvalidInputError, match="multiple of it, got elements=1500"):
        dp_sgd(1500, EPSILON)
    with pytest.raises(InvalidInputError, match=r"got epsilon=3\.0"):
        dp_sgd(1000, 3.0)


def renyi_epsilon(noise, rate, steps, delta):
    """Epsilon by Renyi divergences of whole orders.

    Mironov, Talwar and Zhang, https://arxiv.org/abs/1908.10530, section 3.3, for the
    divergence; Canonne, Kamath and Steinke, https://arxiv.org/abs/2004.00010,
    proposition 12, for the conversion. The accountant tries broken orders too, so it
    can come out a little lower.
    """
    found = []
    for order in range(2, 200):
        k = np.arange(order + 1)
        terms = [log(comb(order, int(j))) for j in k] + k * (k - 1) / (2 * noise**2)
        chances = special.xlog1py(order - k, -rate) + special.xlogy(k, rate)
        divergence = steps * special.logsumexp(terms + chances) / (order - 1)
        found.append(divergence + log(1 - 1 / order) - log(delta * order) / (order - 1))
    return min(found)


@pytest.mark.parametrize(
    ("epsilon", "noise", "rate", "steps"),
    [
        *((epsilon, noise, 0.1, 100) for epsilon, noise in NOISE.items()),
        (2.0, adaptive_steps.NOISE, 1.0, 1),
    ],
)
def test_the_noise_is_what_renyi_divergences_ask_for(epsilon, noise, rate, steps):
    found = renyi_epsilon(noise, rate, steps, 1e-5)
    assert epsilon - 1e-3 <= found <= 1.03 * epsilon


@pytest.mark.nightly
def test_the_limits_are_what_the_accountant_says():
    for epsilon in (2, max(NOISE)):  # each takes seconds
        noise = NOISE[epsilon]
        curve = accountant_curve([(noise, 0.1, 100)])
        ceiling = mechanism_ceiling(curve, delta=DELTA, alpha=ALPHA)
        assert TRUTH[epsilon] == pytest.approx(curve.epsilon_at(DELTA), abs=1e-5)
        assert CEILING[epsilon] == pytest.approx(ceiling, abs=1e-5)


def test_every_figure_has_curves_that_the_paper_has_too():
    drawn = {
        "guesses": counting.BOUND_CURVES,
        "guesses-accuracy": counting.ACCURACY_CURVES,
        "guesses-epsilons": counting.epsilon_curves(2.0, 0),
    }
    for curves in drawn.values():
        published = [one for one in curves if one.curve.published]
        assert 1 <= len(published) < len(curves)
        # By the paper's guesser, and read off as the paper does.
        assert {one.guesser for one in published} == {"sums"}
        assert counting.exact not in {one.reading for one in published}


EXPLANATION = Path(__file__).parents[3] / "docs" / "explanation"


def test_pages_and_figures_quote_the_limits_that_are_kept():
    kept = {at: f"{found.value:.3f}" for at, found in MOST.items()}
    page = (EXPLANATION / "why-the-bound-is-lower.md").read_text("utf-8")
    table = page.partition("## The limit for given canaries\n")[2]
    table = table.partition("| the same, 10,000")[0]
    quoted = re.findall(r"\| (\d+) \| (0\.\d+) \[(0\.\d+), (0\.\d+)\]", table)
    assert len(quoted) >= 4
    for size, *numbers in quoted:
        found = MOST[1000, int(size)]
        ours = (found.value, found.low, found.high)
        assert numbers == [f"{number:.3f}" for number in ours]
    assert f"up to 12 canaries | {kept[1000, 12]} [" in page
    costs = (EXPLANATION / "efficiency.md").read_text("utf-8")
    assert f"of 1,000 coordinates {kept[1000, 12]}, as" in costs
    notes = (EXPLANATION / "figures.md").read_text("utf-8")
    assert f"has a median bound above {kept[1000, 5]}." in notes
    ours = kept[1000, 1], kept[1000, 8], kept[1000, 12]
    said = "above {} with 1 per coordinate, {} with 8, and {} with 12"
    assert said.format(*ours) in notes


def test_the_points_of_limits_are_those_that_are_kept():
    def points(name, curve):
        with (EXPLANATION / "figures" / f"{name}.csv").open(encoding="utf-8") as file:
            return [row for row in csv.DictReader(file) if row["curve"] == curve]

    drawn = {
        (min(round(1000 * x), 1000), max(round(x), 1)): float(row["mean"])
        for row in points("elements", "no audit's median above")
        for x in [float(row["x"])]
    }
    assert drawn == {at: found.value for at, found in MOST.items()}
    flat = {row["mean"] for row in points("guesses", "no audit's median above")}
    assert flat == {str(MOST[1000, 5].value)}
    costs = {
        (row["curve"], int(row["runs"])): float(row["median"])
        for curve in ("limit of one canary a run", "limit of all canaries")
        for row in points("efficiency", curve)
        if row["mechanism"] == "DP-SGD"
    }
    for runs in (100, 1000):
        assert costs["limit of one canary a run", runs] == MOST[runs, 1].value
    assert costs["limit of all canaries", 1] == MOST[1000, 12].value


def test_medians_beside_limits_on_them_are_those_of_the_figures():
    def best(name, **wanted):
        with (EXPLANATION / "figures" / f"{name}.csv").open(encoding="utf-8") as file:
            found = [r for r in csv.DictReader(file) if wanted.items() <= r.items()]
        return max(found, key=lambda row: float(row.get("mean", 0)))

    page = (EXPLANATION / "why-the-bound-is-lower.md").read_text("utf-8")
    table = page.partition("| best number of canaries")[2].partition("\n\n")[0]
    (*_, many, more, one) = [line.split(" | ") for line in table.splitlines()]
    for row, runs in ((many, "1"), (more, "10")):
        found = best("efficiency", mechanism="DP-SGD", curve="adaptively", runs=runs)
        quoted = f"{float(found['median']):.2f} ± {float(found['error']):.2f}"
        assert row[2] == quoted
    found = best("adaptive-steps", curve="adaptive, limited rounds")
    mean = f"{float(found['mean']):.3f} ± {float(found['standard error']):.3f}"
    assert one[2:4] == [f"{float(found['median']):.2f}", mean]


def test_a_limit_that_is_kept_is_computed_again():
    """With fewer simulated; the error of the difference is some 0.005."""
    training = TrainingSetup(steps=100, rate=0.1, noise=NOISE[EPSILON])
    found = training_limit(
        training, coordinates=1000, per_coordinate=2, alpha=ALPHA, simulated=10_000
    )
    kept = MOST[1000, 2]
    assert found.value == pytest.approx(kept.value, abs=0.02)
    assert kept.low < kept.value < kept.high < kept.low + 0.011


def test_numbers_of_guesses_and_elements_are_the_paper_s():
    assert guesses.ELEMENTS == 5000
    assert max(guesses.GUESSES) == 5000
    assert all(k % 2 == 0 for k in guesses.GUESSES)
    assert elements.GUESSES == 100
    assert {1000, 8000} < set(elements.ELEMENTS)
    assert [(m.x, m.value, m.error) for m in elements.PRINTED] == [
        (1, 0.49, 0.01),
        (8, 0.62, 0.01),
    ]
    assert [m.x for m in elements.EARLIER] == [m.x for m in elements.PRINTED]
    assert sets.SETS == 100
    assert {1, 10} < set(sets.SIZES)
    assert adaptive_steps.THRESHOLD == 1
    assert 5 in adaptive_steps.SIZES


def test_figures_of_the_same_experiments_share_their_trials():
    def cells(name):
        return {
            (sweep.cell(setting), sweep.trials)
            for sweep in FIGURES[name].sweeps()
            for setting in sweep.settings
        }

    assert cells("guesses") == cells("guesses-accuracy")
    assert cells("elements") == cells("elements-accuracy")
    for one in ("guesses", "elements"):
        single = {cell for cell, _ in cells(one)}
        assert single < {cell for cell, _ in cells(f"{one}-epsilons")}


def test_a_standard_error_needs_two_repeats():
    with pytest.raises(InvalidInputError, match="--trials must be a whole number >= 2"):
        FIGURES["sets"].sweeps(1)
