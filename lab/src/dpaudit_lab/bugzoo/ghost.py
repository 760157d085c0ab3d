"""Ghost clipping whose norms miss a layer or its second use, and how to see it.

Ghost clipping never holds a record's gradient, so no gradient can be overwritten, and
canaries that are added to sums do not run through its norms. Here canaries are
examples, each with a token that no other record has, so that its gradient in the
embedding layer is a row of its own.
"""

from typing import Any, final

import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, TensorDataset

from dpaudit.training.opacus import with_canaries
from dpaudit_lab.bugzoo.honest import CLASSES, Run, Setting

__all__ = [
    "TiedModel",
    "TokenModel",
    "forget_embedding_norm",
    "tied_run",
    "token_run",
]

_WIDTH = 16
_OTHERS = 50  # tokens that real records share
_WORDS, _LENGTH = 500, 8  # of the texts that the tied model is trained on


@final
class TokenModel(nn.Module):
    """A token's embedding, and a linear layer on it.

    Embeddings begin small, so that gradients of the linear layer do.
    """

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, _WIDTH)
        self.head = nn.Linear(_WIDTH, CLASSES, bias=False)
        nn.init.normal_(self.embedding.weight, std=1e-3)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the scores of the classes, for rows of one token each."""
        scores: torch.Tensor = self.head(self.embedding(tokens).mean(dim=1))
        return scores


def token_run(setting: Setting, canaries: int = 0) -> Run:
    """Return a run in ghost mode, with a token of its own for each canary.

    Without canaries, a thousand of its records have one. Randomness is torch's: seed it
    before.
    """
    own, real = canaries or 1000, setting.records
    single = TensorDataset(torch.arange(own)[:, None], torch.arange(own) % CLASSES)
    shared = TensorDataset(
        own + torch.randint(_OTHERS, (real, 1)), torch.randint(CLASSES, (real,))
    )
    data: Dataset[Any] = ConcatDataset([single, shared])
    if canaries:
        data = with_canaries(shared, examples=single)
    run, criterion = _private(
        setting, TokenModel(own + _OTHERS), data, nn.CrossEntropyLoss()
    )

    def step(batch: Any) -> None:  # noqa: ANN401 (what the loader yields)
        tokens, classes = batch
        run.optimizer.zero_grad()
        criterion(run.model(tokens), classes).backward()
        run.optimizer.step()

    run.step = step
    return run


@final
class TiedModel(nn.Module):
    """A small language model whose output layer is its embedding, used as a matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(_WORDS, _WIDTH)
        self.mix = nn.Linear(_WIDTH, _WIDTH)
        nn.init.normal_(self.embedding.weight, std=0.02)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return the scores of the next word, at each place of each text."""
        inside = torch.tanh(self.mix(self.embedding(words)))
        return nn.functional.linear(inside, self.embedding.weight)


@final
class _NextWord(nn.CrossEntropyLoss):
    """The loss of each text: the sum over its words."""

    def forward(self, scores: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        each = nn.functional.cross_entropy(
            scores[:, :-1].transpose(1, 2), words[:, 1:], reduction="none"
        ).sum(dim=1)
        return each if self.reduction == "none" else each.mean()


def tied_run(setting: Setting) -> Run:
    """Return a language model in ghost mode: what Opacus clips by is wrong for it.

    Opacus takes norms in hooks of modules. That the embedding is used again, as a
    matrix, no hook sees, and its second backward pass has the whole gradient.
    """
    words = torch.randint(_WORDS, (setting.records, _LENGTH))
    run, criterion = _private(setting, TiedModel(), TensorDataset(words), _NextWord())

    def step(batch: Any) -> None:  # noqa: ANN401 (what the loader yields)
        (texts,) = batch
        run.optimizer.zero_grad()
        criterion(run.model(texts), texts).backward()
        run.optimizer.step()

    run.step = step
    return run


def _private(
    setting: Setting,
    model: nn.Module,
    data: Any,  # noqa: ANN401 (a data set of torch's)
    loss: nn.Module,
) -> tuple[Run, Any]:
    """Return a run in ghost mode, and the loss to take in it."""
    engine = PrivacyEngine()
    private, optimizer, criterion, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        criterion=loss,
        data_loader=DataLoader(data, batch_size=-(-len(data) // setting.batches)),
        noise_multiplier=setting.noise,
        max_grad_norm=setting.clip,
        grad_sample_mode="ghost",
    )
    run = Run(
        setting=setting,
        model=private,
        optimizer=optimizer,
        loader=loader,
        engine=engine,
    )
    return run, criterion


def forget_embedding_norm(run: Run) -> None:
    """Leave the embedding out of the norms by which ghost clipping clips.

    Opacus keeps a list of the parameters that could be trained when the model was
    wrapped; one that is unfrozen later is not in it.
    """
    model: Any = run.model
    forgotten = model.embedding.weight
    model.trainable_parameters = [
        each for each in model.trainable_parameters if each is not forgotten
    ]
