"""Canaries among real records: what a loader shows does not depend on any coin."""

import datasets
import pytest
import torch
from opacus.data_loader import DPDataLoader
from torch.utils.data import DataLoader, TensorDataset
from transformers import DataCollatorForSeq2Seq, PreTrainedTokenizerFast
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from dpaudit import ApproxDP, Coins, Design, OneRun
from dpaudit.errors import InvalidInputError
from dpaudit.testing import fixed_key
from dpaudit.training.black_box import BlackBoxAudit
from dpaudit.training.language_models import (
    Tokens,
    insert,
    random_tokens,
    rows,
    written_tokens,
)

torch.set_num_threads(1)
CLAIM = ApproxDP(epsilon=1.0, delta=1e-5)
KEYS = [fixed_key(bytes([number]) * 32) for number in range(20)]
TEXTS = [[5] * length for length in (3, 9, 4, 4, 7, 2, 8)]


class Letters:
    pad_token_id = 0

    def __call__(self, text):
        return {"input_ids": [ord(letter) - 96 for letter in text]}


def audit_of(canaries, key, *, blank=True):
    design = Design(canaries=len(canaries), rules=OneRun(guesses=4), claim=CLAIM)
    fillers = canaries.blank() if blank else None
    return BlackBoxAudit(canaries, design=design, key=key, fillers=fillers)


def table():
    return datasets.Dataset.from_list(
        [
            {"input_ids": text, "attention_mask": [1] * len(text), "labels": text}
            for text in TEXTS
        ]
    )


def strings():
    words = ["ab" * (1 + number % 4) + chr(97 + number) for number in range(24)]
    return written_tokens(words, Letters(), length=8)


def shown(data, collate):
    """All that sizes tell: of each batch its shape, its tokens, and each row's."""
    loader = DPDataLoader.from_data_loader(
        DataLoader(data, batch_size=6, collate_fn=collate),
        generator=torch.Generator().manual_seed(0),
    )
    found = []
    for batch in loader:
        ids, mask = batch["input_ids"], batch["attention_mask"]
        found.append((tuple(ids.shape), int(mask.sum()), mask.sum(1).tolist()))
    return found


def trl_padding(batch):
    return DataCollatorForLanguageModeling(pad_token_id=0)(batch)


@pytest.mark.parametrize("form", ["padded", "packed"])
def test_sizes_lengths_and_tokens_are_the_same_whatever_the_coins(form):
    canaries = strings() if form == "padded" else strings().filled(16)
    seen = {
        str(shown(insert(table(), audit_of(canaries, key).included()), trl_padding))
        for key in KEYS
    }
    assert len({Coins(key=key, count=24).bits().tobytes() for key in KEYS}) == 20
    assert len(seen) == 1


def test_canaries_that_are_left_out_would_show_in_them():
    """So the test above can fail."""
    seen = {
        str(
            shown(
                insert(table(), audit_of(strings(), key, blank=False).included()),
                trl_padding,
            )
        )
        for key in KEYS
    }
    assert len(seen) > 5


def test_transformers_own_padding_shows_no_more():
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=_tokenizer(), pad_token="<pad>"
    )
    collate = DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=-100)
    seen = {
        str(shown(insert(table(), audit_of(strings(), key).included()), collate))
        for key in KEYS[:5]
    }
    assert len(seen) == 1


def _tokenizer():
    import tokenizers  # noqa: PLC0415

    return tokenizers.Tokenizer(tokenizers.models.WordLevel({"<pad>": 0}, "<pad>"))


def test_labels_reach_the_batch_as_they_were():
    audit = audit_of(strings(), KEYS[0])
    bits = Coins(key=KEYS[0], count=24).bits()
    together = insert(table(), audit.included())
    assert len(together) == len(TEXTS) + 24
    assert together[0]["labels"] == TEXTS[0]
    for bit, canary in zip(bits, together.select(range(len(TEXTS), 31)), strict=True):
        learned = [label for label in canary["labels"] if label != -100]
        assert bool(learned) == bool(bit)


def test_pairs_of_tensors_are_added_to_pairs_of_tensors():
    canaries = random_tokens(24, length=5, vocabulary=9, seed=0)
    real = TensorDataset(torch.ones(3, 5).long(), torch.ones(3, 5).long())
    together = insert(real, audit_of(canaries, KEYS[0]).included())
    assert len(together) == 27
    assert torch.equal(together[3][0], canaries.ids[0])


def test_a_table_without_labels_is_refused():
    """Trainers would make labels of all tokens, and blanks would teach."""
    plain = table().remove_columns("labels")
    with pytest.raises(InvalidInputError, match="input_ids and labels"):
        insert(plain, audit_of(strings(), KEYS[0]).included())


def test_columns_that_canaries_do_not_have_are_refused_by_name():
    more = table().add_column("topic", [1] * len(TEXTS))
    with pytest.raises(InvalidInputError, match="have no topic"):
        insert(more, audit_of(strings(), KEYS[0]).included())


def test_rows_are_plain_lists():
    (row,) = rows(Tokens(torch.tensor([[4, 5]]), torch.tensor([[-100, 5]])))
    assert row == {"input_ids": [4, 5], "attention_mask": [1, 1], "labels": [-100, 5]}
