"""The limit against closed forms, against all tests and all mechanisms, and by hand."""

from itertools import product

import numpy as np
import pytest
from scipy import optimize, sparse, special, stats

from dpaudit.errors import InvalidInputError
from dpaudit.mechanisms.local import (
    LocalGaussian,
    LocalLaplace,
    LocalRandomisedResponse,
)
from dpaudit.mechanisms.loss_distribution import (
    DiscreteLoss,
    LossDistribution,
    OutputComponent,
    SmoothLoss,
)
from dpaudit.mechanisms.noise import GaussianNoise, GeometricNoise, LaplaceNoise
from dpaudit.mechanisms.noisy_max import NoisyMax
from dpaudit.mechanisms.output_likelihood import (
    OutputLikelihood,
    elementwise_likelihood,
)
from dpaudit.mechanisms.parity import Xor, XorInPairs, XorRandomisedResponse
from dpaudit.mechanisms.sets import CountInSets
from dpaudit.theory.correct_guess_distribution import correct_guess_distribution
from dpaudit.theory.gaps import gaps
from dpaudit.theory.limit import limit, power_at_most
from dpaudit.theory.power import bounds_by_count

ALPHA = 0.05


def randomised_response(elements: int, loss: float) -> list[OutputLikelihood]:
    law = DiscreteLoss(values=np.array([loss]), probabilities=np.ones(1))
    kind = OutputComponent(probability=1.0, groups=elements, size=1, loss=law)
    return elementwise_likelihood(LossDistribution(elements=elements, kinds=(kind,)))


def best_binomial_test(elements: int, loss: float, epsilon: float) -> float:
    """Return the power of the randomised test by the number of right answers."""
    right = np.arange(elements, -1, -1)
    null, other = (
        np.append(0, np.cumsum(stats.binom.pmf(right, elements, special.expit(each))))
        for each in (epsilon, loss)
    )
    last = np.searchsorted(null, ALPHA) - 1
    part = (ALPHA - null[last]) / (null[last + 1] - null[last])
    return float(other[last] + part * (other[last + 1] - other[last]))


def test_randomised_response_is_the_binomial_test(subtests: pytest.Subtests) -> None:
    for elements, (loss, epsilon) in product(
        [1, 4, 100, 10_000], [(1.0, 0.9), (2.0, 0.5), (0.3, 0.28)]
    ):
        with subtests.test(elements=elements, loss=loss, epsilon=epsilon):
            found, paid = power_at_most(
                randomised_response(elements, loss), epsilon, alpha=ALPHA
            )
            assert found == pytest.approx(
                best_binomial_test(elements, loss, epsilon), abs=1e-6
            )
            assert paid == pytest.approx(epsilon, abs=1e-9)


@pytest.mark.parametrize(("elements", "loss"), [(100, 1.0), (1000, 0.5), (30, 3.0)])
def test_the_median_of_randomised_response(elements: int, loss: float) -> None:
    """Where the power crosses one half, found by halving what a binomial says."""
    low, high = 0.0, loss
    for _ in range(40):
        middle = (low + high) / 2
        crossed = best_binomial_test(elements, loss, middle) >= 0.5
        low, high = (middle, high) if crossed else (low, middle)
    found = limit(randomised_response(elements, loss), alpha=ALPHA)
    assert high <= found <= high + 2e-4


@pytest.mark.parametrize(
    ("mechanism", "elements", "guesses"),
    [
        (LocalLaplace(epsilon=1.0), 300, 206),
        (LocalLaplace(epsilon=4.0), 3000, 1677),
        (LocalGaussian(sigma=1.0), 300, 46),
        (LocalGaussian(sigma=0.5), 30, 15),
        (LocalRandomisedResponse(epsilon=1.0), 300, 300),
    ],
)
def test_the_best_number_of_guesses_stays_below(
    mechanism: LocalLaplace | LocalGaussian | LocalRandomisedResponse,
    elements: int,
    guesses: int,
) -> None:
    """The exact median of our own bound, which is valid, and not far below."""
    law = mechanism.loss_distribution(elements)
    right = correct_guess_distribution(law, guesses=guesses)
    bounds = bounds_by_count(
        right, canaries=elements, guesses=guesses, delta=0.0, alpha=ALPHA
    )
    median = bounds[np.searchsorted(np.cumsum(right), 0.5)]
    found = limit(elementwise_likelihood(law), alpha=ALPHA)
    assert 0.9 * found < median <= found


def table(rng: np.random.Generator, outputs: int, ones: int) -> np.ndarray:
    """Return a mechanism's chances of outputs (columns), for each number of ones."""
    return rng.dirichlet(np.ones(outputs), ones + 1)


def said(chances: np.ndarray, groups: int) -> OutputLikelihood:
    ones = len(chances) - 1
    prior = stats.binom.pmf(np.arange(ones + 1), ones, 0.5)
    return OutputLikelihood(
        groups=groups, weights=prior @ chances, log_likelihood=np.log(chances.T)
    )


def against_every_mechanism(chances: np.ndarray, groups: int, epsilon: float) -> float:
    """Return the least power, over all private mechanisms, of the best test of each.

    The best test of level alpha of N against M has power min over t of ``alpha t + sum
    (M - t N)_+``; with ``t N`` as unknowns that is a linear program.
    """
    ones, outputs = len(chances) - 1, chances.shape[1]
    coins = list(product((0, 1), repeat=ones * groups))
    seen = list(product(range(outputs), repeat=groups))
    counts = np.array(coins).reshape(len(coins), groups, ones).sum(axis=2)
    law = np.array(
        [
            [
                np.prod([chances[c, o] for c, o in zip(row, out, strict=True)])
                for out in seen
            ]
            for row in counts
        ]
    ) / len(coins)
    size = law.size  # unknowns: t N(S, o) / 2^m, then the excess, then t
    cost = np.concatenate([np.zeros(size), np.ones(size), [ALPHA]])
    above = sparse.hstack(
        [-sparse.eye(size), -sparse.eye(size), sparse.csr_matrix((size, 1))]
    )
    rows, limits = [above], [-law.ravel()]
    place = {each: i for i, each in enumerate(coins)}
    private = []
    for i, each in enumerate(coins):
        for j in range(len(each)):
            other = place[(*each[:j], 1 - each[j], *each[j + 1 :])]
            for k in range(len(seen)):
                private.append((i * len(seen) + k, other * len(seen) + k))
    at = np.arange(len(private))
    one, two = np.array(private).T
    ratio = sparse.csr_matrix(
        (
            np.concatenate([np.ones(len(at)), np.full(len(at), -np.exp(epsilon))]),
            (np.concatenate([at, at]), np.concatenate([one, two])),
        ),
        shape=(len(at), 2 * size + 1),
    )
    rows.append(ratio)
    limits.append(np.zeros(len(at)))
    whole = sparse.lil_matrix((len(coins), 2 * size + 1))
    for i in range(len(coins)):
        whole[i, i * len(seen) : (i + 1) * len(seen)] = 1.0
        whole[i, 2 * size] = -1 / len(coins)
    solved = optimize.linprog(
        cost,
        A_ub=sparse.vstack(rows),
        b_ub=np.concatenate(limits),
        A_eq=whole.tocsr(),
        b_eq=np.zeros(len(coins)),
    )
    assert solved.status == 0
    return float(solved.fun)


def test_no_test_of_any_mechanism_has_more(subtests: pytest.Subtests) -> None:
    """The null is one of all, so its best test has at least the power of the worst."""
    for (ones, groups, outputs), epsilon in product(
        [(1, 1, 3), (1, 2, 3), (1, 3, 2), (2, 1, 4), (2, 2, 2), (3, 1, 3), (4, 1, 3)],
        [0.1, 0.5, 1.0],
    ):
        with subtests.test(ones=ones, groups=groups, outputs=outputs, epsilon=epsilon):
            chances = table(np.random.default_rng([ones, groups]), outputs, ones)
            found, paid = power_at_most([said(chances, groups)], epsilon, alpha=ALPHA)
            least = against_every_mechanism(chances, groups, paid)
            assert least - 1e-7 <= found <= 1


def test_the_linear_program_knows_randomised_response() -> None:
    kept = special.expit(1.5)
    chances = np.array([[kept, 1 - kept], [1 - kept, kept]])
    for groups in (1, 2, 3):
        assert against_every_mechanism(chances, groups, 0.4) == pytest.approx(
            best_binomial_test(groups, 1.5, 0.4), abs=1e-7
        )


def test_a_loss_that_is_rounded_up_is_told_no_less() -> None:
    """A smooth loss lies between what is rounded down and what is rounded up."""
    smooth = SmoothLoss(
        tail_at=lambda t: np.where(t <= 0, 1.0, np.exp(-2 * t)), breaks=(0.0, 15.0)
    )
    kind = OutputComponent(probability=1.0, groups=500, size=1, loss=smooth)
    found = limit(
        elementwise_likelihood(LossDistribution(elements=500, kinds=(kind,))),
        alpha=ALPHA,
    )
    points = np.linspace(0, 15, 3001)
    ends = []
    for values in (points[:-1], points[1:]):
        chances = np.exp(-2 * points[:-1]) - np.exp(-2 * points[1:])
        law = DiscreteLoss(values=values, probabilities=chances / chances.sum())
        coarse = OutputComponent(probability=1.0, groups=500, size=1, loss=law)
        ends.append(
            limit(
                elementwise_likelihood(LossDistribution(elements=500, kinds=(coarse,))),
                alpha=ALPHA,
            )
        )
    assert ends[0] <= found <= ends[1] + 2e-4
    assert ends[1] - ends[0] < 0.02


def test_all_or_nothing_says_nothing_most_of_the_time() -> None:
    """Everything is revealed with a chance of 0.01: the null is hit as seldom."""
    sure = DiscreteLoss(values=np.array([np.inf]), probabilities=np.ones(1))
    kind = OutputComponent(probability=0.01, groups=100, size=1, loss=sure)
    law = elementwise_likelihood(LossDistribution(elements=100, kinds=(kind,)))
    power, _ = power_at_most(law, 1.0, alpha=ALPHA)
    # Always right when revealed, which the null almost never is; the rest at random.
    assert power == pytest.approx(0.01 + ALPHA * 0.99, abs=1e-3)
    assert limit(law, alpha=ALPHA) < 1e-3


def test_the_gaps_say_it() -> None:
    """Of randomised response, where half of the best binomial tests reject."""
    found = gaps(LocalRandomisedResponse(epsilon=1.0), elements=100)
    assert found.most is not None
    assert best_binomial_test(100, 1.0, found.most.value) == pytest.approx(
        0.5, abs=1e-3
    )
    assert f"at most epsilon = {found.most}." in str(found)


def test_a_parity_is_one_answer() -> None:
    """Its null answers by randomised response; of one answer little can be told."""
    for said in (
        Xor(elements=5).output_likelihood(5),
        Xor(elements=64).output_likelihood(64),
    ):
        power, _ = power_at_most(said, 0.7, alpha=ALPHA)
        least = ALPHA / special.expit(0.7)
        assert least - 1e-9 <= power < least + 2e-4
        assert limit(said, alpha=ALPHA) < 1e-3


def test_parities_of_pairs_are_as_many_answers_as_pairs() -> None:
    """No element by itself is known, and yet much can be told."""
    said = XorInPairs(elements=200).output_likelihood(200)
    power, _ = power_at_most(said, 3.0, alpha=ALPHA)
    assert power == pytest.approx(best_binomial_test(100, 700.0, 3.0), abs=1e-6)
    noisy = XorRandomisedResponse(elements=3, epsilon=2.0).output_likelihood(3)
    power, _ = power_at_most(noisy, 0.5, alpha=ALPHA)
    assert power == pytest.approx(best_binomial_test(1, 2.0, 0.5), abs=1e-6)


def test_a_count_of_one_is_local() -> None:
    """The loss of local noise is rounded up; of the count it is on a grid."""
    ones = CountInSets(elements=300, set_size=1, noise=GaussianNoise(sigma=1.0))
    alone = limit(LocalGaussian(sigma=1.0).output_likelihood(300), alpha=ALPHA)
    assert (
        alone - 0.01 < limit(ones.output_likelihood(300), alpha=ALPHA) <= alone + 2e-4
    )


@pytest.mark.parametrize(
    ("noise", "most"),
    [
        (GeometricNoise(epsilon=0.5), 0.5),
        (LaplaceNoise(epsilon=0.5), 0.5),
        (GaussianNoise(sigma=1.0), np.inf),
    ],
)
@pytest.mark.parametrize("size", [1, 3])
def test_noisy_counts_against_every_mechanism(
    noise: GeometricNoise | LaplaceNoise | GaussianNoise, most: float, size: int
) -> None:
    """The count is cut into cells; who sees only those tells no more."""
    said = CountInSets(elements=size, set_size=size, noise=noise).output_likelihood(
        size
    )
    found, paid = power_at_most(said, 0.2, alpha=ALPHA)
    rows = np.exp(said[0].log_likelihood)
    chances = np.add.reduceat(rows, np.arange(0, len(rows), len(rows) // 6)).T
    chances /= chances.sum(axis=1, keepdims=True)
    assert found >= against_every_mechanism(chances, 1, paid) - 1e-6
    assert limit(said, alpha=ALPHA) <= most + 1e-3


def test_a_winner_is_one_answer() -> None:
    mechanism = NoisyMax(elements=9, epsilon=2.0, candidates=3)
    (said,) = mechanism.output_likelihood(9)
    votes = np.array([1, 1, 1, 1, 0, 0, 0, 0, 0])
    law = mechanism.distribution(votes)
    odds = said.log_likelihood[:, 4] - said.log_likelihood[0, 4]
    assert odds == pytest.approx(np.log(law / law[0]))
    assert limit([said], alpha=ALPHA) < 2.0


def delta_of(loss: float, epsilon: float) -> float:
    """Return the delta of randomised response at an epsilon below its own."""
    return float(special.expit(loss) - np.exp(epsilon) * special.expit(-loss))


@pytest.mark.parametrize("share", [0.02, 0.5])
def test_with_delta_the_null_is_now_and_then_the_mechanism(share: float) -> None:
    """The level of the mixture, computed from the binomial test again."""
    law = randomised_response(100, 2.0)
    found, _ = power_at_most(law, 1.5, alpha=ALPHA, delta=share * delta_of(2.0, 1.5))
    right = np.arange(100, -1, -1)
    null, other = (
        np.append(0, np.cumsum(stats.binom.pmf(right, 100, special.expit(each))))
        for each in (1.5, 2.0)
    )
    level = share * other + (1 - share) * null
    assert found == pytest.approx(np.interp(ALPHA, level, other), abs=1e-6)


def test_a_claim_that_holds_is_not_refuted() -> None:
    """All of delta that the mechanism needs: it is the null."""
    law = randomised_response(100, 2.0)
    found, _ = power_at_most(law, 1.5, alpha=ALPHA, delta=delta_of(2.0, 1.5))
    assert found == pytest.approx(ALPHA, abs=1e-6)


@pytest.mark.parametrize(
    ("weights", "likelihood", "says"),
    [
        (np.ones(2), np.zeros((2, 2)), "add up"),
        (np.ones(2) / 2, np.zeros((3, 2)), "shapes"),
        (np.ones(2) / 2, np.zeros((2, 1)), "two numbers"),
        (np.ones(1), np.array([[0.0, -np.inf]]), "finite"),
    ],
)
def test_what_is_not_a_law_is_refused(
    weights: np.ndarray, likelihood: np.ndarray, says: str
) -> None:
    with pytest.raises(InvalidInputError, match=says):
        OutputLikelihood(groups=1, weights=weights, log_likelihood=likelihood)


@pytest.mark.parametrize("rows", [[[0.0, -1e5], [0.0, -1e5]], [[0.0, -800], [1, -800]]])
def test_what_floats_cannot_hold_limits_nothing(rows: list[list[float]]) -> None:
    """A number of ones whose chance vanishes has no law, and so no null."""
    said = OutputLikelihood(
        groups=10, weights=np.ones(2) / 2, log_likelihood=np.array(rows)
    )
    assert power_at_most([said], 0.5, alpha=ALPHA, delta=1e-3) == (1.0, np.inf)


def test_a_null_may_be_fitted_to_other_outputs() -> None:
    """To the same it is the same; to others it is farther, and the limit higher."""
    said, other = (
        CountInSets(
            elements=90, set_size=3, noise=GaussianNoise(sigma=sigma)
        ).output_likelihood(90)
        for sigma in (1.5, 1.2)
    )
    alone = limit(said, alpha=ALPHA)
    assert limit(said, alpha=ALPHA, fitted=said) == pytest.approx(alone, abs=2e-4)
    assert limit(said, alpha=ALPHA, fitted=other) > alone + 0.01
