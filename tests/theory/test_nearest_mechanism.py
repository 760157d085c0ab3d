"""The nearest private mechanism, against a solver that knows nothing of runs."""

from itertools import product

import numpy as np
import pytest
from scipy import optimize, special, stats

from dpaudit.theory.nearest_mechanism import Nearest


def joint(ones: int, outputs: int, seed: int) -> np.ndarray:
    """Return a mechanism on fair coins: outputs by numbers of ones."""
    prior = stats.binom.pmf(np.arange(ones + 1), ones, 0.5)
    chances = np.random.default_rng(seed).dirichlet(np.full(outputs, 0.7), ones + 1)
    return np.asarray((prior[:, None] * chances).T)


def divergence(one: np.ndarray, other: np.ndarray) -> float:
    return float(special.rel_entr(one, other).sum())


def by_a_solver(mechanism: np.ndarray, epsilon: float) -> float:
    """Return the least divergence; the unknowns are the logs of all chances."""
    prior, shape = mechanism.sum(axis=0), mechanism.shape
    rises = np.zeros((shape[0] * (shape[1] - 1), mechanism.size))
    places = np.arange(mechanism.size).reshape(shape)
    for row, (low, high) in enumerate(
        zip(places[:, :-1].ravel(), places[:, 1:].ravel(), strict=True)
    ):
        rises[row, low], rises[row, high] = -1.0, 1.0
    start = np.full(mechanism.size, -np.log(shape[0]))
    found = optimize.minimize(
        lambda logs: -float(mechanism.ravel() @ logs),
        start,
        jac=lambda logs: -mechanism.ravel() + 0 * logs,
        method="SLSQP",
        constraints=[
            {
                "type": "ineq",
                "fun": lambda logs: epsilon - np.append(rises @ logs, -rises @ logs),
                "jac": lambda logs: np.vstack([-rises, rises]) + 0 * logs[0],
            },
            {"type": "eq", "fun": lambda logs: np.exp(logs.reshape(shape)).sum(0) - 1},
        ],
        options={"maxiter": 2000, "ftol": 1e-14},
    )
    assert found.success, found.message
    return divergence(mechanism, prior * np.exp(found.x.reshape(shape)))


def test_no_other_is_nearer(subtests: pytest.Subtests) -> None:
    for (ones, outputs), epsilon in product(
        [(1, 3), (2, 4), (3, 3), (5, 6)], [0.1, 0.5, 1.5]
    ):
        with subtests.test(ones=ones, outputs=outputs, epsilon=epsilon):
            mechanism = joint(ones, outputs, seed=ones)
            found, private = Nearest(mechanism).at(epsilon)
            assert private <= epsilon + 0.01
            most, least = (by_a_solver(mechanism, each) for each in (epsilon, private))
            assert least - 1e-6 <= divergence(mechanism, found) <= most + 2e-5


def test_it_is_private_and_its_coins_are_fair(subtests: pytest.Subtests) -> None:
    """Its chances add up to one for each number of ones; neighbours are near."""
    for ones, epsilon in product([1, 2, 5, 12], [0.05, 0.4, 2.0]):
        with subtests.test(ones=ones, epsilon=epsilon):
            found, private = Nearest(joint(ones, 40, seed=ones)).at(epsilon)
            prior = stats.binom.pmf(np.arange(ones + 1), ones, 0.5)
            chances = found / prior
            assert chances.sum(axis=0) == pytest.approx(np.ones(ones + 1), abs=1e-12)
            steps = np.abs(np.diff(np.log(chances), axis=1)).max()
            assert steps <= private + 1e-12
            assert private <= epsilon + 0.01


def test_where_it_begins_does_not_matter() -> None:
    """Prices and runs of the last epsilon are a start, and nothing else."""
    mechanism = joint(4, 30, seed=3)
    warm = Nearest(mechanism)
    for epsilon in (1.0, 0.2, 2.0, 0.7):
        again, _ = warm.at(epsilon)
        cold, _ = Nearest(mechanism).at(epsilon)
        assert divergence(mechanism, again) == pytest.approx(
            divergence(mechanism, cold), abs=1e-6
        )


def test_what_is_private_already_is_its_own_nearest() -> None:
    mechanism = joint(3, 5, seed=1)
    epsilon = float(np.abs(np.diff(np.log(mechanism / mechanism.sum(0)), axis=1)).max())
    found, _ = Nearest(mechanism).at(epsilon + 0.1)
    assert found == pytest.approx(mechanism, abs=1e-9)


def test_a_parity_becomes_randomised_response() -> None:
    """Every step is steep, up and down by turns."""
    prior = stats.binom.pmf(np.arange(6), 5, 0.5)
    odd = np.arange(6) % 2
    found, _ = Nearest(prior * np.array([1 - odd, odd])).at(0.8)
    right = special.expit(0.8)
    assert found[1] / prior == pytest.approx(np.where(odd, right, 1 - right), abs=1e-6)
