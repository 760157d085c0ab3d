"""Scores of canaries by a language model: token by token, and pooled.

A token's *gain* is the reference's loss less the final model's: how much more likely
training has made it. A record's score is the mean of its tokens' gains, or of its best
few: often only a few tokens of a canary are memorised, and the others add noise. All
are functions of the output and of public data, so any is valid; choose one before
``finish``.
"""

from collections.abc import Iterator
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.training.black_box.scoring import evaluating
from dpaudit.training.language_models.canaries import IGNORED, Tokens

__all__ = [
    "Logits",
    "RecordLoss",
    "best_tokens",
    "record_loss",
    "record_losses",
    "token_gains",
]


@final
class Logits(nn.Module):
    """A language model reduced to its logits.

    The models of transformers and peft return an object, a dict or a tuple that holds
    logits. Padding, if any, must be at the end of rows, where no earlier token sees it.

    Attributes:
        model: The model.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the logits of the next token, at each place of each row."""
        # Explicit, with a row per record, so that Opacus sees one for each record.
        places = torch.arange(ids.shape[1], device=ids.device).expand(len(ids), -1)
        return logits_of(self.model(input_ids=ids, position_ids=places))


def logits_of(output: Any) -> torch.Tensor:  # noqa: ANN401 (what models return)
    """Return the logits in a model's output."""
    found = getattr(output, "logits", output)
    if isinstance(output, dict):
        found = output.get("logits", output)
    elif isinstance(output, tuple):
        found = next((part for part in output if torch.is_tensor(part)), output)
    if torch.is_tensor(found) and found.ndim == 3:
        return found
    raise InvalidInputError(
        "the model must return logits, a row of them for each token of each record; "
        f"got {getattr(found, 'shape', type(found).__name__)}"
    )


def record_losses(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return each record's mean loss over its own labels; a blank record's is 0.

    Suitable for training too: no record's loss depends on the length of another, as it
    does where all tokens of a batch are averaged together.

    Example:
        >>> logits = torch.zeros(2, 3, 4)
        >>> record_losses(logits, torch.tensor([[1, 2, 3], [-100, -100, -100]]))
        tensor([1.3863, 0.0000])
    """
    each, learned = _token_losses(logits, labels)
    return each.sum(1) / learned.sum(1).clamp(min=1)


@final
class RecordLoss(nn.Module):
    """The loss to train with: the mean of ``record_losses``.

    Models and trainers average over all tokens of a batch, so that a record counts for
    more beside short ones: then the bound on one record's change is not the one that
    Opacus assumes. Pass this loss to ``Trainer`` as ``compute_loss_func``; with ghost
    clipping pass it to ``make_private`` as ``criterion``, and its result to
    ``Trainer``.

    Args:
        reduction: ``"mean"`` or ``"sum"`` over records, or ``"none"``: Opacus sets it.

    Example:
        >>> labels = torch.tensor([[1, 2, 3], [1, 2, -100]])
        >>> RecordLoss(reduction="none")(torch.zeros(2, 3, 8), labels)
        tensor([2.0794, 2.0794])
    """

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction

    def forward(
        self,
        outputs: Any,  # noqa: ANN401 (a model's output, or its logits)
        labels: torch.Tensor,
        num_items_in_batch: object = None,
    ) -> torch.Tensor:
        """Return the loss; a record without a token to learn has 0.

        Args:
            outputs: The model's output, or its logits.
            labels: The tokens; -100 where none is to be learned.
            num_items_in_batch: ``Trainer``'s count of tokens, not used.
        """
        del num_items_in_batch
        losses = record_losses(logits_of(outputs), labels)
        match self.reduction:
            case "none":
                return losses
            case "sum":
                return losses.sum()
        return losses.mean()


def record_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the mean of ``record_losses``: the loss to pass to ``audit.score``."""
    return record_losses(logits, labels).mean()


def _token_losses(
    logits: torch.Tensor, labels: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss of each token after the first, and which are learned."""
    next_ones = labels[:, 1:]
    each = functional.cross_entropy(
        logits[:, :-1].transpose(1, 2),
        next_ones,
        ignore_index=IGNORED,
        reduction="none",
    )
    return each, next_ones != IGNORED


def token_gains(
    model: nn.Module,
    canaries: Tokens,
    *,
    reference: nn.Module | None = None,
    batch_size: int = 256,
) -> NDArray[np.float64]:
    """Return how much more likely training made each token of each canary.

    Args:
        model: The final model, from tokens to logits (``Logits``).
        canaries: All canaries, included or not.
        reference: A model that never saw the coins, such as the initial one.
        batch_size: How many records the model sees at once.

    Returns:
        A row for each canary, a column for each token after the first: the reference's
        loss (0 without one) less the model's; NaN where nothing is learned.
    """
    _validate.whole_number("batch_size", batch_size, least=1)
    return np.concatenate([*_gains(model, reference, canaries, batch_size)])


def _gains(
    model: nn.Module, reference: nn.Module | None, canaries: Tokens, size: int
) -> Iterator[NDArray[np.float64]]:
    for first in range(0, len(canaries), size):
        ids = canaries.ids[first : first + size]
        labels = canaries.labels[first : first + size]
        own, learned = _of(model, ids, labels)
        other = 0.0 if reference is None else _of(reference, ids, labels)[0]
        yield np.where(learned, other - own, np.nan)


def _of(
    model: nn.Module, ids: torch.Tensor, labels: torch.Tensor
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    device = next(model.parameters()).device
    with torch.no_grad(), evaluating(model):
        each, learned = _token_losses(model(ids.to(device)).float(), labels.to(device))
    return each.double().cpu().numpy(), learned.cpu().numpy()


def best_tokens(
    gains: NDArray[np.float64], most: int | None = None
) -> NDArray[np.float64]:
    """Return each canary's score: the mean of its tokens' largest gains.

    Args:
        gains: What ``token_gains`` returns.
        most: Number of tokens to average at most; all if left out.

    Example:
        >>> best_tokens(np.array([[0.5, 3.0, 1.0], [2.0, np.nan, np.nan]]), 2)
        array([2., 2.])
    """
    if most is not None:
        _validate.whole_number("most", most, least=1)
    falling = -np.sort(-gains, axis=1)  # tokens that are not learned come last
    return np.asarray(np.nanmean(falling[:, :most], axis=1))
