"""Canaries made of tokens, and which of their tokens are trained on.

A canary is a row of tokens with labels, one for each place; at ``IGNORED`` nothing is
learned. The canaries are public and fixed before any coin flip.

- ``random_tokens``: tokens drawn uniformly. Only memorisation explains them.
- ``new_tokens``: a text that is the same for all, then a token that belongs to this
  canary alone and that no real record has (Panda, Tang, Nasr, Choquette-Choo and
  Mittal, https://arxiv.org/abs/2503.06808). Where the head (or the embedding) is
  trained, such a token has a row of weights to itself: no other record disturbs it, and
  the final model reveals nearly as much as the sums.
- ``sampled_tokens``: text that the model itself generates at a high temperature, so in
  its own style but unlikely.
- ``written_tokens``: strings of your own, such as records that people worry about.

**Excluded canaries.** Leaving a canary out changes the number of records. To make that
number and all lengths independent of the coins, an excluded canary can be *blank*: the
same tokens with no label (``Tokens.blank``). A blank record adds nothing to a private
sum, if its loss is zero, so this is still the add-remove game.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, final

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.training.black_box import Blank
from dpaudit.training.black_box.canaries import Record

__all__ = [
    "IGNORED",
    "Tokens",
    "new_tokens",
    "random_tokens",
    "sampled_tokens",
    "unseen_tokens",
    "written_tokens",
]

IGNORED: Final = -100  # the label that torch's and transformers' losses ignore


@final
class Tokens(Dataset[Record]):
    """Rows of tokens with their labels, as pairs (ids, labels).

    Attributes:
        ids: A row of tokens for each record.
        labels: For each token itself, or ``IGNORED`` where nothing is to be learned.

    Example:
        >>> canaries = Tokens(torch.tensor([[5, 6, 7], [8, 9, 0]]), padding=0)
        >>> canaries.labels
        tensor([[   5,    6,    7],
                [   8,    9, -100]])
        >>> canaries.filled(7).ids
        tensor([[5, 6, 7, 5, 6, 7, 5],
                [8, 9, 8, 9, 8, 9, 8]])
    """

    def __init__(
        self,
        ids: torch.Tensor,
        labels: torch.Tensor | None = None,
        *,
        padding: int | None = None,
    ) -> None:
        """Store rows of tokens.

        Args:
            ids: Whole numbers, a row for each record.
            labels: Of the same shape; every token is learned if left out.
            padding: The token that pads rows at their end; not learned.
        """
        self.ids = _rows("ids", ids)
        self.labels = self.ids.clone() if labels is None else _rows("labels", labels)
        if self.labels.shape != self.ids.shape:
            raise InvalidInputError(
                f"every token needs a label, got labels {tuple(self.labels.shape)} for "
                f"ids {tuple(self.ids.shape)}"
            )
        self._lengths = torch.full((len(self.ids),), self.ids.shape[1])
        if padding is not None:
            self._lengths = _lengths(self.ids, padding)
            after = torch.arange(self.ids.shape[1]) >= self._lengths[:, None]
            self.labels[after] = IGNORED

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> Record:
        return self.ids[index], self.labels[index]

    def blank(self) -> "Blank":
        """Return fillers for excluded canaries: the same tokens, and no label."""
        nothing = torch.full_like(self.labels, IGNORED)
        return Blank(Tokens(self.ids, nothing))

    def filled(self, length: int) -> "Tokens":
        """Return rows of another length, each filled by repeating its own tokens.

        For packed data: in a row that a canary shared with other texts, a coin would
        change the row instead of adding it or leaving it out.
        """
        _validate.whole_number("length", length, least=1)
        places = torch.arange(length) % self._lengths[:, None]
        return Tokens(self.ids.gather(1, places), self.labels.gather(1, places))

    def some(self, places: Sequence[int]) -> "Tokens":
        """Return some of the records, by their indices."""
        chosen = torch.as_tensor(places)
        tokens = Tokens(self.ids[chosen], self.labels[chosen])
        tokens._lengths = self._lengths[chosen]
        return tokens


def random_tokens(
    count: int, *, length: int, vocabulary: int | Sequence[int], seed: int
) -> Tokens:
    """Return canaries of tokens drawn uniformly.

    Args:
        count: Number of canaries.
        length: Tokens in each.
        vocabulary: Number of tokens, or those to draw from (without special ones).
        seed: Public.

    Example:
        >>> random_tokens(2, length=4, vocabulary=100, seed=0).ids
        tensor([[85, 63, 51, 26],
                [30,  4,  7,  1]])
    """
    _check_size(count, length)
    rng = np.random.default_rng(seed)
    if isinstance(vocabulary, int):
        _validate.whole_number("vocabulary", vocabulary, least=2)
        return Tokens(torch.from_numpy(rng.integers(0, vocabulary, (count, length))))
    return Tokens(torch.from_numpy(rng.choice(np.asarray(vocabulary), (count, length))))


def new_tokens(
    tokens: Sequence[int], *, before: Sequence[int], repeats: int = 1
) -> Tokens:
    """Return canaries that each end in a token of their own.

    Only that token is learned. The text before it is the same for all, so that its
    effect on training reveals nothing about any one canary.

    Args:
        tokens: One for each canary; no real record has any (``unseen_tokens``).
        before: The tokens before it, at least one.
        repeats: How often the token is repeated.

    Example:
        >>> canaries = new_tokens([901, 902], before=[5, 6])
        >>> canaries.ids
        tensor([[  5,   6, 901],
                [  5,   6, 902]])
        >>> canaries.labels
        tensor([[-100, -100,  901],
                [-100, -100,  902]])
    """
    _validate.whole_number("repeats", repeats, least=1)
    if len(before) == 0 or len(set(tokens)) < len(tokens) or set(tokens) & set(before):
        raise InvalidInputError(
            "each canary needs a token of its own, which is not in the text before it, "
            f"and that must have a token at least: got {len(tokens)} tokens, of which "
            f"{len(set(tokens))} differ, and {len(before)} before"
        )
    own = torch.tensor(tokens)[:, None].expand(-1, repeats)
    common = torch.tensor(before).expand(len(own), -1)
    hidden = torch.full_like(common, IGNORED)
    return Tokens(torch.cat([common, own], 1), torch.cat([hidden, own], 1))


def sampled_tokens(
    model: nn.Module,
    count: int,
    *,
    length: int,
    start: int,
    temperature: float = 2.0,
    seed: int = 0,
    batch_size: int = 256,
) -> Tokens:
    """Return canaries that the model generates itself, at a high temperature.

    Args:
        model: The public initial model, from tokens to logits (``Logits``).
        count: Number of canaries.
        length: Tokens in each.
        start: The token that each begins with.
        temperature: Divisor of the logits; 1 for the model's own distribution.
        seed: Public.
        batch_size: How many the model generates at once.
    """
    _check_size(count, length)
    _validate.positive("temperature", temperature)
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for first in range(0, count, batch_size):
        ids = torch.full((min(batch_size, count - first), 1), start)
        while ids.shape[1] < length:
            with torch.no_grad():
                logits = model(ids)[:, -1].float().cpu() / temperature
            token = torch.multinomial(logits.softmax(-1), 1, generator=generator)
            ids = torch.cat([ids, token], 1)
        parts.append(ids)
    return Tokens(torch.cat(parts))


def written_tokens(
    texts: Sequence[str],
    tokenizer: Any,  # noqa: ANN401 (of transformers)
    *,
    length: int,
) -> Tokens:
    """Return canaries from strings of your own, truncated or padded to one length.

    Args:
        texts: A string for each canary.
        tokenizer: Of transformers, with a padding token.
        length: Tokens in each.
    """
    _check_size(len(texts), length)
    padding = tokenizer.pad_token_id
    if padding is None:
        raise InvalidInputError(
            "the tokenizer has no token to fill rows up with; name one: "
            "tokenizer.pad_token = tokenizer.eos_token"
        )
    ids = torch.full((len(texts), length), padding)
    labels = torch.full_like(ids, IGNORED)
    lengths = torch.zeros(len(texts), dtype=torch.long)
    for row, text in enumerate(texts):
        tokens = torch.tensor(tokenizer(text)["input_ids"][:length])
        if len(tokens) < 2:
            raise InvalidInputError(
                f"texts[{row}]={text!r} has fewer than two tokens, so nothing of it is "
                "predicted; write a longer one"
            )
        lengths[row] = len(tokens)
        ids[row, : len(tokens)] = labels[row, : len(tokens)] = tokens
    made = Tokens(ids, labels)
    made._lengths = lengths
    return made


def unseen_tokens(
    texts: Iterable[Sequence[int]], vocabulary: int, *, special: Iterable[int] = ()
) -> list[int]:
    """Return the tokens that no text has, for ``new_tokens``.

    Args:
        texts: Every record that is trained on, and public texts, as tokens.
        vocabulary: Number of tokens.
        special: Tokens with a meaning to programs, which are left out.

    Example:
        >>> unseen_tokens([[0, 3], [3, 4]], 7, special=[6])
        [1, 2, 5]
    """
    seen = np.zeros(vocabulary, bool)
    for text in texts:
        seen[np.asarray(text, np.int64)] = True
    seen[list(special)] = True
    return [int(token) for token in np.flatnonzero(~seen)]


def _check_size(count: int, length: int) -> None:
    _validate.whole_number("count", count, least=1)
    _validate.whole_number("length", length, least=2)


def _rows(name: str, given: Any) -> torch.Tensor:  # noqa: ANN401 (tokens of the user)
    rows = torch.as_tensor(given)
    if rows.ndim != 2 or rows.is_floating_point():
        raise InvalidInputError(
            f"{name} must be rows of whole numbers, one row a record, got "
            f"{rows.dtype} of shape {tuple(rows.shape)}"
        )
    return rows.long().clone()


def _lengths(ids: torch.Tensor, padding: int) -> torch.Tensor:
    """Return the length of each row without the padding at its end."""
    places = torch.arange(1, ids.shape[1] + 1)
    lengths = torch.where(ids != padding, places, 0).max(1).values
    if not bool((lengths > 0).all()):
        raise InvalidInputError("a row of ids has nothing but padding")
    return lengths
