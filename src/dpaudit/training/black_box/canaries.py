"""Canary records: how they are chosen, and the digests that identify them.

Which records are canaries is public and fixed before the run; only whether each was
trained on is secret. Any data set of pairs (input, target) will do. Two functions
choose canaries from existing data, by a public seed:

- ``mislabelled``: copies of records with a wrong label. The originals stay in the data:
  a canary is an additional record. Only memorisation explains a wrong label, so these
  leave a clearer trace than natural records.
- ``set_aside``: records of the data themselves. They are removed from the data, and the
  coins put some of them back. Left in the data, an excluded canary would be trained on
  anyway: the audit would stay valid (two copies or one is a difference of one record)
  but have almost no power.

A *blank* record teaches nothing: its loss is zero whatever the model, as for a text
none of whose tokens has a label. In place of an excluded canary it preserves the number
of records and adds nothing to a sum of gradients.

A data set is identified by the SHA-256 of its records, in order. It is part of the
committed design, so canaries cannot be exchanged after the run, and a data set that
returns a different record at each reading is noticed.
"""

import hashlib
from typing import Any, TypeAlias, cast, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, Subset

from dpaudit import _validate
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.setting import Setting

__all__ = [
    "Blank",
    "Record",
    "as_pair",
    "digests",
    "mislabelled",
    "set_aside",
    "size",
]

Record: TypeAlias = tuple[Any, Any]


def mislabelled(
    dataset: Dataset[Any], *, count: int, classes: int, seed: int
) -> Dataset[Record]:
    """Return copies of records with a wrong label each, chosen by a public seed.

    Args:
        dataset: Pairs of an input and a label from 0 to ``classes - 1``. Training on it
            as well is fine: a canary is an additional record.
        count: Number of canaries; no record is used twice.
        classes: Number of labels.
        seed: Public; selects the records and their wrong labels.

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
        count: Number of canaries.
        seed: Public; selects the records.

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
    """Some records of a data set, each label shifted cyclically by a fixed number."""

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
        # Of the same type as the original, so that both fit into one batch.
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
        raise InvalidRunError(
            f"count={count} canaries cannot be chosen from {records} records; use at "
            "most as many"
        )
    return rng.choice(records, count, replace=False)


@final
class Blank(Dataset[Record]):
    """Fillers that teach nothing, so that replacing a canary amounts to leaving it out.

    You must ensure that such a record has no gradient of its own in training and does
    not change any other record's. ``BlackBoxAudit.score`` checks that its loss is zero.

    Attributes:
        records: Pairs (input, target), one for each canary or one for all.
    """

    def __init__(self, records: Dataset[Record]) -> None:
        self.records = records

    def __len__(self) -> int:
        return size("fillers", self.records)

    def __getitem__(self, index: int) -> Record:
        return self.records[index]


def digests(
    canaries: Dataset[Record],
    fillers: Dataset[Record] | None,
    controls: Dataset[Record] | None = None,
) -> Setting:
    """Return the records' digests; refuse records that should differ and do not.

    A canary must not equal its filler, and no control another record of the audit.
    """
    own = _each("canaries", canaries)
    other = [] if fillers is None else _each("fillers", fillers)
    shown = [] if controls is None else _each("controls", controls)
    if fillers is not None:
        _check_fillers(own, other)
    if controls is not None:
        _check_controls(shown, {*own, *other})
    return Setting(
        canaries_sha256=_together(own),
        fillers_sha256=None if fillers is None else _together(other),
        controls_sha256=None if controls is None else _together(shown),
    )


def _check_fillers(own: list[bytes], other: list[bytes]) -> None:
    if len(other) not in (1, len(own)):
        raise InvalidInputError(
            f"there are {len(other)} fillers for {len(own)} canaries; give one for "
            "each, or a single one for all"
        )
    same = [i for i, digest in enumerate(own) if digest == other[i % len(other)]]
    if same:
        raise InvalidRunError(
            f"{len(same)} canaries equal their filler (the first is canary {same[0]}): "
            "a coin that changes nothing cannot be guessed"
        )


def _check_controls(shown: list[bytes], others: set[bytes]) -> None:
    same = [i for i, digest in enumerate(shown) if digest in others | {*shown[:i]}]
    if same:
        raise InvalidRunError(
            f"{len(same)} control records equal a canary, a filler or another control "
            f"(the first is control {same[0]}): what is left out must not be trained "
            "on under another name. Divide one set by set_aside(...)"
        )


def _digest(name: str, index: int, record: Any) -> bytes:  # noqa: ANN401
    """Return the SHA-256 of a record's values, types and shapes."""
    digest = hashlib.sha256()
    for part in as_pair(name, index, record):
        try:
            tensor = torch.as_tensor(part).detach().cpu().contiguous()
        except (TypeError, ValueError, RuntimeError) as error:
            raise InvalidInputError(
                f"{name}[{index}] must hold tensors, arrays or numbers, got "
                f"{type(part).__name__}; convert it in the data set"
            ) from error
        digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.digest()


def _each(name: str, records: Dataset[Record]) -> list[bytes]:
    return [_digest(name, i, records[i]) for i in range(size(name, records))]


def _together(found: list[bytes]) -> str:
    return hashlib.sha256(b"".join(found)).hexdigest()


def size(name: str, dataset: Dataset[Any]) -> int:
    """Return the number of records in a data set; refuse one without a length."""
    try:
        return len(cast("Any", dataset))
    except TypeError as error:
        raise InvalidInputError(
            f"{name} must have a length and be read by number, got "
            f"{type(dataset).__name__}; load the records into a list first"
        ) from error


def as_pair(name: str, index: int, record: Any) -> Record:  # noqa: ANN401
    """Return a record as a pair; refuse anything else."""
    if not isinstance(record, tuple | list) or len(record) != 2:
        raise InvalidInputError(
            f"{name}[{index}] must be a pair (input, target), got "
            f"{type(record).__name__}"
        )
    return record[0], record[1]
