"""Scores of canaries by their tokens, against sums written out."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from dpaudit.errors import InvalidInputError
from dpaudit.training.language_models import (
    Logits,
    Tokens,
    best_tokens,
    record_losses,
    token_gains,
)

torch.set_num_threads(1)


class Fixed(nn.Module):
    """Says the same of every token: the logarithms of given chances."""

    def __init__(self, chances):
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(chances).log())

    def forward(self, ids):
        return self.logits.expand(*ids.shape, -1)


HALF, QUARTER = [0.5, 0.25, 0.25], [0.25, 0.5, 0.25]
ROWS = Tokens(
    torch.tensor([[2, 0, 1], [1, 1, 0]]), torch.tensor([[2, 0, 1], [-100, 1, -100]])
)


def test_gains_token_by_token():
    found = token_gains(Fixed(HALF), ROWS, reference=Fixed(QUARTER), batch_size=1)
    two = math.log(2)
    np.testing.assert_allclose(found, [[two, -two], [-two, np.nan]], atol=1e-6)


def test_without_a_reference_it_is_the_loss():
    found = token_gains(Fixed(HALF), ROWS)
    expected = [[math.log(0.5), math.log(0.25)], [math.log(0.25), np.nan]]
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_record_s_loss_is_its_own_mean_whatever_else_is_in_the_batch():
    logits = Fixed(HALF)(ROWS.ids)
    together = record_losses(logits, ROWS.labels)
    apart = [
        record_losses(logits[i : i + 1], ROWS.labels[i : i + 1]).item() for i in (0, 1)
    ]
    np.testing.assert_allclose(together.detach(), apart)
    expected = [-(math.log(0.5) + math.log(0.25)) / 2, -math.log(0.25)]
    np.testing.assert_allclose(apart, expected, rtol=1e-6)


def test_a_blank_record_has_no_loss_and_no_gradient():
    model = Fixed(HALF)
    losses = record_losses(model(ROWS.ids), torch.full_like(ROWS.ids, -100))
    losses.sum().backward()
    assert losses.tolist() == [0.0, 0.0]
    assert not model.logits.grad.any()


def test_the_best_few():
    gains = np.array([[1.0, -2.0, 4.0], [np.nan, 3.0, np.nan]])
    assert best_tokens(gains).tolist() == [1.0, 3.0]
    assert best_tokens(gains, 1).tolist() == [4.0, 3.0]
    assert best_tokens(gains, 2).tolist() == [2.5, 3.0]


class Says(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how, self.weight = how, nn.Parameter(torch.zeros(1))

    def forward(self, input_ids, position_ids):
        assert position_ids.shape == input_ids.shape
        return self.how(torch.zeros(*input_ids.shape, 5))


class Output:
    def __init__(self, logits):
        self.logits = logits


@pytest.mark.parametrize(
    "how",
    [Output, lambda x: {"logits": x}, lambda x: ("loss", x), lambda x: x],
    ids=["an object", "a dict", "a tuple", "a tensor"],
)
def test_logits_of_whatever_a_model_returns(how):
    assert Logits(Says(how))(ROWS.ids).shape == (2, 3, 5)


def test_what_holds_no_logits_is_refused():
    with pytest.raises(InvalidInputError, match="must return logits"):
        Logits(Says(lambda x: x.mean()))(ROWS.ids)


def test_models_are_left_in_their_mode():
    model = Fixed(HALF)
    model.train()
    token_gains(model, ROWS)
    assert model.training
