"""Ghost clipping whose norms miss a layer or its second use, and how to see it.

Ghost clipping never holds a record's gradient, so no gradient can be overwritten, and
canaries that are added to sums do not run through its norms. Here canaries are real
examples. Each has a token that no other record has, so its gradient in the embedding
layer is a row of its own. Its coin weighs its loss, by one or by zero, so that an
excluded canary has the zero gradient and no count depends on a coin. The sampler, the
ghost norms and the second backward pass are all Opacus' own.

The guesser follows the training: with the model before each step it computes in which
direction a canary's token would move, and reads the noisy gradient of the token's row
along it.
"""

from dataclasses import replace
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dpaudit.accounting import accountant_curve
from dpaudit.dpsgd.joining import Poisson
from dpaudit.game.coins import Coins, Key
from dpaudit.game.design import Design, ThreatModel
from dpaudit.game.ledger import How, Look, Road
from dpaudit.game.referee import Referee
from dpaudit.game.result import Result
from dpaudit.training.likelihoods import SumsReading
from dpaudit.training.result import conclude_training, guess
from dpaudit_lab.bugzoo.honest import CLASSES, Run, Setting, train

__all__ = [
    "TiedModel",
    "TokenModel",
    "audit_examples",
    "forget_embedding_norm",
    "ghost_run",
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


def ghost_run(setting: Setting, weights: torch.Tensor) -> tuple[Run, Any]:
    """Return a run in ghost mode and its loss, with a canary for each weight.

    Randomness is torch's: seed it before.
    """
    n, real = len(weights), setting.records
    tokens = torch.cat([torch.arange(n), n + torch.randint(_OTHERS, (real,))])
    labels = torch.cat([torch.arange(n) % CLASSES, torch.randint(CLASSES, (real,))])
    data = TensorDataset(
        tokens[:, None], labels, torch.cat([weights.float(), torch.ones(real)])
    )
    run, criterion = _private(
        setting, TokenModel(n + _OTHERS), data, nn.CrossEntropyLoss()
    )

    def step(batch: Any) -> None:  # noqa: ANN401 (what the loader yields)
        rows, classes, counted = batch
        run.optimizer.zero_grad()
        (criterion(run.model(rows), classes) * counted).backward()
        run.optimizer.step()

    run.step = step
    return run, criterion


def token_run(setting: Setting) -> Run:
    """Return a run in ghost mode among whose records no canary is.

    A thousand of them have a token of their own.
    """
    run, _ = ghost_run(setting, torch.ones(1000))
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


def audit_examples(run: Run, *, design: Design, key: Key) -> Result:
    """Train a ghost run whose weights are the key's coins, and judge it."""
    design = replace(
        design,
        threat_model=ThreatModel.ALL_ITERATES,
        setting={**design.setting, "canaries_are": "example records"},
    )
    referee = Referee(design, key)
    reader = _RowReader(run, design.canaries)
    train(run, run.loader)
    reading = reader.detach()
    accountant: Any = run.engine.accountant
    return conclude_training(
        guess(referee, reading.log_likelihood()),
        commitment=referee.commitment,
        claim=accountant_curve(accountant.history),
        reading=reading,
        arrival=None,
        looks=(
            Look(
                road=Road.CLIPPING,
                how=How.AUDITED,
                said="no record with a larger gradient than these was tried",
            ),
        ),
    )


def coin_weights(key: Key, canaries: int) -> torch.Tensor:
    """Return the weights of the canaries' losses. Secret, as the coins are."""
    return torch.from_numpy(Coins(key=key, count=canaries).bits())


@final
class _RowReader:
    """Reads each canary's row along its gradient; knows the model and no coin."""

    def __init__(self, run: Run, canaries: int) -> None:
        self._run, self._canaries = run, canaries
        self._model: Any = run.model
        self.reading = SumsReading(
            coordinates=canaries,
            per_coordinate=1,
            sampling=Poisson(rate=run.setting.rate),
        )
        optimizer = run.optimizer.original_optimizer
        self._hook = optimizer.register_step_pre_hook(self._read)

    def detach(self) -> SumsReading:
        self._hook.remove()
        return self.reading

    def _read(self, *_: object) -> None:
        optimizer, model = self._run.optimizer, self._model
        rows = model.embedding.weight.grad[: self._canaries].detach().double()
        along = (rows * self._directions()).sum(dim=1)
        unit = optimizer.max_grad_norm / optimizer.expected_batch_size
        self.reading.observe(_array(along / unit))

    @torch.no_grad()
    def _directions(self) -> torch.Tensor:
        """Return the unit gradient of each canary's loss in its own row."""
        model = self._model
        head = model.head.weight.double()
        labels = torch.arange(self._canaries) % CLASSES
        scores = model.embedding.weight[: self._canaries].double() @ head.T
        pull = scores.softmax(dim=1) - nn.functional.one_hot(labels, CLASSES)
        return nn.functional.normalize(pull @ head, dim=1)


def _array(values: torch.Tensor) -> NDArray[np.float64]:
    return np.asarray(values.numpy(), np.float64)
