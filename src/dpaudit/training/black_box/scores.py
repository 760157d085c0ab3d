"""Scores that know whose they are: an id for each, and the audit they belong to.

A bare list of scores can meet the coins in the wrong order, or meet those of another
run, and nobody would see it. Here every score carries its canary's id, all of them
carry the commitment of their audit, and neither can be changed afterwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidInputError
from dpaudit.game.design import Commitment

__all__ = ["CanaryScores"]


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CanaryScores:
    """A score for each canary of one audit; rows may be in any order.

    Attributes:
        ids: The canaries, numbered from 0 as in their data set.
        values: How much the model speaks for "included", on any scale.
        commitment: Of the audit that the scores belong to.
        controls: The scores of the audit's control records, in the order of their data
            set; empty without any.

    Example:
        >>> scores = CanaryScores(
        ...     ids=[1, 0],
        ...     values=[0.5, -2.0],
        ...     commitment=Commitment(sha256="0" * 64, run="0" * 64),
        ... )
        >>> scores.ids, scores.values
        (array([1, 0]), array([ 0.5, -2. ]))
    """

    ids: NDArray[np.int64]
    values: NDArray[np.float64]
    commitment: Commitment
    controls: NDArray[np.float64]

    def __init__(
        self,
        *,
        ids: NDArray[np.int64] | Sequence[int],
        values: NDArray[Any] | Sequence[float],
        commitment: Commitment,
        controls: NDArray[Any] | Sequence[float] = (),
    ) -> None:
        object.__setattr__(self, "ids", _ids(ids))
        object.__setattr__(self, "values", _values("values", values))
        object.__setattr__(self, "controls", _values("controls", controls))
        object.__setattr__(self, "commitment", commitment)
        if self.ids.shape != self.values.shape:
            raise InvalidInputError(
                f"every score needs an id, got {len(self.ids)} ids for "
                f"{len(self.values)} values"
            )
        if not isinstance(commitment, Commitment):
            raise InvalidInputError(
                f"commitment must be the audit's commitment, got {commitment!r}"
            )


def _ids(ids: NDArray[np.int64] | Sequence[int]) -> NDArray[np.int64]:
    found = np.asarray(ids)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise InvalidInputError(
            "ids must be a list of whole numbers, the canaries' places in their data "
            f"set, got {found.dtype} of shape {found.shape}"
        )
    if len(np.unique(found)) < len(found):
        raise InvalidInputError(
            "an id appears twice: each canary has one coin and one score"
        )
    return _read_only(found.astype(np.int64))


def _values(name: str, values: NDArray[Any] | Sequence[float]) -> NDArray[np.float64]:
    found = np.asarray(values)
    if found.ndim != 1 or found.dtype.kind not in "fiub":
        raise InvalidInputError(
            f"{name} must be a list of numbers, got {found.dtype} of shape "
            f"{found.shape}"
        )
    if np.any(np.isnan(found)):
        raise InvalidInputError(
            f"{name}[{np.flatnonzero(np.isnan(found))[0]}] is not a number; replace a "
            "missing score by one that does not depend on the coin, such as the median"
        )
    return _read_only(found.astype(np.float64))


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array
