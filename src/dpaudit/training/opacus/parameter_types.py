"""What kind of module a parameter belongs to, in words that a ledger can use.

A fine-tuning trains adapters, and perhaps the embedding and the head. Each has its
canaries, as a fault may be in one kind only: a head that shares its weight with the
embedding, an adapter that is left out of the clipping.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import torch
from torch import nn

from dpaudit.training.opacus.isolated_step import Model, network

__all__ = ["OTHER", "parameter_types_of"]

OTHER: Final = "other layers"
_ADAPTERS, _EMBEDDINGS, _HEADS = "LoRA matrices", "embeddings", "heads"
_TIED: Final = "embeddings that are heads too"
_HEAD_NAMES: Final = {"lm_head", "score", "classifier"}  # as transformers calls them


def parameter_types_of(
    model: Model | None, parameters: Sequence[torch.nn.Parameter]
) -> list[str]:
    """Return the kind of each parameter; a model that is not given has no kinds."""
    found: defaultdict[int, set[str]] = defaultdict(set)
    if model is not None:
        for name, module in network(model).named_modules(remove_duplicate=False):
            for parameter in module._parameters.values():
                found[id(parameter)].add(_kind(name, module))
    return [_one(found[id(parameter)]) for parameter in parameters]


def _kind(name: str, module: nn.Module) -> str:
    parts = name.split(".")
    if any(part.startswith("lora_") for part in parts):
        return _ADAPTERS
    if _HEAD_NAMES.intersection(parts):
        return _HEADS
    return _EMBEDDINGS if isinstance(module, nn.Embedding) else OTHER


def _one(kinds: set[str]) -> str:
    if kinds == {_EMBEDDINGS, _HEADS}:
        return _TIED
    return kinds.pop() if len(kinds) == 1 else OTHER
