"""Scores: the loss of each record by itself, on a model that is left as it was."""

import functools

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game import Commitment
from dpaudit.training.black_box import CanaryScores, OtherLabels, score_canaries

torch.set_num_threads(1)
COMMITMENT = Commitment(sha256="0" * 64, run_digest="0" * 64)
N, CLASSES = 50, 3


def records(dtype=torch.float32):
    torch.manual_seed(1)
    return TensorDataset(torch.randn(N, 5, dtype=dtype), torch.arange(N) % CLASSES)


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, CLASSES))


def scores(model, *, canaries=None, loss=nn.functional.cross_entropy, **more):
    more = {"reference": None, **more}
    canaries = records() if canaries is None else canaries
    return score_canaries(model, canaries, loss=loss, commitment=COMMITMENT, **more)


def log_chances(model, data):
    """What the network says, by numpy: log-softmax of tanh layers."""
    first, _, second = model
    arrays = [p.detach().double().numpy() for p in (*first.parameters(),)]
    hidden = np.tanh(data.tensors[0].double().numpy() @ arrays[0].T + arrays[1])
    arrays = [p.detach().double().numpy() for p in (*second.parameters(),)]
    out = hidden @ arrays[0].T + arrays[1]
    return out - np.log(np.exp(out).sum(axis=1, keepdims=True))


def test_a_score_is_the_references_loss_less_the_models():
    model, initial, data = network(0), network(1), records()
    labels = np.arange(N) % CLASSES
    own = -log_chances(model, data)[np.arange(N), labels]
    other = -log_chances(initial, data)[np.arange(N), labels]
    found = scores(model)
    assert found.ids.tolist() == list(range(N))
    assert found.values == pytest.approx(-own, abs=1e-5)
    assert scores(model, reference=initial).values == pytest.approx(
        other - own, abs=1e-5
    )


def test_other_labels_are_all_others_and_not_its_own():
    model, data = network(), records()
    losses = -log_chances(model, data)
    rows, labels = np.arange(N), np.arange(N) % CLASSES
    own = losses[rows, labels]
    expected = (losses.sum(axis=1) - own) / (CLASSES - 1) - own
    found = scores(model, reference=OtherLabels(classes=CLASSES))
    assert found.values == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    "loss",
    [
        functools.partial(nn.functional.cross_entropy, reduction="sum"),
        functools.partial(nn.functional.cross_entropy, reduction="none"),
        nn.CrossEntropyLoss(),
    ],
)
@pytest.mark.parametrize("batch_size", [1, 7, 1000])
def test_neither_the_reduction_nor_the_batch_matters(loss, batch_size):
    model = network()
    expected = scores(model).values
    found = scores(model, loss=loss, batch_size=batch_size).values
    assert found == pytest.approx(expected, abs=1e-5)


def test_the_model_is_evaluated_and_left_as_it_was():
    model = nn.Sequential(
        nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, CLASSES)
    )
    model.train()
    model[1].eval()  # frozen statistics in a model that is trained
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    assert np.array_equal(scores(model).values, scores(model).values)  # no dropout
    assert [module.training for module in model.modules()] == modes
    after = model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_modes_come_back_even_if_the_model_fails():
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 2))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        scores(model)
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize("model_kind", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("data_kind", [torch.float64, torch.float32])
def test_floating_inputs_take_the_models_precision(model_kind, data_kind):
    model = network().to(model_kind)
    found = scores(model, canaries=records(data_kind)).values
    assert np.isfinite(found).all()


class Elsewhere(nn.Module):
    """Holds its weights on another device, and notes where its inputs are."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, CLASSES, device="meta")

    def forward(self, x):
        self.seen = x.device.type
        return torch.randn(len(x), CLASSES)


def test_inputs_go_where_the_model_is():
    model = Elsewhere()
    scores(model)
    assert model.seen == "meta"


def test_whole_numbers_and_models_without_weights_are_left_alone():
    data = TensorDataset(torch.arange(N), torch.arange(N) % CLASSES)
    assert len(scores(nn.Embedding(N, CLASSES), canaries=data).values) == N
    direct = TensorDataset(torch.randn(N, CLASSES), torch.arange(N) % CLASSES)
    assert len(scores(nn.Identity(), canaries=direct).values) == N


class Diverged(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, x):
        out = x[:, :CLASSES].clone()
        out[x[:, 0] == x[3, 0], 0] = self.value  # canary 3 when all are one batch
        return out


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_losses_that_are_not_finite_are_refused(value):
    with pytest.raises(InvalidRunError, match=r"1 of 50 .* first is number 3\)"):
        scores(Diverged(value))


def test_a_loss_with_a_rule_of_its_own_for_those_is_taken():
    def finite(outputs, targets):
        loss = nn.functional.cross_entropy(outputs, targets)
        return torch.nan_to_num(loss, nan=100.0)

    assert scores(Diverged(float("nan")), loss=finite).values[3] == -100.0


class Pair(nn.Module):
    def forward(self, x):
        return x, x


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(0)


def per_class(outputs, _targets):
    return outputs


MODEL = network()


@pytest.mark.parametrize(
    ("model", "more", "error", "message"),
    [
        (MODEL, {"reference": MODEL}, InvalidRunError, "reference is the model itself"),
        (MODEL, {"reference": network()}, InvalidRunError, "all 50 scores are 0"),
        (MODEL, {"reference": 3}, InvalidInputError, "or None, got int"),
        (len, {}, InvalidInputError, "model must be a torch.nn.Module"),
        (Pair(), {}, InvalidInputError, "a tensor with a row for each.*got tuple"),
        (Mean(), {}, InvalidInputError, "a row for each of the 50 records"),
        (MODEL, {"loss": per_class}, InvalidInputError, r"one number.*shape \(1, 3\)"),
        (MODEL, {"batch_size": 0}, InvalidInputError, "batch_size must be"),
        (
            MODEL,
            {"reference": OtherLabels(classes=2)},
            InvalidInputError,
            "whole numbers from 0 to 1, got torch.int64 from 0 to 2",
        ),
        (
            MODEL,
            {"canaries": [({"x": 1.0}, 0)]},
            InvalidInputError,
            "got a batch of dict and Tensor",
        ),
    ],
)
def test_what_cannot_be_scored_is_refused(model, more, error, message):
    with pytest.raises(error, match=message):
        scores(model, **more)


@pytest.mark.parametrize(
    ("ids", "values", "message"),
    [
        ([0, 1], [1.0], "every score needs an id, got 2 ids for 1 values"),
        ([0, 0], [1.0, 2.0], "an id appears twice"),
        ([0.0, 1.0], [1.0, 2.0], "ids must be a list of whole numbers"),
        ([0, 1], [1.0, np.nan], r"values\[1\] is not a number"),
        ([0, 1], ["a", "b"], "values must be a list of numbers"),
        ([[0], [1]], [1.0, 2.0], "ids must be a list of whole numbers"),
    ],
)
def test_scores_that_cannot_be_joined_are_refused(ids, values, message):
    with pytest.raises(InvalidInputError, match=message):
        CanaryScores(ids=ids, values=values, commitment=COMMITMENT)


def test_scores_need_the_commitment_of_an_audit():
    with pytest.raises(InvalidInputError, match="must be the audit's commitment"):
        CanaryScores(ids=[0], values=[1.0], commitment="0" * 64)


def test_scores_cannot_be_changed_once_made():
    mine = np.array([1.0, 2.0])
    made = CanaryScores(ids=[0, 1], values=mine, commitment=COMMITMENT)
    mine[0] = 9.0
    assert made.values.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        made.values[0] = 9.0
