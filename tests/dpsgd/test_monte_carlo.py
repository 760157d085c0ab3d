"""The posterior at the paper's size, against coins that were drawn: s = 20, T = 100.

A posterior is right if coins fall as it says: among coins given chances ``p_1, p_2,
...`` the number of ones has the law of a sum of independent Bernoulli variables,
which is computed here. That needs no formula for the likelihood. The sums
are drawn in this file too: every canary draws its own batches, step by step.

One coin of each coordinate is looked at, so that all of them are independent given
what was seen of the coordinates and of the coins revealed before. ``test_sums`` has
the likelihood itself against drawn batches, and chances without revealed coins for
other ways of joining.
"""

import numpy as np
import pytest
from scipy import special

from dpaudit.dpsgd.likelihood import CountLikelihood
from dpaudit.dpsgd.sampling import Poisson
from dpaudit.mechanisms.exchangeable import ExchangeablePosterior

COORDINATES, SIZE, STEPS, RATE, SIGMA = 60_000, 20, 100, 0.1, 2.4224
KNOWN = (0, 12, 19)  # coins revealed before the one that is looked at
BINS = 10  # of equally many coordinates each
# 99.9 % in all: each bin of each stage has its part, and each of its two sides.
SIDE = 0.001 / (2 * BINS * len(KNOWN))


@pytest.fixture(scope="module")
def drawn():
    """Coins of every canary, and what the sums of all steps say of each coordinate."""
    rng = np.random.default_rng(20)
    bits = rng.random((COORDINATES, SIZE)) < 0.5
    likelihood = CountLikelihood(
        coordinates=COORDINATES, per_coordinate=SIZE, sampling=Poisson(rate=RATE)
    )
    for _ in range(STEPS):
        joins = rng.random((COORDINATES, SIZE), np.float32) < RATE
        noise = SIGMA * rng.standard_normal(COORDINATES)
        likelihood.observe((joins & bits).sum(axis=1) + noise, SIGMA)
    return bits, likelihood.log_likelihood


def next_coins(drawn, known):
    """The chance of each coordinate's next coin to be a one, and the coin."""
    bits, log_likelihood = drawn
    posterior = ExchangeablePosterior(log_likelihood)
    revealed = (np.arange(COORDINATES)[:, np.newaxis] * SIZE + np.arange(known)).ravel()
    truth = np.where(bits[:, :known], 1, -1).astype(np.int8).ravel()
    posterior.reveal(revealed, truth)
    log_odds = posterior.log_odds(np.arange(COORDINATES) * SIZE + known)
    return special.expit(log_odds), bits[:, known]


def tails(probabilities, ones):
    """P[at most so many ones] and P[at least so many], adding up coins pair by pair."""
    distributions = [np.array([1 - p, p]) for p in probabilities]
    while len(distributions) > 1:
        pairs = zip(
            distributions[::2], [*distributions[1::2], np.ones(1)], strict=False
        )
        distributions = [np.convolve(one, other) for one, other in pairs]
    (distribution,) = distributions
    return distribution[: ones + 1].sum(), distribution[ones:].sum()


def least_tail(probabilities, bits):
    """The smallest tail over bins of coordinates with similar chances."""
    bins = np.array_split(np.argsort(probabilities, kind="stable"), BINS)
    return min(min(tails(probabilities[b], int(bits[b].sum()))) for b in bins)


@pytest.mark.parametrize("known", KNOWN)
def test_coins_fall_as_often_as_the_posterior_says(drawn, known):
    """False alarms 0.1 % over all stages and bins, by the union bound; fixed seed."""
    probabilities, bits = next_coins(drawn, known)
    assert least_tail(probabilities, bits) > SIDE


@pytest.mark.parametrize("known", KNOWN[1:])
def test_chances_that_ignore_the_coins_revealed_are_found_out(drawn, known):
    """The check is sharp, if coordinates are sorted as the right posterior does."""
    probabilities, bits = next_coins(drawn, known)
    ignorant, _ = next_coins(drawn, 0)
    bins = np.array_split(np.argsort(probabilities, kind="stable"), BINS)
    found = [min(tails(ignorant[b], int(bits[b].sum()))) for b in bins]
    assert min(found) < SIDE


@pytest.mark.parametrize("factor", [0.8, 1.25])
def test_chances_that_are_too_bold_or_too_timid_are_found_out(drawn, factor):
    """The check is sharp: log-odds off by such a factor do not pass it."""
    probabilities, bits = next_coins(drawn, SIZE - 1)
    assert least_tail(special.expit(factor * special.logit(probabilities)), bits) < SIDE
