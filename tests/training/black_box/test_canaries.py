"""Canaries: wrong labels that are wrong, records taken out that are out."""

import numpy as np
import pytest
import torch
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    IterableDataset,
    TensorDataset,
    default_collate,
)

from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.training.black_box import mislabelled, set_aside
from dpaudit.training.black_box.canaries import digests

N, CLASSES = 300, 4
LABELS = np.arange(N) % CLASSES
DATA = TensorDataset(torch.arange(N, dtype=torch.float32), torch.tensor(LABELS))


def everything(dataset):
    return [(int(x), int(y)) for x, y in (dataset[i] for i in range(len(dataset)))]


def test_every_label_is_wrong_and_every_record_is_used_once():
    found = everything(mislabelled(DATA, count=N, classes=CLASSES, seed=3))
    assert sorted(x for x, _ in found) == list(range(N))
    assert all(y != LABELS[x] and 0 <= y < CLASSES for x, y in found)


def test_every_wrong_label_occurs():
    found = everything(mislabelled(DATA, count=N, classes=CLASSES, seed=3))
    moves = [(y - LABELS[x]) % CLASSES for x, y in found]
    assert set(moves) == {1, 2, 3}


def test_the_same_seed_chooses_the_same_and_another_others():
    one, again, other = (
        everything(mislabelled(DATA, count=50, classes=CLASSES, seed=seed))
        for seed in (1, 1, 2)
    )
    assert one == again
    assert one != other


@pytest.mark.parametrize("kind", [int, float, np.int64, torch.tensor])
def test_labels_stay_of_their_kind_and_fit_into_one_batch(kind):
    data = [(torch.zeros(2), kind(i % 2)) for i in range(6)]
    canaries = mislabelled(data, count=6, classes=2, seed=0)
    assert type(canaries[0][1]) is type(data[0][1])
    both = ConcatDataset([data, canaries])
    _, labels = next(iter(DataLoader(both, batch_size=12)))
    assert labels.dtype == default_collate([kind(1)]).dtype
    assert sorted(labels.tolist()) == [0] * 6 + [1] * 6


def test_records_set_aside_are_not_in_the_rest():
    canaries, rest = set_aside(DATA, count=120, seed=5)
    inside, outside = ({x for x, _ in everything(part)} for part in (canaries, rest))
    assert len(inside) == 120
    assert inside | outside == set(range(N))
    assert not inside & outside


class Stream(IterableDataset):
    def __iter__(self):
        return iter([(torch.zeros(1), 0)])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: mislabelled(DATA, count=N + 1, classes=CLASSES, seed=0),
            InvalidRunError,
            "count=301 canaries cannot be chosen from 300 records",
        ),
        (
            lambda: mislabelled(DATA, count=0, classes=CLASSES, seed=0),
            InvalidInputError,
            "count must be a whole number >= 1",
        ),
        (
            lambda: mislabelled(DATA, count=5, classes=1, seed=0),
            InvalidInputError,
            "classes must be a whole number >= 2",
        ),
        (
            lambda: everything(mislabelled(DATA, count=N, classes=3, seed=0)),
            InvalidInputError,
            "whole number from 0 to 2 for classes=3, got tensor",
        ),
        (
            lambda: mislabelled([(0.0, 0.5)], count=1, classes=2, seed=0)[0],
            InvalidInputError,
            "got 0.5",
        ),
        (
            lambda: mislabelled([0.0], count=1, classes=2, seed=0)[0],
            InvalidInputError,
            r"dataset\[0\] must be a pair \(input, target\), got float",
        ),
        (
            lambda: set_aside(Stream(), count=1, seed=0),
            InvalidInputError,
            "must have a length and be read by number, got Stream",
        ),
    ],
)
def test_what_cannot_be_chosen_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_digest_tells_records_apart_by_value_kind_shape_and_order():
    zero, one = torch.zeros(4), torch.ones(4)
    sets = [
        [(zero, 0), (one, 0)],
        [(one, 0), (zero, 0)],
        [(zero, 0), (one, 1)],
        [(zero.double(), 0), (one, 0)],
        [(zero.bfloat16(), 0), (one, 0)],
        [(zero.reshape(2, 2), 0), (one, 0)],
        [(zero.bool(), 0), (one, 0)],
        [(zero, 0)],
    ]
    found = {digests(records, None).canaries_sha256 for records in sets}
    assert len(found) == len(sets)


def test_a_digest_is_of_values_wherever_they_are_stored():
    strided = torch.arange(8.0).reshape(4, 2)[:, 0]
    assert digests([(strided, np.int64(1))], None) == digests(
        [(np.array([0, 2, 4, 6], np.float32), 1)], None
    )


@pytest.mark.parametrize("part", ["a text", {"ids": torch.zeros(2)}, None])
def test_records_without_numbers_are_refused(part):
    with pytest.raises(InvalidInputError, match=r"canaries\[0\] must hold tensors"):
        digests([(part, 0)], None)
