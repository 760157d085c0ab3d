"""Gradients of canaries, and what weights tell of them, against algebra by hand."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from dpaudit.errors import InvalidInputError
from dpaudit.training.language_models import (
    Tokens,
    least_alike,
    random_tokens,
    record_gradients,
    record_losses,
    weight_scores,
)

torch.set_num_threads(1)
WORDS = 12


class Table(nn.Module):
    """Logits of the next token, looked up; one row of weights for each token."""

    def __init__(self):
        super().__init__()
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)
        self.table = nn.Parameter(torch.zeros(WORDS, WORDS))

    def forward(self, ids):
        return self.table[ids]


def by_hand(ids):
    """The gradient of the mean loss of a row at a table of zeros."""
    found = np.zeros((WORDS, WORDS))
    for before, after in itertools.pairwise(ids):
        found[before] += 1 / WORDS / (len(ids) - 1)
        found[before, after] -= 1 / (len(ids) - 1)
    return found.reshape(-1)


def test_gradients_are_those_of_each_record_clipped():
    records = random_tokens(20, length=5, vocabulary=WORDS, seed=0)
    expected = np.array([by_hand(row) for row in records.ids.tolist()])
    found = record_gradients(Table(), records, clip=1e9)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    norms = np.linalg.norm(expected, axis=1, keepdims=True)
    limit = float(np.median(norms))
    found = record_gradients(Table(), records, clip=limit)
    np.testing.assert_allclose(
        found, expected * np.minimum(1, limit / norms), atol=1e-6
    )


def test_blank_records_have_none():
    records = random_tokens(3, length=5, vocabulary=WORDS, seed=0)
    assert not record_gradients(Table(), records.blank().records, clip=1.0).any()


def test_the_least_alike_are_those_that_are_left_over():
    rng = np.random.default_rng(0)
    apart = np.eye(5, 40)
    alike = np.repeat(apart[:1], 30, axis=0) + 0.01 * rng.standard_normal((30, 40))
    rows = np.concatenate([alike, apart[1:]]).astype(np.float32)
    found = least_alike(rows, 5)
    assert set(found) >= {30, 31, 32, 33}
    assert sum(each < 30 for each in found) == 1


def test_what_public_records_do_is_no_reason_to_be_chosen():
    rows = np.array([[9.0, 0, 0], [0, 1, 0], [0, 0, 2]], np.float32)
    public = np.array([[1.0, 0, 0]], np.float32)
    assert least_alike(rows, 1) == [0]
    assert least_alike(rows, 2, besides=public) == [2, 1]


def test_too_many_are_refused():
    with pytest.raises(InvalidInputError, match="cannot be chosen"):
        least_alike(np.eye(3, dtype=np.float32), 4)


def trained_on(included, *, noise, seed):
    """Weights after a step of gradient descent on some records, with noise."""
    model = Table()
    generator = torch.Generator().manual_seed(seed)
    losses = record_losses(model(included.ids), included.labels)
    (gradient,) = torch.autograd.grad(losses.sum(), [model.table])
    gradient += noise * torch.randn(gradient.shape, generator=generator)
    return [model.table.detach() - 0.1 * gradient]


def test_weights_tell_who_was_there():
    canaries = random_tokens(60, length=6, vocabulary=WORDS, seed=0)
    bits = np.random.default_rng(1).integers(0, 2, 60)
    after = trained_on(canaries.some(np.flatnonzero(bits)), noise=0.0, seed=0)
    gradients = record_gradients(Table(), canaries, clip=1e9)
    found = weight_scores([Table().table], after, gradients, ridge=1e-6)
    # 60 records in 144 weights: least squares find each part, which is the step's size.
    np.testing.assert_allclose(found, 0.1 * bits, atol=1e-3)


def test_weights_that_saw_no_canary_tell_nothing():
    """Of 40 trainings without them, scores beyond the 0.001 level: none in 96 %."""
    canaries = random_tokens(60, length=6, vocabulary=WORDS, seed=0)
    others = random_tokens(60, length=6, vocabulary=WORDS, seed=5)
    gradients = record_gradients(Table(), canaries, clip=1.0)
    extreme = 0
    for seed in range(40):
        after = trained_on(others, noise=0.3, seed=seed)
        found = weight_scores([Table().table], after, gradients)
        bits = np.random.default_rng(seed).integers(0, 2, 60)
        gap = found[bits == 1].mean() - found[bits == 0].mean()
        spread = found.std() * np.sqrt(1 / bits.sum() + 1 / (60 - bits.sum()))
        extreme += abs(gap) > 3.29 * spread
    assert extreme <= 1


def test_other_weights_are_refused():
    gradients = np.zeros((2, 5), np.float32)
    with pytest.raises(InvalidInputError, match="5 parameters, but 144"):
        weight_scores([Table().table], [Table().table], gradients)


def test_a_model_with_nothing_to_train_is_refused():
    model = Table().requires_grad_(False)
    with pytest.raises(InvalidInputError, match="no parameter"):
        record_gradients(model, Tokens(torch.tensor([[1, 2]])), clip=1.0)
