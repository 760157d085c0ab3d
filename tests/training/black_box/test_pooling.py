"""Scores pooled by what held-out records teach."""

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from dpaudit.errors import InvalidInputError
from dpaudit.training.black_box import HeldOut, pooled_scores


def told(scores, bits):
    """How often one that was trained on scores above one that was not."""
    ones, zeros = scores[bits], scores[~bits]
    return np.mean(ones[:, None] > zeros[None])


def drawn(seed, count, weights):
    """Features of records: noise, and a shift of those that were trained on."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2, count).astype(bool)
    return rng.standard_normal((count, len(weights))) + bits[:, None] * weights, bits


WEIGHTS = np.array([0.0, 1.5, 0.0, -1.0])


def test_the_best_weights_are_found_from_others():
    taught, known = drawn(0, 2000, WEIGHTS)
    rows, bits = drawn(1, 4000, WEIGHTS)
    found = told(pooled_scores(rows, held_out=taught, trained=known), bits)
    best = told(rows @ WEIGHTS, bits)  # the likelihood ratio
    assert best - 0.005 < found <= best + 0.005
    assert found > told(rows.mean(1), bits) + 0.1


def test_a_number_that_is_missing_says_nothing():
    taught, known = drawn(0, 500, WEIGHTS)
    rows, _ = drawn(1, 10, WEIGHTS)
    rows[0] = np.nan
    taught[::7, 1] = np.nan
    found = pooled_scores(rows, held_out=taught, trained=known)
    assert np.isfinite(found).all()
    average = pooled_scores(
        np.nanmean(taught, axis=0)[None], held_out=taught, trained=known
    )
    np.testing.assert_allclose(found[0], average[0])


def test_what_says_nothing_of_held_out_records_says_nothing_of_canaries():
    """Without an effect |AUC - 1/2| is above 0.06 in fewer than one of 1e7 seeds."""
    taught, known = drawn(0, 300, np.zeros(4))
    rows, bits = drawn(1, 3000, np.zeros(4))
    assert (
        abs(told(pooled_scores(rows, held_out=taught, trained=known), bits) - 0.5)
        < 0.06
    )


def test_half_is_trained_on_by_the_public_seed():
    records = TensorDataset(torch.arange(101), torch.zeros(101))
    held_out = HeldOut(records=records, seed=3)
    assert held_out.trained().sum() == 51
    assert {int(x) for x, _ in held_out.included()} == {
        *np.flatnonzero(held_out.trained()).tolist()
    }
    other = HeldOut(records=records, seed=4).trained()
    assert 30 < (other == held_out.trained()).sum() < 71


@pytest.mark.parametrize(
    ("features", "held_out", "trained"),
    [
        (np.zeros((3, 2)), np.zeros((4, 3)), [1, 0, 1, 0]),
        (np.zeros((3, 2)), np.zeros((4, 2)), [1, 0, 1]),
        (np.zeros((3, 2)), np.zeros((4, 2)), [1, 1, 1, 1]),
        (np.zeros(3), np.zeros((4, 2)), [1, 0, 1, 0]),
        (np.full((3, 2), np.inf), np.zeros((4, 2)), [1, 0, 1, 0]),
    ],
)
def test_what_does_not_fit_is_refused(features, held_out, trained):
    with pytest.raises(InvalidInputError):
        pooled_scores(features, held_out=held_out, trained=trained)
