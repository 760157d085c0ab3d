"""Audits of any torch training from its final model; needs torch."""

from dpaudit.errors import MissingExtraError

try:
    import torch  # noqa: F401
except ImportError as error:
    raise MissingExtraError.of(
        "auditing a torch model needs torch", "opacus"
    ) from error

from dpaudit.training.black_box.audit import BlackBoxAudit
from dpaudit.training.black_box.canaries import Blank, mislabelled, set_aside
from dpaudit.training.black_box.controls import Controls
from dpaudit.training.black_box.guesses import CanaryGuess
from dpaudit.training.black_box.pooling import HeldOut, pooled_scores
from dpaudit.training.black_box.scoring import CanaryScores, OtherLabels, score_canaries

__all__ = [
    "BlackBoxAudit",
    "Blank",
    "CanaryGuess",
    "CanaryScores",
    "Controls",
    "HeldOut",
    "OtherLabels",
    "mislabelled",
    "pooled_scores",
    "score_canaries",
    "set_aside",
]
