"""Records as pairs (input, target), and the digests that identify a set of them.

A data set is identified by the SHA-256 of its records, in order. It is part of the
design that is committed to, so canaries cannot be exchanged after the run, and a data
set that gives another record at every reading is noticed.
"""

import hashlib
from typing import Any, TypeAlias, cast

import torch
from torch.utils.data import Dataset

from dpaudit.errors import InvalidInputError, VoidAuditError

__all__ = ["Record", "as_pair", "digests", "size"]

Record: TypeAlias = tuple[Any, Any]


def digests(
    canaries: Dataset[Record],
    fillers: Dataset[Record] | None,
    controls: Dataset[Record] | None = None,
) -> dict[str, str]:
    """Return what identifies the records; refuse those that should differ and do not.

    A canary must not equal its filler, and no control another record of the audit.
    """
    own = _each("canaries", canaries)
    other = [] if fillers is None else _each("fillers", fillers)
    found = {"canaries_sha256": _together(own)}
    if fillers is not None:
        _check_fillers(own, other)
        found["fillers_sha256"] = _together(other)
    if controls is not None:
        shown = _each("controls", controls)
        _check_controls(shown, {*own, *other})
        found["controls_sha256"] = _together(shown)
    return found


def _check_fillers(own: list[bytes], other: list[bytes]) -> None:
    if len(other) not in (1, len(own)):
        raise InvalidInputError(
            f"there are {len(other)} fillers for {len(own)} canaries; give one for "
            "each, or a single one for all"
        )
    same = [i for i, digest in enumerate(own) if digest == other[i % len(other)]]
    if same:
        raise VoidAuditError(
            f"{len(same)} canaries equal their filler (the first is canary {same[0]}): "
            "a coin that changes nothing cannot be guessed"
        )


def _check_controls(shown: list[bytes], others: set[bytes]) -> None:
    same = [i for i, digest in enumerate(shown) if digest in others | {*shown[:i]}]
    if same:
        raise VoidAuditError(
            f"{len(same)} control records equal a canary, a filler or another control "
            f"(the first is control {same[0]}): what is left out must not be trained "
            "on under another name. Divide one set by set_aside(...)"
        )


def size(name: str, dataset: Dataset[Any]) -> int:
    """Return how many records a data set has; refuse one that does not say."""
    try:
        return len(cast("Any", dataset))
    except TypeError as error:
        raise InvalidInputError(
            f"{name} must have a length and be read by number, got "
            f"{type(dataset).__name__}; load the records into a list first"
        ) from error


def as_pair(name: str, index: int, record: Any) -> Record:  # noqa: ANN401
    """Return a record as the pair that it must be."""
    if not isinstance(record, tuple | list) or len(record) != 2:
        raise InvalidInputError(
            f"{name}[{index}] must be a pair (input, target), got "
            f"{type(record).__name__}"
        )
    return record[0], record[1]


def _digest(name: str, index: int, record: Any) -> bytes:  # noqa: ANN401
    """Return the SHA-256 of a record's values, kinds and shapes."""
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
