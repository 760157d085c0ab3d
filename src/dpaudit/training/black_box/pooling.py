"""Combine several scores of a canary into one, by a rule learned from held-out records.

A model often gives several numbers for a record: the gain of each token, its loss, its
part in the weights. Their best weights depend on the training, so they are learned in
the run itself, from records like the canaries whose membership is public: a half of
them, drawn by a public seed, is trained on. The canaries' coins are not used, and the
learned rule is a function of the output and of public data: the audit stays valid, and
a poor fit only guesses poorly.
"""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch.utils.data import Dataset, Subset

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.game.learned_log_odds import fit_logistic
from dpaudit.training.black_box.canaries import Record, size

__all__ = ["HeldOut", "pooled_scores"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Records to learn from, half of them trained on; which half is public.

    Attributes:
        records: Pairs (input, target) like the canaries, none of them a canary or in
            the data that is always trained on (``set_aside`` divides one set).
        seed: Public; selects the half.

    Example:
        >>> import torch
        >>> from torch.utils.data import TensorDataset
        >>> held_out = HeldOut(
        ...     records=TensorDataset(torch.eye(6), torch.zeros(6)), seed=0
        ... )
        >>> held_out.trained()
        array([False,  True, False, False,  True,  True])
        >>> len(held_out.included())
        3
    """

    records: Dataset[Record]
    seed: int

    def __post_init__(self) -> None:
        _validate.whole_number("seed", self.seed)
        if size("records", self.records) < 2:
            raise InvalidInputError("there must be two held-out records or more")

    def trained(self) -> NDArray[np.bool_]:
        """Return which of the records are trained on."""
        count = size("records", self.records)
        order = np.random.default_rng(self.seed).permutation(count)
        return np.asarray(order < (count + 1) // 2)

    def included(self) -> Dataset[Record]:
        """Return the records to add to the training set."""
        return Subset(self.records, np.flatnonzero(self.trained()).tolist())


def pooled_scores(
    features: ArrayLike, *, held_out: ArrayLike, trained: ArrayLike
) -> NDArray[np.float64]:
    """Return one score for each canary, by a rule learned from held-out records.

    The rule is a logistic regression, regularised by one imagined record against each
    feature.

    Args:
        features: Features of each canary from the final model, a row each, such as
            ``token_gains``; a missing number (NaN) counts as the mean.
        held_out: The same for the held-out records.
        trained: Which of these were trained on.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> included = np.arange(200) % 2 == 0
        >>> rows = rng.standard_normal((200, 2)) + 2 * included[:, None] * [1, 0]
        >>> canaries = [[2.0, 0.0], [0.0, 2.0]]
        >>> found = pooled_scores(canaries, held_out=rows, trained=included)
        >>> bool(found[0] > 0 > found[1])
        True
    """
    rows, taught = _table("features", features), _table("held_out", held_out)
    known = np.asarray(trained, bool)
    if taught.shape[1] != rows.shape[1] or known.shape != taught.shape[:1]:
        raise InvalidInputError(
            "held-out records need the features that canaries have, and each must be "
            f"known to be trained on or not: got {rows.shape[1]} features of canaries, "
            f"{taught.shape[1]} of held-out records, and {len(known)} of "
            f"{len(taught)} known"
        )
    if known.all() or not known.any():
        raise InvalidInputError(
            "of the held-out records some must be trained on, and some not"
        )
    present = ~np.isnan(taught)
    count = np.maximum(present.sum(0), 1)
    centre = np.where(present, taught, 0.0).sum(0) / count
    away = np.where(present, taught - centre, 0.0)
    scale = np.sqrt((away**2).sum(0) / count)
    scale[scale == 0] = 1.0
    weights = fit_logistic(away / scale, np.where(known, 1.0, -1.0))
    own = np.where(np.isnan(rows), 0.0, rows - centre) / scale
    return np.asarray(own @ weights[:-1] + weights[-1])


def _table(name: str, given: Any) -> NDArray[np.float64]:  # noqa: ANN401
    table = np.asarray(given, np.float64)
    if table.ndim != 2 or np.any(np.isinf(table)):
        raise InvalidInputError(
            f"{name} must be a row of finite numbers for each record, got shape "
            f"{table.shape}"
        )
    return table
