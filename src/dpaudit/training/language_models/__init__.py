"""Canaries made of tokens, for language models; needs torch.

Pass them to ``dpaudit.training.black_box.BlackBoxAudit``, which draws which of them are
trained on and audits the final model's scores of them.
"""

from dpaudit.errors import MissingExtraError

try:
    import torch  # noqa: F401
except ImportError as error:
    raise MissingExtraError.of(
        "auditing a model of language needs torch", "opacus"
    ) from error

from dpaudit.training.language_models.canaries import (
    Tokens,
    new_tokens,
    random_tokens,
    sampled_tokens,
    unseen_tokens,
    written_tokens,
)
from dpaudit.training.language_models.gradients import (
    least_alike,
    record_gradients,
    weight_scores,
)
from dpaudit.training.language_models.inserting import insert, rows
from dpaudit.training.language_models.scoring import (
    Logits,
    RecordLoss,
    best_tokens,
    record_loss,
    record_losses,
    token_gains,
)

__all__ = [
    "Logits",
    "RecordLoss",
    "Tokens",
    "best_tokens",
    "insert",
    "least_alike",
    "new_tokens",
    "random_tokens",
    "record_gradients",
    "record_loss",
    "record_losses",
    "rows",
    "sampled_tokens",
    "token_gains",
    "unseen_tokens",
    "weight_scores",
    "written_tokens",
]
