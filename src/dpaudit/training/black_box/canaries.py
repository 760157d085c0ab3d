"""Records to be canaries, chosen from a public seed.

Which records are canaries is public and fixed before the run; only whether each was
trained on is secret. Two ways to get them from data that one has:

- ``mislabelled``: copies of records with a wrong label. The originals stay where they
  are: a canary is one record more. Nothing but memory explains a wrong label, so these
  are remembered more visibly than natural records.
- ``set_aside``: records of the data themselves. They are taken out of the data, and the
  coins put some of them back. Left in the data, an excluded canary would have been
  trained on all the same: the audit would stay valid (two copies or one is a
  difference of one record) but find next to nothing.

Any other data set of pairs (input, target) will do too.
"""

from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, Subset

from dpaudit import _validate
from dpaudit.errors import InvalidInputError, VoidAuditError
from dpaudit.training.black_box.records import Record, as_pair, size

__all__ = ["mislabelled", "set_aside"]


def mislabelled(
    dataset: Dataset[Any], *, count: int, classes: int, seed: int
) -> Dataset[Record]:
    """Return copies of records with a wrong label each, chosen by a public seed.

    Args:
        dataset: Pairs of an input and a label from 0 to ``classes - 1``. Training on it
            as well is fine: a canary is an additional record.
        count: How many canaries; no record is used twice.
        classes: How many labels there are.
        seed: Public; decides which records and which wrong labels.

    Example:
        >>> from torch.utils.data import TensorDataset
        >>> data = TensorDataset(torch.eye(4), torch.tensor([0, 1, 2, 0]))
        >>> canaries = mislabelled(data, count=4, classes=3, seed=0)
        >>> for pixels, label in canaries:
        ...     print(int(pixels.argmax()), int(label))
        3 1
        2 0
        0 1
        1 0
    """
    _validate.whole_number("classes", classes, least=2)
    rng = np.random.default_rng(seed)
    chosen = _chosen(dataset, count, rng)
    return _Mislabelled(dataset, chosen, rng.integers(1, classes, count), classes)


def set_aside(
    dataset: Dataset[Any], *, count: int, seed: int
) -> tuple[Dataset[Record], Dataset[Record]]:
    """Return canaries taken out of the data by a public seed, and the rest.

    Args:
        dataset: Pairs of an input and a target.
        count: How many canaries.
        seed: Public; decides which records.

    Example:
        >>> from torch.utils.data import TensorDataset
        >>> data = TensorDataset(torch.arange(5), torch.zeros(5))
        >>> canaries, rest = set_aside(data, count=2, seed=0)
        >>> [int(x) for x, _ in canaries], [int(x) for x, _ in rest]
        ([3, 4], [0, 1, 2])
    """
    chosen = _chosen(dataset, count, np.random.default_rng(seed))
    rest = np.setdiff1d(np.arange(size("dataset", dataset)), chosen)
    return Subset(dataset, chosen.tolist()), Subset(dataset, rest.tolist())


@final
class _Mislabelled(Dataset[Record]):
    """Some records of a data set, each label moved on by a fixed number."""

    def __init__(
        self,
        dataset: Dataset[Any],
        chosen: NDArray[np.int64],
        moves: NDArray[np.int64],
        classes: int,
    ) -> None:
        self._dataset, self._classes = dataset, classes
        self._chosen, self._moves = chosen, moves

    def __len__(self) -> int:
        return len(self._chosen)

    def __getitem__(self, index: int) -> Record:
        place = int(self._chosen[index])
        value, label = as_pair("dataset", place, self._dataset[place])
        number = _whole(label)
        if number is None or not 0 <= number < self._classes:
            raise InvalidInputError(
                f"the label of dataset[{place}] must be a whole number from 0 to "
                f"{self._classes - 1} for classes={self._classes}, got {label!r}"
            )
        wrong = (number + int(self._moves[index])) % self._classes
        # Of the same kind as the original, so that both fit into one batch.
        if isinstance(label, torch.Tensor):
            return value, torch.full_like(label, wrong)
        if isinstance(label, np.ndarray):
            return value, np.full_like(label, wrong)
        return value, type(label)(wrong)


def _whole(label: Any) -> int | None:  # noqa: ANN401 (the user's labels)
    """Return a label as a whole number, if it is one."""
    try:
        number = int(label)
        return number if number == float(label) else None
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None


def _chosen(
    dataset: Dataset[Any], count: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    _validate.whole_number("count", count, least=1)
    records = size("dataset", dataset)
    if count > records:
        raise VoidAuditError(
            f"count={count} canaries cannot be chosen from {records} records; use at "
            "most as many"
        )
    return rng.choice(records, count, replace=False)
