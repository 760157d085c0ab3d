"""Canaries of tokens: what they are, and what their blanks and packed forms keep."""

import numpy as np
import pytest
import torch
from torch import nn

from dpaudit import ApproxDP, Coins, Design, OneRun
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.privacy.guarantees import Adjacency
from dpaudit.testing import fixed_key
from dpaudit.training.black_box import BlackBoxAudit, Blank
from dpaudit.training.language_models import (
    Tokens,
    new_tokens,
    random_tokens,
    record_loss,
    sampled_tokens,
    unseen_tokens,
    written_tokens,
)

torch.set_num_threads(1)
KEY = fixed_key(bytes(range(32)))
CLAIM = ApproxDP(epsilon=1.0, delta=1e-5)


def audit_of(canaries, fillers, claim=CLAIM):
    design = Design(canaries=len(canaries), rules=OneRun(guesses=4), claim=claim)
    return BlackBoxAudit(canaries, design=design, key=KEY, fillers=fillers)


class Bigrams(nn.Module):
    """After token a comes token a + 1, almost surely."""

    def __init__(self, words=7):
        super().__init__()
        self.table = nn.Parameter(20 * torch.roll(torch.eye(words), 1, dims=1))

    def forward(self, ids):
        return self.table[ids]


def test_random_tokens_are_drawn_evenly_from_the_words_given():
    words = [3, 5, 8, 13]
    found = random_tokens(1000, length=10, vocabulary=words, seed=0)
    counts = [int((found.ids == word).sum()) for word in words]
    assert sum(counts) == 10_000
    # Each is binomial(10,000, 1/4), sd 43: beyond 6 sd by chance in 8e-9 of seeds.
    assert max(abs(count - 2500) for count in counts) < 260
    assert torch.equal(found.labels, found.ids)


def test_the_seed_decides():
    one, same, other = (
        random_tokens(5, length=6, vocabulary=1000, seed=seed).ids for seed in (1, 1, 2)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_a_new_token_is_learned_alone_and_belongs_to_one_canary():
    found = new_tokens([90, 91, 92], before=[1, 2], repeats=2)
    assert found.ids.tolist() == [[1, 2, n, n] for n in (90, 91, 92)]
    assert found.labels.tolist() == [[-100, -100, n, n] for n in (90, 91, 92)]


@pytest.mark.parametrize(
    ("tokens", "before"), [([4, 4], [1]), ([4, 5], [4]), ([4, 5], [])]
)
def test_tokens_that_are_shared_are_refused(tokens, before):
    with pytest.raises(InvalidInputError, match="a token of its own"):
        new_tokens(tokens, before=before)


def test_unseen_tokens_are_in_no_text():
    texts = [np.array([1, 2]), torch.tensor([2, 6])]
    assert unseen_tokens(texts, 8, special=[0]) == [3, 4, 5, 7]


def test_at_a_low_temperature_the_model_says_what_it_thinks_likely():
    said = sampled_tokens(Bigrams(), 30, length=5, start=2, temperature=0.5, seed=0)
    assert torch.equal(said.ids, torch.tensor([2, 3, 4, 5, 6]).repeat(30, 1))
    wild = sampled_tokens(
        Bigrams(), 30, length=5, start=2, temperature=1000.0, seed=0, batch_size=7
    )
    assert len(wild) == 30
    assert len({tuple(row) for row in wild.ids.tolist()}) > 20


class Letters:
    """A tokenizer that numbers letters."""

    pad_token_id = 0

    def __call__(self, text):
        return {"input_ids": [ord(letter) - 96 for letter in text]}


def test_strings_are_cut_or_filled_up_and_padding_is_not_learned():
    found = written_tokens(["abc", "abcdef"], Letters(), length=4)
    assert found.ids.tolist() == [[1, 2, 3, 0], [1, 2, 3, 4]]
    assert found.labels.tolist() == [[1, 2, 3, -100], [1, 2, 3, 4]]
    with pytest.raises(InvalidInputError, match="fewer than two tokens"):
        written_tokens(["a"], Letters(), length=4)


def test_a_tokenizer_without_padding_is_refused_with_what_to_do():
    tokenizer = Letters()
    tokenizer.pad_token_id = None
    with pytest.raises(InvalidInputError, match=r"pad_token = tokenizer\.eos_token"):
        written_tokens(["ab"], tokenizer, length=4)


def test_packed_a_canary_fills_its_row_by_itself():
    found = written_tokens(["abc", "abcdef"], Letters(), length=4).filled(7)
    assert found.ids.tolist() == [[1, 2, 3, 1, 2, 3, 1], [1, 2, 3, 4, 1, 2, 3]]
    assert torch.equal(found.ids, found.labels)


def test_some_keep_their_lengths():
    found = written_tokens(["ab", "abc"], Letters(), length=4).some([1]).filled(4)
    assert found.ids.tolist() == [[1, 2, 3, 1]]


def test_an_excluded_canary_is_blank_and_everything_else_the_same():
    canaries = random_tokens(40, length=6, vocabulary=50, seed=0)
    audit = audit_of(canaries, canaries.blank())
    included = audit.included()
    bits = Coins(key=KEY, count=40).bits()
    assert len(included) == 40
    for number, bit in enumerate(bits):
        ids, labels = included[number]
        assert torch.equal(ids, canaries.ids[number])
        learned = (labels != -100).sum()
        assert learned == (6 if bit else 0)


def test_blanks_play_the_add_remove_game_and_other_fillers_do_not():
    canaries = random_tokens(40, length=6, vocabulary=50, seed=0)
    other = random_tokens(40, length=6, vocabulary=50, seed=1)
    replaced = ApproxDP(epsilon=1.0, delta=1e-5, adjacency=Adjacency.REPLACE_ONE)
    audit_of(canaries, canaries.blank())
    audit_of(canaries, other, replaced)
    with pytest.raises(
        InvalidRunError, match="canary is blank, which tests add-remove"
    ):
        audit_of(canaries, canaries.blank(), replaced)
    with pytest.raises(InvalidRunError, match="replaced by a filler"):
        audit_of(canaries, other)


def test_the_verdict_says_what_is_believed_of_blanks():
    canaries = random_tokens(40, length=6, vocabulary=7, seed=0)
    audit = audit_of(canaries, canaries.blank())
    result = audit.finish(audit.score(Bigrams(), loss=record_loss))
    assert any("blank record" in each for each in result.not_exercised)


def test_a_blank_that_has_a_loss_is_refused():
    canaries = random_tokens(40, length=6, vocabulary=7, seed=0)
    audit = audit_of(canaries, Blank(Tokens(canaries.ids[:, :], canaries.ids.flip(1))))
    with pytest.raises(InvalidRunError, match="must teach nothing"):
        audit.score(Bigrams(), loss=record_loss)


def test_a_mean_over_no_token_is_refused_as_it_is_no_number():
    canaries = random_tokens(40, length=6, vocabulary=7, seed=0)
    audit = audit_of(canaries, canaries.blank())

    def over_tokens(logits, labels):
        return nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
        )

    with pytest.raises(InvalidRunError, match="must teach nothing"):
        audit.score(Bigrams(), loss=over_tokens)


@pytest.mark.parametrize("ids", [torch.zeros(3), torch.zeros(2, 3, dtype=torch.float)])
def test_what_is_no_row_of_tokens_is_refused(ids):
    with pytest.raises(InvalidInputError, match="rows of whole numbers"):
        Tokens(ids)
