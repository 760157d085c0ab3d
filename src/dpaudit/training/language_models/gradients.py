"""Gradients of canaries at the public initial model: selection and scores.

While weights move little, a record that was trained on moved them against its clipped
gradient at the initial model. So the change of the weights, which can be read from the
final model, is a sum of the gradients of included canaries, those of other records and
noise, and each canary's part in it can be estimated.

- ``record_gradients``: the clipped gradient of each record at the initial model.
- ``least_alike``: of many candidates those whose gradients the others explain least, so
  that none is mistaken for another. Chosen before any coin flip, from public data.
- ``weight_scores``: each canary's part in the change of the weights, by least squares
  over all of them at once, so that similar ones are separated.

For choosing canaries by the initial model see Boglioni, Liu, Ilyas and Wu,
https://arxiv.org/abs/2507.15836, who optimise the records themselves.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.training.black_box.scoring import evaluating
from dpaudit.training.language_models.canaries import Tokens
from dpaudit.training.language_models.scoring import record_losses

__all__ = ["least_alike", "record_gradients", "weight_scores"]


def record_gradients(
    model: nn.Module,
    records: Tokens,
    *,
    clip: float,
    losses: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = record_losses,
) -> NDArray[np.float32]:
    """Return the clipped gradient of each record, a row each.

    Args:
        model: The initial model, from tokens to logits, with the parameters that will
            be trained, and no others, requiring gradients.
        records: Canaries, or candidates.
        clip: The clipping norm used in training.
        losses: The loss of each record, as in training.
    """
    _validate.positive("clip", clip)
    trained = trained_parameters(model)
    gradients = np.empty((len(records), sum(p.numel() for p in trained)), np.float32)
    with evaluating(model):
        for row in range(len(records)):
            ids, labels = records.ids[row : row + 1], records.labels[row : row + 1]
            device = trained[0].device
            loss = losses(model(ids.to(device)), labels.to(device)).sum()
            parts = torch.autograd.grad(loss, trained)
            gradient = torch.cat([part.reshape(-1) for part in parts]).float()
            gradient *= min(1.0, clip / max(float(gradient.norm()), 1e-12))
            gradients[row] = gradient.cpu().numpy()
    return gradients


def trained_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that are trained, in the model's order."""
    trained = [each for each in model.parameters() if each.requires_grad]
    if not trained:
        raise InvalidInputError(
            "no parameter of the model is trained; freeze what stays as it is, and "
            "nothing else: p.requires_grad_(False)"
        )
    return trained


def least_alike(
    gradients: NDArray[np.float32],
    count: int,
    *,
    besides: NDArray[np.float32] | None = None,
) -> list[int]:
    """Return the candidates whose gradients the others explain least, best first.

    Each next one has the largest part that neither those before it nor public records
    explain (Gram-Schmidt with the largest remainder first).

    Args:
        gradients: Of the candidates, a row each.
        count: Number of candidates to choose.
        besides: Gradients of public records like the real ones, to differ from too.

    Example:
        >>> rows = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 0.5]], np.float32)
        >>> least_alike(rows, 2)
        [0, 2]
    """
    _validate.whole_number("count", count, least=1)
    if count > len(gradients):
        raise InvalidInputError(
            f"count={count} cannot be chosen from {len(gradients)} candidates"
        )
    rest = _without(np.array(gradients, np.float32), besides)
    left = np.einsum("ij,ij->i", rest, rest).astype(np.float64)
    chosen: list[int] = []
    for _ in range(count):
        best = int(np.argmax(left))
        chosen.append(best)
        size = float(np.sqrt(np.einsum("j,j->", rest[best], rest[best])))
        if size > 0:
            direction = rest[best] / size
            along = rest @ direction
            rest -= np.outer(along, direction)
            left -= along.astype(np.float64) ** 2
        left[chosen] = -np.inf
    return chosen


def weight_scores(
    before: Sequence[torch.Tensor],
    after: Sequence[torch.Tensor],
    gradients: NDArray[np.float32],
    *,
    besides: NDArray[np.float32] | None = None,
    ridge: float = 4.0,
) -> NDArray[np.float64]:
    """Return each canary's estimated part in the change of the weights.

    Args:
        before: The trained parameters of the initial model.
        after: Those of the final model, in the same order.
        gradients: Of all canaries at the initial model (``record_gradients``).
        besides: Gradients of public records like the real ones; the part of the change
            that they explain is left out.
        ridge: The ridge penalty, over the mean squared norm of a gradient; best is four
            times the squared noise multiplier, over the number of steps that a record
            joins.
    """
    _validate.positive("ridge", ridge)
    change = np.concatenate(
        [
            (old.detach() - new.detach()).double().cpu().reshape(-1).numpy()
            for old, new in zip(before, after, strict=True)
        ]
    )
    if change.shape != gradients.shape[1:]:
        raise InvalidInputError(
            f"gradients are about {gradients.shape[1]} parameters, but {len(change)} "
            "were given before and after training"
        )
    parts = _without(gradients, besides)
    products = np.asarray(parts @ parts.T, np.float64)
    along = np.asarray(parts @ change.astype(np.float32), np.float64)
    held = ridge * float(np.einsum("ij,ij->", gradients, gradients)) / len(gradients)
    return np.asarray(np.linalg.solve(products + held * np.eye(len(products)), along))


def _without(
    gradients: NDArray[np.float32], besides: NDArray[np.float32] | None
) -> NDArray[np.float32]:
    """Return the part of each row that ``besides`` does not explain."""
    if besides is None:
        return gradients
    basis, _ = np.linalg.qr(np.asarray(besides, np.float32).T)
    return np.asarray(gradients - (gradients @ basis) @ basis.T, np.float32)
