"""The figures: their numbers, each against a computation of its own."""

import re
from dataclasses import replace
from math import exp, log

import numpy as np
import pytest
from scipy import special, stats

from dpaudit import ApproxDP, GaussianDP, PureDP
from dpaudit.bounds.exact import ExactBound
from dpaudit.bounds.readings import Bets, Rounds, Weighted
from dpaudit.reporting.figure import Figure, LeftOut
from dpaudit.reporting.report.bound_by_guesses import by_k_figure
from dpaudit.reporting.report.by_turn import (
    course_figure,
    of_bets,
    of_counts,
    of_rounds,
)
from dpaudit.reporting.report.certificate import certificate_figure
from dpaudit.reporting.report.facts import key_facts, more_facts, references
from dpaudit.reporting.report.scores import allowed, histogram_figure, roc_figure
from dpaudit.reporting.report.subject import Subject

POWERS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def number(text):
    """Read a number as the report writes it."""
    plain = text.replace(",", "").replace("\N{MINUS SIGN}", "-")
    power = re.fullmatch(r"(?:(\S+) . )?10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", plain)
    if power:
        return float(power[1] or 1) * 10.0 ** int(power[2].translate(POWERS))
    return float(plain.rstrip("%")) / (100 if plain.endswith("%") else 1)


def of(made):
    return Subject.of(*made) if isinstance(made, tuple) else Subject.of(made, None)


def rows(figure):
    assert isinstance(figure, Figure)
    return [[number(cell) for cell in row] for row in figure.table.rows]


def test_the_certificate_is_where_the_exact_p_value_is_alpha(honest):
    subject = of(honest)
    found = rows(certificate_figure(subject))
    inside = [(e, d) for e, d, _ in found if d > 0]
    assert len(inside) >= 2
    for epsilon, delta in inside:
        log_p = ExactBound().log_p_value(
            subject.result.reading, epsilon=epsilon, delta=delta
        )
        assert exp(log_p) == pytest.approx(0.05, rel=0.02)


def test_the_claimed_curve_of_pure_privacy_is_that_of_randomised_response(honest):
    for epsilon, _, delta in rows(certificate_figure(of(honest))):
        expected = max(0.0, (exp(2) - exp(epsilon)) / (1 + exp(2)))
        # epsilon is shown to three places
        assert delta == pytest.approx(expected, rel=0.01, abs=1e-3)


@pytest.mark.parametrize("kind", ["classic", "counts", "bets", "rounds", "ranked"])
def test_no_certificate_is_shown_where_it_would_not_be_valid(kind, request):
    figure = certificate_figure(of(request.getfixturevalue(kind)))
    assert isinstance(figure, LeftOut)
    assert "made all at once and counted" in figure.why


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.0), (0.5, 1e-2), (3.0, 0.1)])
@pytest.mark.parametrize("x", [0.0, 0.01, 0.3, 0.7, 1.0])
def test_what_a_claim_allows_is_its_trade_off(epsilon, delta, x):
    expected = min(1.0, delta + exp(epsilon) * x, 1 - exp(-epsilon) * (1 - delta - x))
    claim = ApproxDP(epsilon=epsilon, delta=delta)
    assert allowed(claim, x) == pytest.approx(expected, abs=1e-6)


def test_what_gaussian_privacy_allows_is_the_neyman_pearson_test():
    for x in (0.01, 0.2, 0.8):
        expected = stats.norm.sf(stats.norm.isf(x) - 1.5)
        assert allowed(GaussianDP(mu=1.5), x) == pytest.approx(expected, rel=1e-3)


def test_the_tables_of_scores_count_every_canary_and_stay_on_the_curve(ranked):
    subject = of(ranked)
    scores = subject.result.scores
    bins = histogram_figure(subject).table.rows
    assert sum(number(row[1]) + number(row[2]) for row in bins) == 1000
    assert sum(number(row[1]) for row in bins) == sum(scores.included)
    for x, y, _ in rows(roc_figure(subject)):
        below = max(
            t
            for f, t in zip(scores.false_positive, scores.true_positive, strict=True)
            if f <= x + 1e-9
        )
        above = min(
            t
            for f, t in zip(scores.false_positive, scores.true_positive, strict=True)
            if f >= x - 1e-9 and t >= below
        )
        assert below - 1e-3 <= y <= above + 1e-3


def clopper_pearson(right, made, alpha):
    """The epsilon of the lower confidence limit of a proportion."""
    if right == 0:
        return 0.0
    low = special.betaincinv(right, made - right + 1, alpha)
    return max(0.0, float(special.logit(low)))


def test_the_bound_at_each_k_is_the_binomial_limit_of_the_surest_k(honest):
    result, transcript = honest
    right = transcript.guess == transcript.truth
    found = rows(by_k_figure(of(honest)))
    assert [k for k, _, _ in found][-1] == 200
    for k, hits, bound in found:
        assert hits == int(right[: int(k)].sum())
        assert bound == pytest.approx(clopper_pearson(hits, k, 0.05), abs=2e-3)
    assert found[-1][2] == pytest.approx(result.bound.epsilon_lower, abs=1e-3)


def test_a_ranking_shows_the_paid_bound_beside_the_unpaid_ones(ranked):
    figure = by_k_figure(of(ranked))
    best = max(bound for _, _, bound in rows(figure))
    assert best > ranked.bound.epsilon_lower > 0  # there is a price
    assert any("valid at all numbers" in mark.words for mark in figure.legend)
    assert "Their maximum is not" in figure.caption[0]


def test_guesses_by_number_of_the_canary_have_no_order_to_count_by(honest):
    result, transcript = honest
    order = np.argsort(transcript.index)
    columns = {
        name: getattr(transcript, name)[order] for name in ("index", "guess", "truth")
    }
    by_number = replace(transcript, **columns)
    figure = by_k_figure(Subject.of(result, by_number))
    assert isinstance(figure, LeftOut)
    assert "by number of the canary" in figure.why


def test_the_wealth_is_what_a_gambler_would_have():
    right = [True, False, True, True, False]
    stakes = [0.9, 0.8, 0.6, 0.95, 0.85]
    p = exp(1) / (1 + exp(1))  # 0.731: the third bet is passed
    wealth, course = 1.0, [1.0]
    for won, q in zip(right, stakes, strict=True):
        if q > p:
            wealth *= q / p if won else (1 - q) / (1 - p)
        course.append(wealth)
    bets = Bets(
        canaries=9, right=np.array(right), stated_probabilities=np.array(stakes)
    )
    found = of_bets(bets, epsilon=1.0, delta=1e-3, alpha=0.05)
    np.testing.assert_allclose(np.exp(found.evidence), course, rtol=1e-12)
    price = 9 * 1e-3 * (1 - p)
    assert found.price == pytest.approx(price)
    assert found.threshold == pytest.approx(log(1 / (0.05 - price)))


def test_one_round_adds_the_normal_score_of_its_count():
    epsilon, n, v, u = 0.7, 60, 48, 0.3
    game = Rounds(
        canaries=n,
        rounds=(
            Weighted(
                canaries=n, weights=(2.0,), guesses=(n,), correct=(v,), committed=False
            ),
        ),
        round_weights=(3.0,),
        uniforms=(u,),
    )
    law = stats.binom(n, special.expit(epsilon))
    score = stats.norm.isf(law.sf(v) + u * law.pmf(v))
    found = of_rounds(game, epsilon=epsilon, delta=0.0, alpha=0.05)
    # Nothing is left to chance, so the last step adds nothing.
    np.testing.assert_allclose(found.evidence, [0, score, score], atol=1e-6)
    assert found.threshold == pytest.approx(stats.norm.isf(0.05), abs=1e-6)


def test_rounds_in_which_nothing_speaks_against_a_claim_have_no_threshold():
    silent = Weighted(
        canaries=9, weights=(0.5,), guesses=(9,), correct=(9,), committed=False
    )
    game = Rounds(canaries=9, rounds=(silent,), round_weights=(1.0,), uniforms=(0.5,))
    assert of_rounds(game, epsilon=1.0, delta=0.0, alpha=0.05).threshold == np.inf


def test_the_running_count_is_what_the_transcript_says(counts):
    result, transcript = counts
    p = exp(1) / (1 + exp(1))
    ahead, course = 0.0, [0.0]
    for guess, truth in zip(transcript.guess, transcript.truth, strict=True):
        if guess:
            ahead += (guess == truth) - p
            course.append(ahead)
    found = of_counts(transcript, epsilon=1.0, delta=0.0, alpha=0.05)
    course += [course[-1] - p * i for i in range(1, 301 - len(course) + 1)]
    np.testing.assert_allclose(found.evidence, course, atol=1e-9)
    least = next(v for v in range(301) if stats.binom.sf(v - 1, 300, p) <= 0.05)
    assert found.threshold == pytest.approx(least - 300 * p)
    assert result.claim_test.refuted == (found.evidence[-1] >= found.threshold)


@pytest.mark.parametrize("kind", ["bets", "rounds", "counts"])
def test_evidence_is_enough_against_the_bound_found_and_no_more(kind, request):
    result, transcript = request.getfixturevalue(kind)

    def enough(epsilon):
        reading = result.reading
        at = {"epsilon": epsilon, "delta": 0.0, "alpha": 0.05}
        if kind == "bets":
            course = of_bets(reading, **at)
            return course.evidence.max() >= course.threshold
        if kind == "rounds":
            course = of_rounds(reading, **at)
        else:
            course = of_counts(transcript, **at)
        return course.evidence[-1] >= course.threshold

    found = result.bound.epsilon_lower
    assert found > 0.2
    assert enough(found)
    assert not enough(found + 0.0101)  # the next of the grid
    assert enough(1.0) == result.claim_test.refuted


@pytest.mark.parametrize("kind", ["bets", "rounds", "counts"])
def test_the_course_is_drawn_against_claim_and_bound(kind, request):
    figure = course_figure(of(request.getfixturevalue(kind)))
    assert isinstance(figure, Figure)
    words = " ".join(figure.table.head)
    assert "the claim, epsilon = 1.000" in words
    assert "the bound found" in words
    assert figure.table.rows[-1][0] == "threshold"


def test_a_course_needs_turns_and_sometimes_a_transcript(honest, counts):
    assert "made at once" in course_figure(of(honest)).why
    assert "no transcript" in course_figure(Subject.of(counts[0], None)).why


def test_the_numbers_of_the_verdict_are_those_of_the_result(training):
    subject = of(training)
    claimed, found, p_value = key_facts(subject)
    mu, delta = 0.7, 1e-5

    def curve(e):  # Dong, Roth and Su, corollary 1
        low = stats.norm.cdf(-e / mu - mu / 2)
        return stats.norm.cdf(-e / mu + mu / 2) - exp(e) * low

    shown = float(claimed.value.removeprefix("epsilon = ").split(" at ")[0])
    assert curve(shown) == pytest.approx(delta, rel=0.02)
    bound = training.bound.epsilon_lower
    lower = float(found.value.removeprefix("epsilon >= ").split(" at ")[0])
    assert lower <= bound < lower + 1e-3
    p = number(p_value.value.removeprefix("p = "))
    assert training.p_value <= p <= 1.1 * training.p_value
    ceiling, reach = more_facts(subject)[:2]
    assert float(reach.value.removeprefix("epsilon = ")) < shown
    assert curve(float(reach.value.removeprefix("epsilon = "))) == pytest.approx(
        delta / 0.05, rel=0.01
    )
    all_right = clopper_pearson(100, 100, 0.05)  # an upper limit: delta costs more
    assert 0 < float(ceiling.value.removeprefix("epsilon >= ")) <= all_right + 1e-3


def test_only_what_was_used_is_cited(training, honest, classic):
    def cited(made):
        return " ".join(each.text for each in references(of(made)))

    for made in (training, honest, classic):
        assert "Keinan" in cited(made)
    assert "Gaussian Differential Privacy" in cited(training)
    assert "Gaussian Differential Privacy" not in cited(honest)
    assert "Jagielski, J. Ullman" in cited(classic)
    assert "One (1) Training Run" not in cited(classic)


def test_pure_claims_have_their_own_epsilon_as_the_ceiling(honest):
    reach = more_facts(of(honest))[1]
    assert reach.value == "epsilon = 2.000"
    assert isinstance(honest[0].design.claim, PureDP)
