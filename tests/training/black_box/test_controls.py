"""Control records: told apart if trained on, silent if not, and deciding no claim."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, TensorDataset

from dpaudit import ApproxDP, Coins, Design, OneRun, PureDP, Result
from dpaudit._codec import encode
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.findings import Status, inconclusive
from dpaudit.game.text.findings import sentence
from dpaudit.game.verdict import BETTER_THAN_CHANCE, Verdict
from dpaudit.privacy.guarantees import Adjacency
from dpaudit.testing import fixed_key
from dpaudit.training.black_box import (
    BlackBoxAudit,
    CanaryScores,
    Controls,
    mislabelled,
    set_aside,
)
from dpaudit.training.black_box.controls import seen_of_controls

torch.set_num_threads(1)
KEY = fixed_key(bytes(range(32)))
N, RECORDS, REPEATS = 100, 30, 4
CLAIM = ApproxDP(epsilon=1.0, delta=1e-5)
CANARIES = TensorDataset(torch.arange(N), torch.zeros(N))
OTHERS = TensorDataset(N + torch.arange(RECORDS), torch.zeros(RECORDS))
CONTROLS = Controls(records=OTHERS, repeats=REPEATS)
BITS = Coins(key=KEY, count=N).bits()


def opened(*, key=KEY, controls=CONTROLS, claim=CLAIM, design=None, fillers=None):
    rules = OneRun(guesses=40)
    design = design or Design(canaries=N, rules=rules, claim=claim)
    return BlackBoxAudit(
        CANARIES, design=design, key=key, controls=controls, fillers=fillers
    )


def numbers(dataset):
    return [int(dataset[i][0]) for i in range(len(dataset))]


def keys(count):
    return (fixed_key(np.random.default_rng(seed).bytes(32)) for seed in range(count))


def control_bits(audit):
    """Which controls are in the training set, read off the training set."""
    return np.isin(N + np.arange(RECORDS), numbers(audit.included()))


def judged(audit, *, canaries, controls):
    scores = CanaryScores(
        ids=np.arange(N),
        values=canaries,
        commitment=audit.commitment,
        controls=controls,
    )
    return audit.finish(scores)


def silence(seed=0):
    return np.random.default_rng(seed).standard_normal(N)


# What is trained on


@pytest.mark.parametrize("filled", [False, True], ids=["left out", "replaced"])
def test_half_of_the_controls_come_after_the_canaries_each_repeated(filled):
    adjacency = Adjacency.REPLACE_ONE if filled else Adjacency.ADD_REMOVE
    claim = ApproxDP(epsilon=1.0, delta=1e-5, adjacency=adjacency)
    fillers = TensorDataset(torch.tensor([999]), torch.zeros(1)) if filled else None
    for key in keys(20):
        plain = opened(key=key, claim=claim, fillers=fillers, controls=None)
        audit = opened(key=key, claim=claim, fillers=fillers)
        found, canaries = numbers(audit.included()), numbers(plain.included())
        assert found[: len(canaries)] == canaries
        values, counts = np.unique(found[len(canaries) :], return_counts=True)
        assert len(values) == RECORDS // 2
        assert np.all((values >= N) & (counts == REPEATS))


def test_each_control_is_trained_on_in_half_of_all_runs_whatever_the_coins():
    """Fair and independent lots fail this once in a million choices of seeds."""
    lots = np.array([CONTROLS.trained(key) for key in keys(400)]) - 0.5
    coins = np.array([Coins(key=key, count=N).bits() for key in keys(400)]) - 0.5
    assert np.array_equal(control_bits(opened()), CONTROLS.trained(KEY))
    # 30 means and 3,000 correlations, each of standard deviation 0.05 of its scale
    assert np.abs(lots.mean(0)).max() < 0.5 * 5.6 * 0.05
    assert np.abs((lots.T @ coins) / 400).max() < 0.25 * 6.5 * 0.05


# What is said


def test_silence_is_an_answer_if_controls_are_told_apart():
    audit = opened()
    result = judged(audit, canaries=silence(), controls=1.0 * control_bits(audit))
    assert result.verdict == "no violation detected"
    told = sentence(result.sanity_checks[1])
    assert "trained on 4 times from others (p = 6.5e-09)" in told
    assert "trained on fewer than 4 times (no effect of any canary" in " ".join(
        result.details().split()
    )
    assert "whether the training set followed the coins" in result.details()
    assert Result.from_json(result.to_json()) == result


@pytest.mark.parametrize("told", [lambda lots: 0 * lots, lambda lots: -lots])
def test_silence_is_none_if_controls_are_not_told_apart(told):
    audit = opened()
    lots = 1.0 * control_bits(audit)
    text = str(judged(audit, canaries=silence(), controls=told(lots)))
    assert text.startswith("INCONCLUSIVE\n")
    text = " ".join(text.split())
    assert "cores do not distinguish control records" in text


def test_without_controls_silence_is_inconclusive():
    result = judged(opened(controls=None), canaries=silence(), controls=())
    assert result.verdict == "inconclusive"


def test_scores_that_know_no_lot_tell_controls_apart_in_one_of_a_thousand_runs():
    """The exact law fails this once in ten million choices of seeds: 2 are expected."""
    scores = np.random.default_rng(5).standard_normal(RECORDS)
    effect = inconclusive(BETTER_THAN_CHANCE, p_value=0.5)
    told = 0
    for key in keys(2000):
        (_, found), _ = seen_of_controls(
            effect, CONTROLS, scores=scores, excluded=np.empty(0), key=key
        )
        told += found.status is Status.PASSED
    assert told <= 13


def test_canaries_that_show_need_no_control_to_show():
    audit = opened(claim=PureDP(epsilon=2.0))
    lots = np.random.default_rng(0).standard_normal(RECORDS)
    result = judged(audit, canaries=BITS + 0.8 * silence(), controls=lots)
    assert "better than chance" in sentence(result.sanity_checks[0])
    told = sentence(result.sanity_checks[1])
    assert "scores do not distinguish control records" in told
    assert result.verdict == "no violation detected"


def test_no_score_of_a_control_decides_whether_a_claim_is_refuted():
    """Canaries tell more than is claimed, so that some are refuted and some are not."""
    claim, words = PureDP(epsilon=1.0), set()
    for seed, key in enumerate(keys(20)):
        bits = Coins(key=key, count=N).bits()
        rng = np.random.default_rng([seed, 1])
        canaries = 1.0 * (bits == (rng.random(N) < 1 / (1 + np.exp(-1.6))))
        plain = opened(key=key, claim=claim, controls=None)
        alone = judged(plain, canaries=canaries, controls=())
        words.add(str(alone.verdict))
        for level in (-1.0, 0.0, 1.0):
            audit = opened(key=key, claim=claim)
            lots = level * CONTROLS.trained(key)
            result = judged(audit, canaries=canaries, controls=lots)
            assert result.claim_test == alone.claim_test
            refuted = Verdict.CLAIM_REFUTED
            assert (result.verdict is refuted) == (alone.verdict is refuted)
    assert "claim refuted" in words
    assert len(words) > 1


# By real training


def made(training_set, *, epochs, rate, seed=0):
    """Audit a training on what is made of data, canaries and two audits."""
    rng = torch.Generator().manual_seed(seed)
    data = TensorDataset(
        torch.randn(300, 10, generator=rng), torch.randint(0, 3, (300,), generator=rng)
    )
    wrong = mislabelled(data, count=180, classes=3, seed=0)
    records, canaries = set_aside(wrong, count=RECORDS, seed=1)
    rules = OneRun(guesses=60)
    audit, other = (
        BlackBoxAudit(
            canaries,
            design=Design(canaries=150, rules=rules, claim=CLAIM),
            key=key,
            controls=Controls(records=records, repeats=20),
        )
        for key in keys(2)
    )
    model = trained(
        training_set(data, canaries, audit, other), epochs=epochs, rate=rate
    )
    return audit.finish(audit.score(model, loss=nn.functional.cross_entropy))


def trained(records, *, epochs, rate):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 256), nn.ReLU(), nn.Linear(256, 3))
    optimizer = torch.optim.Adam(model.parameters(), rate)
    for _ in range(epochs):
        for x, y in DataLoader(records, batch_size=64, shuffle=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    return model


def followed(data, _canaries, audit, _other):
    return ConcatDataset([data, audit.included()])


def test_a_training_too_short_to_show_a_canary_shows_its_controls():
    result = made(followed, epochs=2, rate=1e-3)
    assert "no effect of any canary was detected" in sentence(result.sanity_checks[0])
    assert result.verdict == "no violation detected"


def test_a_training_that_learns_by_heart_is_refuted_with_controls_too():
    assert made(followed, epochs=30, rate=1e-2).verdict == "claim refuted"


@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize(
    ("training_set", "reason"),
    [
        (lambda data, _c, _a, _o: data, "scores do not distinguish"),
        (lambda data, c, _a, _o: ConcatDataset([data, c]), "scores do not distinguish"),
        (
            lambda data, _c, _a, other: ConcatDataset([data, other.included()]),
            "scores do not distinguish",
        ),
    ],
    ids=["forgotten", "all canaries", "another key's"],
)
def test_a_training_without_these_controls_is_inconclusive(training_set, reason, short):
    more = {"epochs": 2, "rate": 1e-3} if short else {"epochs": 30, "rate": 1e-2}
    result = made(training_set, **more)
    assert result.verdict == "inconclusive"
    assert reason in result.reason


def test_a_model_that_was_not_trained_is_inconclusive():
    result = made(followed, epochs=0, rate=1e-3)
    assert result.verdict == "inconclusive"
    assert "scores do not distinguish" in result.reason


def test_canaries_left_in_the_data_are_noticed_though_controls_are_told_apart():
    def left_in(data, canaries, audit, _other):
        return ConcatDataset([data, canaries, audit.included()])

    result = made(left_in, epochs=30, rate=1e-2)
    assert "scores distinguish control records" in sentence(result.sanity_checks[1])
    assert result.verdict == "inconclusive"
    assert "canaries may have been left in the data" in result.reason


# What is refused


def test_controls_are_part_of_what_is_committed_to():
    audit = opened()
    assert encode(audit.design.setting).keys() == {
        "canaries_sha256",
        "controls_sha256",
        "controls_repeats",
    }
    other = Controls(records=OTHERS, repeats=REPEATS + 1)
    assert opened(controls=other).commitment != audit.commitment
    assert opened(design=audit.design).commitment == audit.commitment
    with pytest.raises(InvalidRunError, match="made for other records: controls_repe"):
        opened(design=audit.design, controls=other)
    with pytest.raises(InvalidRunError, match="made with controls; pass them again"):
        opened(design=audit.design, controls=None)


def test_every_control_needs_a_score():
    with pytest.raises(InvalidRunError, match="29 scores for 30 control records"):
        judged(opened(), canaries=silence(), controls=np.zeros(29))
    with pytest.raises(InvalidRunError, match="1 scores for 0 control records"):
        judged(opened(controls=None), canaries=silence(), controls=[0.0])


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (N - 1, r"1 control records equal a canary.*control 0\)"),
        (N + 7, r"1 control records equal .* another control \(the first is control 7"),
    ],
)
def test_a_control_that_is_there_under_another_name_is_refused(first, message):
    values = torch.cat([torch.tensor([first]), N + 1 + torch.arange(RECORDS - 1)])
    records = TensorDataset(values, torch.zeros(RECORDS))
    with pytest.raises(InvalidRunError, match=message):
        opened(controls=Controls(records=records, repeats=1))


@pytest.mark.parametrize("count", [13, 201])
def test_too_few_controls_and_more_than_tell_anything_are_refused(count):
    records = TensorDataset(torch.arange(count), torch.zeros(count))
    with pytest.raises(InvalidInputError, match=f"from 14 to 200 .*, got {count}"):
        Controls(records=records, repeats=1)


def test_controls_that_are_never_trained_on_are_refused():
    with pytest.raises(InvalidInputError, match="repeats must be a whole number >= 1"):
        Controls(records=OTHERS, repeats=0)


def test_a_perfect_division_of_the_fewest_controls_is_told_apart():
    records = TensorDataset(N + torch.arange(14), torch.zeros(14))
    audit = opened(controls=Controls(records=records, repeats=1))
    lots = 1.0 * control_bits(audit)[:14]
    result = judged(audit, canaries=silence(), controls=lots)
    assert result.verdict == "no violation detected"
