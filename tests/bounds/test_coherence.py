"""One run, one answer: a claim is refuted if and only if the bound reaches it."""

from dataclasses import replace
from itertools import pairwise
from math import inf, log, nextafter

import numpy as np
import pytest

from dpaudit import ApproxDP
from dpaudit.bounds import (
    AdaptiveBound,
    AdaptiveWeightedBound,
    AsMadeBound,
    Bets,
    BettingBound,
    BiasedCoinCounts,
    BiasedCoinsBound,
    Counts,
    CountsAsMade,
    EventCounts,
    ExactBound,
    HalfCounts,
    HypergeometricBound,
    IndependentRunsBound,
    LowerBound,
    Ranked,
    RankedBound,
    Rounds,
    RoundsBound,
    SeparateRunsBound,
    SteinkeBound,
    Weighted,
    WeightedBound,
    WholeClaimBound,
    judge_claim,
)
from dpaudit.bounds.bound import (
    GameBound,
    Grid,
    PValueProperty,
    first_not_rejected,
    largest_rejected_of_rising,
    largest_rejected_on_scan,
    p_value_text,
)
from dpaudit.bounds.methods import KNOWN
from dpaudit.privacy.guarantees import PrivacyCurve
from dpaudit.stats.search import least_between

ALPHA = 0.05
COUNTS = Counts(canaries=300, guesses=60, correct=52)
SLOTS = Weighted(
    canaries=800, weights=(2.0, 1.0), guesses=(30, 40), correct=(29, 33), committed=True
)
PLAYED = replace(SLOTS, canaries=140, committed=False)
UNEQUAL = BiasedCoinCounts(
    canaries=300,
    inclusion=0.3,
    guesses_in=20,
    guesses_out=20,
    correct=38,
    committed=True,
)
RIGHT = np.random.default_rng(7).random(200) < np.linspace(0.97, 0.6, 200)
GAMES = [
    (ExactBound(), COUNTS),
    (SeparateRunsBound(), COUNTS),
    (SteinkeBound(), COUNTS),
    (AdaptiveBound(), replace(COUNTS, adaptive=True)),
    (WeightedBound(), SLOTS),
    (WeightedBound(), replace(SLOTS, committed=False)),
    (AdaptiveWeightedBound(), replace(SLOTS, adaptive=True)),
    (BiasedCoinsBound(), UNEQUAL),
    (BiasedCoinsBound(), replace(UNEQUAL, committed=False)),
    (HypergeometricBound(), HalfCounts(canaries=200, guesses=60, correct=48)),
    (RankedBound(), Ranked(canaries=200, right=RIGHT)),
    (
        BettingBound(grid=Grid(start=0.505)),
        Bets(canaries=200, right=RIGHT, stated_probabilities=np.full(200, 0.85)),
    ),
    (
        RoundsBound(),
        Rounds(
            canaries=140,
            rounds=(PLAYED, PLAYED),
            round_weights=(1, 1),
            uniforms=(0.3, 0.6),
        ),
    ),
    (AsMadeBound(), CountsAsMade(canaries=300, guesses=60, correct=52)),
    (
        WholeClaimBound(),
        EventCounts(canaries=300, correct=52, wrong=8, slope=3.0, intercept=0.01),
    ),
]
games = pytest.mark.parametrize(
    ("bound", "reading"),
    GAMES,
    ids=[f"{b.method}-{i}" for i, (b, _) in enumerate(GAMES)],
)


def test_every_bound_of_a_game_is_among_them():
    tested = {bound.method for bound, _ in GAMES}
    assert tested == KNOWN - {
        "pure",  # exact at delta = 0
        "gdp",  # of a parameter
        "independent runs",
        "pooled runs",
    }


def claims(bound, found):
    """Return epsilons all over, on the grid, and next to the bound."""
    grid = bound.search(found[1], delta=0.0, alpha=ALPHA)
    start, step = (grid.start, grid.step) if isinstance(grid, Grid) else (0.0, 0.01)
    near = [start + step * k for k in (29, 115)]
    lower = found[0].epsilon_lower
    edges = [
        nextafter(lower, inf),
        nextafter(lower, -inf),
        lower + 5e-11,
        lower + 0.004,
    ]
    return sorted(e for e in [lower, *edges, *near, 2.0, 50.0] if e > 0)


@games
@pytest.mark.parametrize("delta", [0.0, 1e-4])
def test_a_claim_is_refuted_if_and_only_if_the_bound_reaches_it(bound, reading, delta):
    found = bound.epsilon_lower(reading, delta=delta, alpha=ALPHA)
    tests = [
        judge_claim(
            ApproxDP(epsilon=epsilon, delta=delta), reading, alpha=ALPHA, bound=bound
        )
        for epsilon in claims(bound, (found, reading))
    ]
    for test in tests:
        assert test.refuted == (found.epsilon_lower >= test.claim.epsilon), test
    p_values = [test.p_value for test in tests]
    assert all(a <= b * (1 + 1e-9) for a, b in pairwise(p_values))


@games
@pytest.mark.parametrize("delta", [0.0, 1e-4])
def test_the_bound_is_what_its_search_finds_in_bare_p_values(bound, reading, delta):
    by = bound.search(reading, delta=delta, alpha=ALPHA)
    if isinstance(by, Grid):
        want = first_not_rejected(bound, reading, delta=delta, alpha=ALPHA, grid=by)
    else:
        search = {
            PValueProperty.RISING: largest_rejected_of_rising,
            PValueProperty.ONE_EVENT: largest_rejected_on_scan,
        }
        want = search[by](bound, reading, delta=delta, alpha=ALPHA)
    found = bound.epsilon_lower(reading, delta=delta, alpha=ALPHA)
    lower = found.epsilon_lower
    exact = 1 - 2e-3 if isinstance(bound, WholeClaimBound) else 1  # to a thousandth
    assert exact * want.epsilon_lower <= lower <= want.epsilon_lower
    assert delta or lower > 0

    def rejects(epsilon):
        return bound.log_p_value(reading, epsilon=epsilon, delta=delta) <= log(ALPHA)

    if isinstance(by, Grid):
        below = by.start + by.step * np.arange(round((lower - by.start) / by.step))
        assert all(map(rejects, below))
        assert not rejects(lower + by.step)
    if lower > 0:
        assert rejects(lower)


def test_a_ranking_that_rejected_a_larger_claim_only_refutes_neither():
    """Bare p-values of these rankings fall below alpha again further up."""
    odd = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        ranked = Ranked(
            canaries=150, right=rng.random(150) < np.linspace(0.95, 0.6, 150)
        )
        lower = RankedBound().epsilon_lower(ranked, delta=1e-4, alpha=ALPHA)
        above = lower.epsilon_lower + 0.01 * np.arange(1, 12)
        bare = [RankedBound().log_p_value(ranked, epsilon=e, delta=1e-4) for e in above]
        again = np.flatnonzero(np.array(bare) <= np.log(ALPHA))
        for k in again[:1]:
            odd += 1
            claim = ApproxDP(epsilon=float(above[k]), delta=1e-4)
            assert not judge_claim(claim, ranked, alpha=ALPHA).refuted
    assert odd > 3


@pytest.mark.parametrize("bound", [AdaptiveBound(), AdaptiveWeightedBound()])
def test_where_delta_is_dear_at_small_epsilons_a_small_claim_is_refuted_too(bound):
    reading = Counts(canaries=10_000, guesses=200, correct=190, adaptive=True)
    if isinstance(bound, AdaptiveWeightedBound):
        reading = Weighted(
            canaries=10_000,
            weights=(1.0,),
            guesses=(200,),
            correct=(190,),
            committed=True,
            adaptive=True,
        )
    claim = ApproxDP(epsilon=0.1, delta=2e-5)
    bare = bound.log_p_value(reading, epsilon=0.1, delta=2e-5)
    assert bound.epsilon_lower(reading, delta=2e-5, alpha=ALPHA).epsilon_lower > 1.5
    assert judge_claim(claim, reading, alpha=ALPHA, bound=bound).refuted
    assert isinstance(bound, AdaptiveBound) or bare > np.log(ALPHA)


def test_a_curve_is_refuted_if_and_only_if_the_bound_reaches_a_point(subtests):
    deltas = np.array([0.05, 3e-4, 1e-7])
    for game in (0, 1, 3, 4, 6, 7):
        bound, reading = GAMES[game]
        lower = [
            bound.epsilon_lower(reading, delta=float(d), alpha=ALPHA).epsilon_lower
            for d in deltas
        ]
        for mid in (1.2, 2.5):
            with subtests.test(game=game, mid=mid):
                epsilons = np.array([mid - 0.7, mid, mid + 1.0])
                curve = PrivacyCurve(epsilons=epsilons, deltas=deltas)
                refuted = judge_claim(curve, reading, alpha=ALPHA, bound=bound).refuted
                at = bound.refuted_at(reading, curve, alpha=ALPHA)
                reached = (np.array(lower) >= curve.points()[0]).any()
                assert refuted == reached == (at is not None)
                if at is not None:
                    assert at[1].epsilon_lower >= at[0].epsilon


def test_independent_runs_agree_with_their_bound():
    runs = [COUNTS, replace(COUNTS, correct=49)]
    lower = (
        IndependentRunsBound()
        .epsilon_lower(runs, delta=1e-4, alpha=ALPHA)
        .epsilon_lower
    )
    for epsilon in (lower - 1e-6, lower, nextafter(lower, inf), lower + 1e-6):
        claim = ApproxDP(epsilon=epsilon, delta=1e-4)
        p_value = IndependentRunsBound().claim_p_value(runs, claim, alpha=ALPHA)
        assert (p_value <= ALPHA) == (lower >= epsilon)


class Ups(GameBound[None]):
    """P-values with two valleys, of which a search in a hundred pieces finds one."""

    method, reference = "ups", "none"

    def log_p_value(self, reading, *, epsilon, delta):
        pure = -10.0 + 3 * epsilon
        if not delta:
            return min(0.0, pure)
        return min(0.0, max(pure, -4.0 if abs(epsilon - 1.5037) < 1e-4 else -1.0))


def test_what_the_search_does_not_find_is_not_refuted():
    lower = Ups().epsilon_lower(None, delta=0.1, alpha=ALPHA).epsilon_lower
    p_value = Ups().claim_p_value(
        None, ApproxDP(epsilon=1.5037, delta=0.1), alpha=ALPHA
    )
    assert lower == 0.0
    assert p_value > ALPHA


def test_the_bottom_of_a_valley_is_found():
    where, least = least_between(lambda x: abs(x - 0.123), 0.0, 1.0)
    assert where == pytest.approx(0.123, abs=1e-3)
    assert least == abs(where - 0.123)


@pytest.mark.parametrize(
    ("p_value", "alpha", "text"),
    [
        (0.0500041, 0.05, "= 0.050005"),
        (0.0511, 0.05, "= 0.052"),
        (0.0501, 0.05, "= 0.0501"),
        (0.0499, 0.05, "= 0.05"),
        (0.0121, 0.0125, "= 0.0121"),
        (nextafter(0.05, 1.0), 0.05, "= 0.05000000000000001"),
        (0.05, 0.05, "= 0.05"),
        (1.0, 0.05, "= 1"),
        (3.21e-7, 0.05, "= 3.3e-07"),
        (0.0, 0.05, "< 1e-300"),
    ],
)
def test_a_printed_p_value_is_on_its_side_of_alpha(p_value, alpha, text):
    assert p_value_text(p_value, alpha) == text


@pytest.mark.parametrize(
    ("method", "epsilon", "text"),
    [
        ("ranked", 186 * 0.01, "1.86"),
        ("rounds", 203 * 0.01, "2.03"),
        ("betting", 0.505 + 0.01, "0.515"),
        ("ranked", 0.0, "0.00"),
        ("exact", 1.8609, "1.860"),
        ("ranked", inf, "inf"),
    ],
)
def test_a_bound_is_printed_with_the_digits_of_its_grid(method, epsilon, text):
    found = LowerBound(
        epsilon_lower=epsilon, delta=0.0, alpha=ALPHA, method=method, reference="none"
    )
    assert found.text == text
