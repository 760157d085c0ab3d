"""The black-box audit: silent models pass, memory is found, ids join, traps raise."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, TensorDataset

from dpaudit import (
    AdaptiveBets,
    ApproxDP,
    Coins,
    Design,
    Key,
    OneRun,
    PureDP,
    Ranking,
    Result,
    ThreatModel,
)
from dpaudit._codec import encode
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.privacy.guarantees import Adjacency
from dpaudit.stats.binomial import rate_limits
from dpaudit.testing import fixed_key
from dpaudit.training.black_box import (
    BlackBoxAudit,
    CanaryScores,
    mislabelled,
    set_aside,
)

torch.set_num_threads(1)
KEY = fixed_key(bytes(range(32)))
N = 100
CLAIM = ApproxDP(epsilon=1.0, delta=1e-5)


def design_of(*, rules=OneRun(guesses=40), claim=CLAIM, **more):  # noqa: B008 (frozen)
    return Design(**{"canaries": N, "rules": rules, "claim": claim, **more})


DESIGN = design_of()
CANARIES = TensorDataset(torch.arange(N), torch.zeros(N))
BITS = Coins(key=KEY, count=N).bits()
ONE = TensorDataset(torch.tensor([999]), torch.zeros(1))  # a filler for all
REPLACING = replace(CLAIM, adjacency=Adjacency.REPLACE_ONE)


def said(outputs, _targets):
    """The loss of a model that says it: its output."""
    return outputs.sum()


def table(values):
    """A model that holds one number for each canary: its loss."""
    weights = torch.as_tensor(np.asarray(values), dtype=torch.float64)
    return nn.Embedding.from_pretrained(weights.reshape(-1, 1))


def opened(*, canaries=CANARIES, design=DESIGN, key=KEY, fillers=None):
    return BlackBoxAudit(canaries, design=design, key=key, fillers=fillers)


def ids_in(dataset):
    return [int(dataset[i][0]) for i in range(len(dataset))]


def keys(count):
    return (fixed_key(np.random.default_rng(seed).bytes(32)) for seed in range(count))


# Validity


@pytest.mark.parametrize(
    ("rules", "levels"),
    [
        (OneRun(guesses=40), 1 << 30),
        pytest.param(Ranking(guesses=N), 2, marks=pytest.mark.nightly),
    ],
    ids=["all losses different", "many ties"],
)
def test_a_model_that_is_independent_of_the_coins_is_rarely_accused(rules, levels):
    """A valid audit would fail this once in a million choices of seeds."""
    design = design_of(rules=rules, claim=ApproxDP(epsilon=0.0, delta=1e-6))
    model = table(np.random.default_rng(7).integers(levels, size=N))
    values = opened().score(model, loss=said).values  # the same whatever the coins
    wrong = 0
    for key in keys(300):
        audit = opened(design=design, key=key)
        result = audit.finish(
            CanaryScores(ids=np.arange(N), values=values, commitment=audit.commitment)
        )
        wrong += result.claim_test.refuted or result.bound.epsilon_lower > 0
    assert rate_limits(wrong, 300, alpha=2e-6)[0] <= 0.05


@pytest.mark.nightly
@pytest.mark.parametrize(
    "fillers",
    [None, ONE],
    ids=["left out", "replaced"],
)
def test_training_whose_claim_holds_with_equality_is_rarely_accused(fillers):
    """Each record is told truly with the chance that the claim allows, and no more.

    A valid audit would fail this once in a million choices of seeds.
    """
    adjacency = Adjacency.REPLACE_ONE if fillers else Adjacency.ADD_REMOVE
    design = design_of(claim=PureDP(epsilon=1.0, adjacency=adjacency))
    wrong = 0
    for seed, key in enumerate(keys(300)):
        audit = opened(design=design, key=key, fillers=fillers)
        result = audit.finish(audit.score(told(audit, 1.0, seed), loss=said))
        wrong += result.claim_test.refuted or result.bound.epsilon_lower > 1.0
    assert wrong > 0
    assert rate_limits(wrong, 300, alpha=2e-6)[0] <= 0.05


def told(audit, epsilon, seed):
    """Train by randomised response on whether each canary is in the training set."""
    rng = np.random.default_rng([seed, 1])
    inside = np.isin(np.arange(N), ids_in(audit.included()))
    true = rng.random(N) < np.exp(epsilon) / (1 + np.exp(epsilon))
    return table(1.0 - (inside == true))  # the loss is low if it says "in"


def test_training_that_tells_more_than_is_claimed_is_refuted():
    audit = opened()
    result = audit.finish(audit.score(told(audit, 5.0, 0), loss=said))
    assert result.claim_test.refuted


# Power, by real training


def memorised(audit, rest):
    """Train a wide network until it knows its records by heart."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 300), nn.ReLU(), nn.Linear(300, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    data = ConcatDataset([rest, audit.included()])
    for _ in range(60):
        for x, y in DataLoader(data, batch_size=64, shuffle=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    return model


def random_records(count):
    rng = np.random.default_rng(3)
    x = torch.tensor(rng.standard_normal((count, 20)), dtype=torch.float32)
    return TensorDataset(x, torch.tensor(rng.integers(4, size=count)))


@pytest.mark.parametrize("rules", [OneRun(guesses=40), Ranking(guesses=N)])
def test_a_model_that_memorises_records_of_the_data_is_refuted(rules):
    canaries, rest = set_aside(random_records(200), count=N, seed=0)
    audit = opened(canaries=canaries, design=design_of(rules=rules))
    model = memorised(audit, rest)
    scores = audit.score(model, loss=nn.functional.cross_entropy)
    assert audit.finish(scores).claim_test.refuted


def test_a_model_that_memorises_wrong_labels_instead_of_fillers_is_refuted():
    data = random_records(200)
    canaries = mislabelled(data, count=N, classes=4, seed=0)
    fillers = TensorDataset(torch.zeros(1, 20), torch.zeros(1, dtype=torch.int64))
    audit = opened(
        canaries=canaries, design=design_of(claim=REPLACING), fillers=fillers
    )
    assert len(audit.included()) == N
    model = memorised(audit, data)
    scores = audit.score(model, loss=nn.functional.cross_entropy)
    assert audit.finish(scores).claim_test.refuted


# The join


def test_lowest_losses_are_guessed_in_and_highest_out():
    losses = np.random.default_rng(0).standard_normal(N) - BITS
    audit = opened()
    result = audit.finish(audit.score(table(losses), loss=said))
    order = np.argsort(losses)
    right = BITS[order[:20]].sum() + (1 - BITS[order[-20:]]).sum()
    assert result.reading.correct == right


@pytest.mark.parametrize("rules", [OneRun(guesses=40), Ranking(guesses=N)])
@pytest.mark.parametrize("levels", [1 << 30, 3], ids=["all different", "many ties"])
def test_ids_in_any_order_give_the_same_result(rules, levels):
    rng = np.random.default_rng(0)
    values, order = rng.integers(levels, size=N), rng.permutation(N)
    results = []
    for ids in (np.arange(N), order):
        audit = opened(design=design_of(rules=rules))
        results.append(
            audit.finish(
                CanaryScores(ids=ids, values=values[ids], commitment=audit.commitment)
            )
        )
    assert results[0] == results[1]


def test_the_coins_decide_what_is_trained_on():
    assert ids_in(opened().included()) == np.flatnonzero(BITS).tolist()


def test_an_excluded_canary_makes_room_for_its_filler():
    design = design_of(claim=REPLACING)
    each = TensorDataset(1000 + torch.arange(N), torch.zeros(N))
    expected = [i if bit else 999 for i, bit in enumerate(BITS)]
    assert ids_in(opened(design=design, fillers=ONE).included()) == expected
    expected = [i if bit else 1000 + i for i, bit in enumerate(BITS)]
    assert ids_in(opened(design=design, fillers=each).included()) == expected


def test_another_process_with_the_same_key_can_score_and_finish():
    first, second = opened(), opened()
    scores = second.score(table(np.arange(N)), loss=said)
    assert second.commitment == first.commitment
    assert first.finish(scores) == second.finish(scores)
    assert opened(design=first.design).commitment == first.commitment


def test_the_result_says_who_looked_and_what_was_fixed():
    audit = opened()
    result = audit.finish(audit.score(table(np.arange(N)), loss=said))
    assert result.design.threat_model is ThreatModel.FINAL_MODEL
    assert set(encode(result.design.setting)) == {"canaries_sha256"}
    assert audit.commitment.holds_for(KEY, result.design)
    assert "sees only the final model" in result.details()
    assert "Not exercised: " in str(result)
    assert Result.from_json(result.to_json()) == result


def test_no_coin_can_be_reached_from_scores(reached):
    audit = opened()
    found = reached(audit.score(table(np.arange(N)), loss=said))
    assert not any(isinstance(each, Key | Coins | BlackBoxAudit) for each in found)
    assert any(each is audit.commitment for each in found)


# What voids an audit


def scored(audit, ids=None):
    ids = np.arange(N) if ids is None else np.asarray(ids)
    return CanaryScores(ids=ids, values=ids * 1.0, commitment=audit.commitment)


def test_bare_scores_are_refused():
    with pytest.raises(InvalidInputError, match="the canary and the audit"):
        opened().finish(np.arange(N))


def test_scores_of_another_audit_are_refused():
    for other in (
        opened(key=fixed_key(bytes(32))),
        opened(design=design_of(alpha=0.01)),
        opened(canaries=TensorDataset(torch.arange(N), torch.ones(N))),
    ):
        with pytest.raises(InvalidRunError, match="belong to another audit"):
            opened().finish(scored(other))


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (np.arange(3, N), r"3 ids are missing \(such as \[0, 1, 2\]\) and 0 unknown"),
        (np.arange(1, N + 1), r"such as \[0\]\) and 1 unknown \(such as \[100\]\)"),
        (np.arange(-1, N), r"0 ids are missing .* 1 unknown \(such as \[-1\]\)"),
    ],
)
def test_missing_and_unknown_ids_are_refused(ids, message):
    audit = opened()
    with pytest.raises(InvalidRunError, match=message):
        audit.finish(scored(audit, ids))


def test_an_audit_is_judged_once():
    audit = opened()
    scores = scored(audit)
    assert audit.finish(scores) is audit.finish(scores)
    with pytest.raises(InvalidRunError, match="has been judged by other scores"):
        audit.finish(scored(audit))


class Augmented(Dataset):
    """Gives another record at every reading."""

    def __len__(self):
        return N

    def __getitem__(self, index):
        return torch.randn(5), 0


@pytest.mark.parametrize("rules", [OneRun(guesses=41), Ranking(guesses=41)])
def test_each_canary_is_told_as_it_was_guessed(rules):
    """Few different scores, so that lots decide: the rows must know them too."""
    values = np.random.default_rng(3).integers(0, 3, N)
    order = np.random.default_rng(4).permutation(N)
    audit = BlackBoxAudit(CANARIES, design=design_of(rules=rules), key=KEY)
    scores = CanaryScores(ids=order, values=values[order], commitment=audit.commitment)
    result = audit.finish(scores)
    rows = audit.each(scores)
    assert [row.id for row in rows] == [*range(N)]
    assert [row.included for row in rows] == BITS.astype(bool).tolist()
    assert [row.score for row in rows] == values.tolist()
    guessed = [row for row in rows if row.guessed is not None]
    assert (sum(row.right for row in guessed), len(guessed)) == (
        result.reading.correct_and_guesses()
    )
    assert sum(row.guessed for row in guessed) == 21
    high, low = (
        [row.score for row in guessed if row.guessed is which]
        for which in (True, False)
    )
    others = [row.score for row in rows if row.guessed is None]
    assert all(row.right is None for row in rows if row.guessed is None)
    assert min(high) >= max(others) >= min(others) >= max(low)


def test_rows_are_told_of_judged_scores_only():
    audit = BlackBoxAudit(CANARIES, design=DESIGN, key=KEY)
    first, second = (
        CanaryScores(ids=np.arange(N), values=np.arange(N), commitment=audit.commitment)
        for _ in range(2)
    )
    with pytest.raises(InvalidRunError, match=r"call finish\(scores\) first"):
        audit.each(first)
    audit.finish(first)
    with pytest.raises(InvalidRunError, match="the same scores"):
        audit.each(second)
    assert len(audit.each(first)) == N


def test_canaries_that_change_are_refused():
    audit = opened(canaries=Augmented())
    with pytest.raises(InvalidRunError, match="are not those that were committed to"):
        audit.score(nn.Linear(5, 2), loss=nn.functional.cross_entropy)


def test_a_design_made_for_other_canaries_is_refused():
    design = opened(canaries=TensorDataset(torch.arange(N), torch.ones(N))).design
    with pytest.raises(InvalidRunError, match="the design was made for other records"):
        opened(design=design)


@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        (
            {"design": design_of(canaries=N + 1)},
            InvalidRunError,
            "there are 100 canaries for design.canaries=101",
        ),
        (
            {"design": design_of(rules=AdaptiveBets(min_epsilon=0.1))},
            InvalidRunError,
            "OneRun.* or Ranking.*, got AdaptiveBets",
        ),
        (
            {"design": design_of(claim=REPLACING)},
            InvalidRunError,
            "left out .* tests add-remove adjacency, but .* is for replace-one",
        ),
        (
            {"fillers": ONE},
            InvalidRunError,
            "replaced by a filler, .* replace-one adjacency, but .* is for add-remove",
        ),
        (
            {
                "design": design_of(claim=REPLACING),
                "fillers": TensorDataset(torch.tensor([5]), torch.zeros(1)),
            },
            InvalidRunError,
            r"1 canaries equal their filler \(the first is canary 5\)",
        ),
        (
            {
                "design": design_of(claim=REPLACING),
                "fillers": ConcatDataset([ONE, ONE]),
            },
            InvalidInputError,
            "there are 2 fillers for 100 canaries",
        ),
        (
            {"canaries": [0.0] * N},
            InvalidInputError,
            r"canaries\[0\] must be a pair",
        ),
    ],
)
def test_a_game_that_the_claim_is_not_about_is_refused(more, error, message):
    with pytest.raises(error, match=message):
        opened(**more)
