"""Participation, strategies and what sums say of them, against lists of all patterns.

The oracle writes a strategy as a dense matrix and lists every pattern of up to eight
steps with its chance; the density is that of a Gaussian vector with the covariance of
the correlated noise. It shares nothing with what is tested but the columns.
"""

from collections.abc import Iterator
from itertools import combinations, product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpaudit.dpsgd.correlated_likelihood import MatchedSums, PatternLikelihood
from dpaudit.dpsgd.participation import Participation, separated_sensitivity, signals
from dpaudit.dpsgd.planning.guess_distribution import guess_distribution
from dpaudit.dpsgd.planning.training import TrainingSetup
from dpaudit.dpsgd.strategy import Independent, Matrix, Strategy, Toeplitz, Whitening
from dpaudit.errors import InvalidInputError, InvalidRunError

SIGMA = 0.8
COORDINATES = 5


def strategies(steps: int) -> list[Strategy]:
    rng = np.random.default_rng(3)
    any_matrix = np.tril(rng.normal(size=(steps, steps))) + 3 * np.eye(steps)
    later = (0.5 * 0.9**t + 0.1 * 0.3**t for t in range(steps - 1))
    recurrent = (1.0, *later)  # of two buffers
    return [
        Independent(),
        Toeplitz(coefficients=(1.0, 0.5, 0.25), steps=steps),
        Toeplitz(coefficients=(2.0, 0.7, -0.3, 0.2), steps=steps, normalized=True),
        Toeplitz(coefficients=recurrent, steps=steps),
        Matrix(rows=any_matrix),
    ]


def participation_of(steps: int) -> list[Participation]:
    return [
        Participation(),  # the full batch
        Participation(every=2),  # every other step
        Participation(every=3, cohorts=3),  # cyclic
        Participation(every=steps, cohorts=steps),  # once, at a known place
        Participation(most=2),  # sampled users with a cap
        Participation(every=3, cohorts=2, most=1),
        Participation(every=2, most=2, first=1),
    ]


CASES = [
    (steps, strategy, participation, rate)
    for steps in (1, 2, 5, 8)
    for strategy in strategies(steps)
    for participation in participation_of(steps)
    for rate in (1.0, 0.3)
]


def dense(strategy: Strategy, steps: int) -> NDArray[np.float64]:
    found = np.zeros((steps, steps))
    for step in range(steps):
        column = strategy.column(step)[: steps - step]
        found[step : step + len(column), step] = column
    return found


def correlated_likelihood(
    participation: Participation, rate: float, cohort: int, steps: int
) -> Iterator[tuple[NDArray[np.float64], float]]:
    """Yield every pattern of joins with its chance."""
    for joins in product((0, 1), repeat=steps):
        probability, used = 1.0, 0
        for step, joined in enumerate(joins):
            since = step - participation.first
            mine = since >= 0 and since % participation.every == cohort
            free = mine and (participation.most is None or used < participation.most)
            here = rate if free else 0.0
            probability *= here if joined else 1 - here
            used += joined
        if probability:
            yield np.array(joins, float), probability


def listed_ratio(
    sums: NDArray[np.float64],
    strategy: Strategy,
    participation: Participation,
    rate: float,
    cohort: int,
) -> float:
    """Return ln L(1) / L(0) of a coordinate's sums, from the list of all patterns."""
    steps = len(sums)
    inverse = np.linalg.inv(dense(strategy, steps))
    distribution = stats.multivariate_normal(cov=SIGMA**2 * inverse @ inverse.T)
    each = [
        np.log(probability) + distribution.logpdf(sums - joins)
        for joins, probability in correlated_likelihood(
            participation, rate, cohort, steps
        )
    ]
    return float(np.logaddexp.reduce(each) - distribution.logpdf(sums))


def test_likelihoods_are_those_of_all_patterns_listed(
    subtests: pytest.Subtests,
) -> None:
    for steps, strategy, participation, rate in CASES:
        with subtests.test(
            steps=steps, strategy=strategy, participation=participation, rate=rate
        ):
            rng = np.random.default_rng(steps)
            sums = 1.5 * rng.normal(size=(steps, COORDINATES))
            cohort = participation.cohort_of(COORDINATES)
            told = np.array(
                [
                    listed_ratio(
                        sums[:, i], strategy, participation, rate, int(cohort[i])
                    )
                    for i in range(COORDINATES)
                ]
            )
            seen = PatternLikelihood(
                cohort, participation, rate=rate, strategy=strategy
            )
            for step in sums:
                seen.observe(step, SIGMA)
            size = np.maximum(1.0, np.abs(told))
            assert np.abs((seen.log_ratio - told) / size).max() < 1e-10
            if rate == 1:
                matched = MatchedSums(cohort, participation, strategy)
                for step in sums:
                    matched.observe(step)
                rows = matched.log_likelihood(1, SIGMA)
                assert np.abs((rows[:, 1] - rows[:, 0] - told) / size).max() < 1e-10


def test_the_signal_is_the_length_of_what_joins_in_independent_noise(
    subtests: pytest.Subtests,
) -> None:
    for strategy, participation in product(strategies(7), participation_of(7)):
        with subtests.test(strategy=strategy, participation=participation):
            matrix = dense(strategy, 7)
            told = []
            for cohort in range(participation.cohorts):
                (joins, _), *others = correlated_likelihood(
                    participation, 1.0, cohort, 7
                )
                assert not others
                told.append(np.linalg.norm(matrix @ joins))
            assert signals(participation, strategy, 7) == pytest.approx(told)


def test_two_canaries_at_a_coordinate_are_a_sum_of_two() -> None:
    strategy, participation = (
        Toeplitz(coefficients=(1.0, 0.5), steps=4),
        Participation(every=2),
    )
    sums = np.random.default_rng(1).normal(size=4)
    seen = MatchedSums(np.zeros(1, int), participation, strategy)
    for step in sums:
        seen.observe(np.array([step]))
    inverse = np.linalg.inv(dense(strategy, 4))
    distribution = stats.multivariate_normal(cov=SIGMA**2 * inverse @ inverse.T)
    joins = np.array([1.0, 0, 1, 0])
    told = [distribution.logpdf(sums - n * joins) for n in range(3)]
    found = seen.log_likelihood(2, SIGMA)[0]
    assert found - found[0] == pytest.approx(np.array(told) - told[0], abs=1e-10)


def test_separated_sensitivity_is_the_largest_of_all_patterns() -> None:
    rng = np.random.default_rng(5)
    for separation, most in ((2, None), (3, None), (3, 2), (4, 1)):
        rows = np.tril(rng.normal(size=(8, 8))) * (
            np.subtract.outer(np.arange(8), np.arange(8)) < separation
        )
        strategy = Matrix(rows=rows)
        largest = 0.0
        for count in range(1, 9 if most is None else most + 1):
            for places in combinations(range(8), count):
                if all(np.diff(places) >= separation):
                    joins = np.isin(np.arange(8), places).astype(float)
                    largest = max(largest, float(np.linalg.norm(rows @ joins)))
        found = separated_sensitivity(
            strategy, steps=8, separation=separation, most=most
        )
        assert found == pytest.approx(largest)
    with pytest.raises(InvalidInputError, match="two joins meet"):
        separated_sensitivity(strategy, steps=8, separation=2)


def test_what_is_kept_does_not_grow_with_the_steps() -> None:
    def kept(steps: int) -> int:
        strategy = Toeplitz(coefficients=(1.0, 0.5, 0.25), steps=10**6)
        participation = Participation(every=3, cohorts=3)
        cohort = participation.cohort_of(30)
        matched = MatchedSums(cohort, participation, strategy)
        unknown = PatternLikelihood(cohort, participation, rate=0.5, strategy=strategy)
        for _ in range(steps):
            matched.observe(np.zeros(30))
            unknown.observe(np.zeros(30), 1.0)
        saved = {**matched.saved(), **unknown.saved()}
        return sum(array.nbytes for array in saved.values())

    assert kept(10) == kept(200)


@pytest.mark.parametrize("rate", [1.0, 0.4])
def test_an_interrupted_reading_goes_on_as_if_nothing_was(rate: float) -> None:
    strategy, participation = (
        strategies(8)[1],
        Participation(every=2, cohorts=2, most=3),
    )
    cohort = participation.cohort_of(COORDINATES)

    def new() -> MatchedSums | PatternLikelihood:
        if rate == 1:
            return MatchedSums(cohort, participation, strategy)
        return PatternLikelihood(cohort, participation, rate=rate, strategy=strategy)

    def observe(
        seen: MatchedSums | PatternLikelihood, sums: NDArray[np.float64]
    ) -> None:
        if isinstance(seen, MatchedSums):
            seen.observe(sums)
        else:
            seen.observe(sums, SIGMA)

    whole, first = new(), new()
    sums = np.random.default_rng(2).normal(size=(8, COORDINATES))
    for step in sums[:5]:
        observe(whole, step)
        observe(first, step)
    second = new()
    second.restore(first.saved())
    for step in sums[5:]:
        observe(whole, step)
        observe(second, step)
    for name, array in whole.saved().items():
        assert np.array_equal(array, second.saved()[name]), name


def test_more_steps_than_a_strategy_has_are_refused() -> None:
    strategy = Toeplitz(coefficients=(1.0, 0.5), steps=1)
    seen = MatchedSums(np.zeros(1, int), Participation(), strategy)
    seen.observe(np.zeros(1))
    with pytest.raises(InvalidRunError, match="strategy is for 1 steps"):
        seen.observe(np.zeros(1))


def test_too_many_patterns_are_refused() -> None:
    strategy = Toeplitz(coefficients=tuple(0.9**k for k in range(12)), steps=20)
    seen = PatternLikelihood(
        np.zeros(1, int), Participation(), rate=0.5, strategy=strategy
    )
    for _ in range(10):
        seen.observe(np.zeros(1), 1.0)
    with pytest.raises(InvalidInputError, match="fewer bands"):
        seen.observe(np.zeros(1), 1.0)


def test_whitened_noise_is_the_noise_before_it_was_correlated() -> None:
    for strategy in strategies(6):
        white = np.random.default_rng(0).normal(size=(6, 3))
        correlated = np.linalg.solve(dense(strategy, 6), white)
        whitening = Whitening(strategy, 3)
        found = [whitening.add(step) for step in correlated]
        assert np.allclose(found, white)


@pytest.mark.parametrize(
    "wrong",
    [
        {"every": 2, "cohorts": 3},
        {"every": 0},
        {"most": 0},
    ],
)
def test_turns_that_cannot_be_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidInputError):
        Participation(**wrong)


def test_strategies_that_cannot_be_are_refused() -> None:
    for rows in (np.ones((2, 2)), np.zeros((2, 2)), np.ones(3), [[np.inf]]):
        with pytest.raises(InvalidInputError):
            Matrix(rows=np.array(rows))
    for coefficients in ((), (0.0, 1.0), (np.nan,)):
        with pytest.raises(InvalidInputError):
            Toeplitz(coefficients=coefficients, steps=3)
    with pytest.raises(InvalidInputError, match="both must be the same"):
        TrainingSetup(
            steps=4, noise=1.0, strategy=Toeplitz(coefficients=(1.0,), steps=3)
        )


# Plans: what training with turns and strategies comes to.


def mean_surety(training: TrainingSetup) -> float:
    distribution = guess_distribution(
        training, per_coordinate=1, coordinates=40_000, seed=1
    )
    return float(distribution.probability().mean())


def test_known_turns_come_to_one_gaussian_number() -> None:
    strategy = Toeplitz(coefficients=(1.0, 0.5, 0.25), steps=9)
    training = TrainingSetup(
        steps=9,
        noise=3.0,
        participation=Participation(every=3, cohorts=3),
        strategy=strategy,
    )
    plain = training.sufficient()
    joins = np.array([1.0, 0, 0] * 3)
    told = 3.0 / np.linalg.norm(dense(strategy, 9) @ joins)
    assert (plain.steps, plain.rate) == (1, 1.0)
    assert plain.noise == pytest.approx(told)


def test_separate_turns_that_are_sampled_come_to_steps_of_their_own() -> None:
    """The same by the pattern likelihood, which knows nothing of that."""
    strategy = Toeplitz(coefficients=(1.0, 0.8), steps=12, normalized=True)
    participation = Participation(every=2, cohorts=2)
    apart = TrainingSetup(
        steps=12, rate=0.5, noise=1.5, participation=participation, strategy=strategy
    )
    assert not apart.sufficient().takes_turns
    capped = Participation(
        every=2, cohorts=2, most=6
    )  # no limit, but simulated as it is
    whole = TrainingSetup(
        steps=12, rate=0.5, noise=1.5, participation=capped, strategy=strategy
    )
    assert whole.sufficient().takes_turns
    # 40,000 coordinates each: a difference of 5 standard errors is 0.005.
    assert abs(mean_surety(apart) - mean_surety(whole)) < 0.005


def test_a_cap_shows_less_and_noise_divided_shows_more() -> None:
    free = TrainingSetup(
        steps=10, rate=0.3, noise=1.0, participation=Participation(most=10)
    )
    capped = TrainingSetup(
        steps=10, rate=0.3, noise=1.0, participation=Participation(most=1)
    )
    assert mean_surety(capped) + 0.01 < mean_surety(free)
    assert mean_surety(free) + 0.01 < mean_surety(free.with_noise_divided_by(2.0))
