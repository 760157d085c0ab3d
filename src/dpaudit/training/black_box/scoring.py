"""Scores of canaries by the final model: each record's loss against a reference.

A record that was trained on has a lower loss than it would have had otherwise. That
loss is unknown; a reference estimates it, and the score is the reference's loss less
the model's, higher where "included" is more likely. The reference is the model before
training or one trained on other data (an ``nn.Module``), the same model's mean loss
over all other labels (``OtherLabels``), or nothing.

Any score is valid that depends only on the output and on public data; a better
reference gives more power, and none makes the score invalid, except a model that saw
the coins: trained on the included canaries, it would be a second output, which the
claim for one run does not cover.

Scoring needs no key and may run where no coin is known. A bare list of scores could
then be matched to the coins in the wrong order, or to those of another run, unnoticed.
So in ``CanaryScores`` every score carries its canary's id, all of them carry the
commitment of their audit, and neither can be changed afterwards.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, TypeAlias, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import Dataset, default_collate

from dpaudit import _validate
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.game.design import Commitment
from dpaudit.training.black_box.canaries import Record, as_pair, size

__all__ = [
    "CanaryScores",
    "Loss",
    "OtherLabels",
    "Reference",
    "check_blank",
    "evaluating",
    "score_canaries",
]


_BLANKS_CHECKED: Final = 8  # records whose loss is computed

Loss: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class OtherLabels:
    """The reference is the mean loss of the same model over all other labels.

    Attributes:
        classes: Number of labels; targets are whole numbers below it.
    """

    classes: int

    def __post_init__(self) -> None:
        _validate.whole_number("classes", self.classes, least=2)


Reference: TypeAlias = nn.Module | OtherLabels | None


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CanaryScores:
    """A score for each canary of one audit; rows may be in any order.

    Attributes:
        ids: The canaries, numbered from 0 as in their data set.
        values: Scores, higher where "included" is more likely, on any scale.
        commitment: Of the audit that the scores belong to.
        controls: The scores of the audit's control records, in the order of their data
            set; empty if there are none.

    Example:
        >>> scores = CanaryScores(
        ...     ids=[1, 0],
        ...     values=[0.5, -2.0],
        ...     commitment=Commitment(sha256="0" * 64, run_digest="0" * 64),
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
    array = np.asarray(ids)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidInputError(
            "ids must be a list of whole numbers, the canaries' places in their data "
            f"set, got {array.dtype} of shape {array.shape}"
        )
    if len(np.unique(array)) < len(array):
        raise InvalidInputError(
            "an id appears twice: each canary has one coin and one score"
        )
    return _read_only(array.astype(np.int64))


def _values(name: str, values: NDArray[Any] | Sequence[float]) -> NDArray[np.float64]:
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "fiub":
        raise InvalidInputError(
            f"{name} must be a list of numbers, got {array.dtype} of shape "
            f"{array.shape}"
        )
    if np.any(np.isnan(array)):
        raise InvalidInputError(
            f"{name}[{np.flatnonzero(np.isnan(array))[0]}] is not a number; replace a "
            "missing score by one that does not depend on the coin, such as the median"
        )
    return _read_only(array.astype(np.float64))


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


def score_canaries(
    model: nn.Module,
    canaries: Dataset[Record],
    *,
    loss: Loss,
    reference: Reference,
    commitment: Commitment,
    batch_size: int = 256,
    controls: Dataset[Record] | None = None,
) -> CanaryScores:
    """Score canaries by the loss of the final model against a reference.

    The model is evaluated (dropout off, batch statistics frozen, no gradients), and
    every submodule is returned to its previous mode.

    Args:
        model: The final model; its output is a tensor with a row per record.
        canaries: All canaries, included or not.
        loss: Called with the output and the target of one record at a time, as batches
            of one, so that the mean or the sum over the batch is that record's loss.
        reference: A model that never saw the coins, ``OtherLabels``, or None.
        commitment: Of the audit that the scores are for.
        batch_size: How many records the model sees at once.
        controls: All control records, trained on or not, if the audit has any.

    Raises:
        InvalidRunError: A loss is not finite, or all scores are the same.
    """
    _validate.whole_number("batch_size", batch_size, least=1)
    _check_models(model, reference)

    def scores_of(name: str, records: Dataset[Record]) -> NDArray[np.float64]:
        batches = _batches(name, records, batch_size)
        parts = [_scores(model, reference, loss, batch) for batch in batches]
        _check_finite(name, scores := np.concatenate(parts))
        return scores

    values = scores_of("canaries", canaries)
    _check_different(values)
    return CanaryScores(
        ids=np.arange(len(values)),
        values=values,
        commitment=commitment,
        controls=() if controls is None else scores_of("controls", controls),
    )


def _scores(
    model: nn.Module, reference: Reference, loss: Loss, batch: Record
) -> NDArray[np.float64]:
    """Return the reference's losses less the model's."""
    inputs, targets = batch
    outputs = _outputs(model, inputs)
    own = _losses(loss, outputs, targets)
    match reference:
        case None:
            return -own
        case OtherLabels(classes=classes):
            others = [
                _losses(loss, outputs, _moved(targets, move, classes))
                for move in range(1, classes)
            ]
            return np.asarray(np.mean(others, axis=0) - own)
        case _:
            return _losses(loss, _outputs(reference, inputs), targets) - own


def _losses(
    loss: Loss, outputs: torch.Tensor, targets: torch.Tensor
) -> NDArray[np.float64]:
    targets = targets.to(outputs.device)
    losses = [
        loss(outputs[i : i + 1], targets[i : i + 1]).detach()
        for i in range(len(outputs))
    ]
    if any(each.numel() != 1 for each in losses):
        raise InvalidInputError(
            "loss must return one number for a batch of one record, got shape "
            f"{tuple(losses[0].shape)}; take the mean over the rest of its dimensions"
        )
    return torch.stack([each.reshape(()) for each in losses]).double().cpu().numpy()


def _moved(targets: torch.Tensor, move: int, classes: int) -> torch.Tensor:
    """Return other labels: all targets shifted cyclically by the same number."""
    if targets.is_floating_point() or not (
        0 <= targets.min() <= targets.max() < classes
    ):
        raise InvalidInputError(
            f"OtherLabels(classes={classes}) needs targets that are whole numbers from "
            f"0 to {classes - 1}, got {targets.dtype} from {targets.min().item()} to "
            f"{targets.max().item()}"
        )
    return (targets + move) % classes


def _outputs(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """Return a model's outputs on a batch, in evaluation mode."""
    with torch.no_grad(), evaluating(model):
        outputs = model(_as_the_model(model, inputs))
    if not isinstance(outputs, torch.Tensor) or outputs.shape[:1] != inputs.shape[:1]:
        what = getattr(outputs, "shape", type(outputs).__name__)
        raise InvalidInputError(
            "the model must return a tensor with a row for each of the "
            f"{len(inputs)} records, got {what}; wrap it in a module that does, or "
            "compute scores yourself and hand in CanaryScores(ids=..., values=..., "
            "commitment=audit.commitment)"
        )
    return outputs


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode, and restore every submodule afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _as_the_model(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """Return the inputs on the model's device, floating inputs in its precision."""
    for tensor in chain(model.parameters(), model.buffers()):
        if not inputs.is_floating_point():
            return inputs.to(tensor.device)
        if tensor.is_floating_point():
            return inputs.to(tensor.device, tensor.dtype)
    return inputs


def _batches(name: str, dataset: Dataset[Record], batch_size: int) -> Iterator[Record]:
    """Yield the records in order; no batch depends on a coin."""
    count = size(name, dataset)
    for start in range(0, count, batch_size):
        records = [
            as_pair(name, i, dataset[i])
            for i in range(start, min(start + batch_size, count))
        ]
        inputs, targets = default_collate(records)
        if not isinstance(inputs, torch.Tensor) or not isinstance(
            targets, torch.Tensor
        ):
            raise InvalidInputError(
                f"{name} must be pairs of tensors, arrays or numbers, got a batch of "
                f"{type(inputs).__name__} and {type(targets).__name__}"
            )
        yield inputs, targets


def _check_models(model: nn.Module, reference: Reference) -> None:
    if not isinstance(model, nn.Module):
        raise InvalidInputError(
            f"model must be a torch.nn.Module, got {type(model).__name__}"
        )
    if not isinstance(reference, nn.Module | OtherLabels | None):
        raise InvalidInputError(
            "reference must be a torch.nn.Module, OtherLabels(classes=...) or None, "
            f"got {type(reference).__name__}"
        )
    if reference is model:
        raise InvalidRunError(
            "reference is the model itself, so every score would be zero; keep a copy "
            "of the initial model: reference = copy.deepcopy(model), before training"
        )


def check_blank(model: nn.Module, fillers: Dataset[Record], loss: Loss) -> None:
    """Refuse blank fillers if one of the first has a nonzero loss."""
    inputs, targets = next(_batches("fillers", fillers, _BLANKS_CHECKED))
    losses = _losses(loss, _outputs(model, inputs), targets)
    if np.any(losses != 0):
        raise InvalidRunError(
            f"a blank record must teach nothing, but the loss of one is {losses[0]:g}; "
            "train by a loss that is zero where no token has a label "
            "(dpaudit.training.language_models.record_losses), or leave excluded "
            "canaries out (no fillers)"
        )


def _check_finite(name: str, scores: NDArray[np.float64]) -> None:
    odd = np.flatnonzero(~np.isfinite(scores))
    if len(odd):
        raise InvalidRunError(
            f"the losses of {len(odd)} of {len(scores)} {name} are not finite (the "
            f"first is number {odd[0]}): the training may have diverged. A loss that "
            "is finite by a rule of its own, such as torch.nan_to_num of yours, keeps "
            "the audit valid"
        )


def _check_different(scores: NDArray[np.float64]) -> None:
    if len(scores) > 1 and np.all(scores == scores[0]):
        raise InvalidRunError(
            f"all {len(scores)} scores are {scores[0]:g}, so nothing could be guessed; "
            "was the trained model scored, and is the reference another one?"
        )
