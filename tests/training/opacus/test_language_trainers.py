"""Trainer and TRL's SFTTrainer fine-tune adapters with Opacus, and are audited."""

import copy
from functools import cache

import pytest
import tokenizers
import torch
from datasets import Dataset
from datasets.utils.logging import disable_progress_bar
from language_runs import (
    LENGTH,
    WORDS,
    llama,
    longest,
    private_language_model,
    sentences,
    token_losses,
    with_lora,
)
from private_runs import UNPROBED, attach
from transformers import (
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from trl import SFTConfig, SFTTrainer

from dpaudit.errors import InvalidInputError
from dpaudit.game.text.findings import fault_parts
from dpaudit.training.language_models import RecordLoss
from dpaudit.training.opacus.huggingface import TrainerAuditCallback, step_of

EPOCHS = 4  # of ten steps
SEED = 7

# Trainers remark on what they do not find, and on themselves.
pytestmark = [pytest.mark.nightly, pytest.mark.filterwarnings("ignore")]
disable_progress_bar()


@cache
def tokenizer():
    words = {"<pad>": 0, "<end>": 1} | {f"w{k}": k for k in range(2, WORDS)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<pad>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="<pad>",
        eos_token="<end>",
        unk_token="<pad>",
    )


def plain_trainer(model, options, callbacks):
    """A Trainer, the records and what collates them."""
    trainer = Trainer(
        model=model,
        args=TrainingArguments(**options),
        compute_loss_func=RecordLoss(),
        callbacks=callbacks,
    )
    return trainer, sentences(), longest


def sft_trainer(model, options, callbacks):
    """TRL's, which prepares the records itself, from text."""
    texts = [" ".join(f"w{k}" for k in each["input_ids"]) for each in sentences()]
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(
            **options, max_length=LENGTH, bf16=False, gradient_checkpointing=False
        ),
        train_dataset=Dataset.from_dict({"text": texts}),
        processing_class=tokenizer(),
        compute_loss_func=RecordLoss(),
        callbacks=callbacks,
    )
    return trainer, trainer.train_dataset, trainer.data_collator


class StopAfter(TrainerCallback):
    """Breaks a training off, as a deadline would."""

    def __init__(self, epochs):
        self._epochs = epochs

    def on_epoch_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.epoch >= self._epochs


class Session:
    """A user's script up to ``trainer.train()``."""

    def __init__(self, kind, folder, *, mode="hooks", epochs=EPOCHS, **options):
        self.callback = TrainerAuditCallback(self._attach)
        self.found = None
        told = {
            "output_dir": str(folder),
            "num_train_epochs": EPOCHS,
            "learning_rate": 0.01,
            "lr_scheduler_type": "constant",
            "max_grad_norm": 0.0,
            "ignore_data_skip": True,
            "save_strategy": "epoch",
            "report_to": [],
            "logging_strategy": "no",
            "disable_tqdm": True,
            "use_cpu": True,
        } | options
        torch.manual_seed(0)
        self.trainer, records, collate = kind(
            with_lora(llama()), told, [StopAfter(epochs), self.callback]
        )
        self.run = private_language_model(
            lambda: self.trainer.model,
            mode=mode,
            records=records,
            collate=collate,
            criterion=RecordLoss(),
            wrap_model=False,
        )
        self.trainer.optimizer = self.run.optimizer
        self.trainer.compute_loss_func = self.run.criterion
        self.trainer.get_train_dataloader = lambda: self.run.loader

    def _attach(self, optimizer, loader, steps):
        assert (loader, steps) == (self.run.loader, 10 * EPOCHS)
        return attach(self.run, model=self.run.model, **UNPROBED)

    def result(self, **options):
        torch.manual_seed(SEED)
        self.trainer.train(**options)
        return self.callback.result


# What an adapter to trainers reads of either mode is the same.
IN_A_MODE = pytest.mark.parametrize(
    ("kind", "mode"), [(plain_trainer, "ghost"), (sft_trainer, "hooks")]
)


@IN_A_MODE
def test_a_trainer_gives_the_result_of_the_plain_loop(kind, mode, tmp_path):
    session = Session(kind, tmp_path, mode=mode)
    records, collate = session.run.loader.dataset, session.run.loader.collate_fn
    weights = copy.deepcopy(session.run.inside.state_dict())
    result = session.result()
    run = private_language_model(
        mode=mode, records=records, collate=collate, criterion=RecordLoss()
    )
    run.inside.load_state_dict(weights)
    audit = attach(run, model=run.model, **UNPROBED)
    torch.manual_seed(SEED)
    for _ in range(EPOCHS):
        for batch in run.loader:
            run.optimizer.zero_grad()
            output = run.model(batch["input_ids"], batch["attention_mask"])
            run.criterion(output, batch["labels"]).backward()
            run.optimizer.step()
    assert result == audit.finish()
    assert result.verdict == "no violation detected"
    trained = session.run.inside.state_dict()
    for name, value in run.inside.state_dict().items():
        assert torch.equal(value, trained[name]), name


@IN_A_MODE
def test_broken_off_and_resumed_the_transcript_is_the_same(kind, mode, tmp_path):
    whole = Session(kind, tmp_path / "whole", mode=mode).result()
    first = Session(kind, tmp_path / "parts", mode=mode, epochs=2)
    first.result()
    second = Session(kind, tmp_path / "parts", mode=mode)
    second.run.engine.accountant.load_state_dict(
        first.run.engine.accountant.state_dict()
    )
    checkpoint = str(tmp_path / "parts" / "checkpoint-20")
    assert second.result(resume_from_checkpoint=checkpoint) == whole


@IN_A_MODE
def test_a_trainers_own_step_can_be_probed(kind, mode, tmp_path):
    session = Session(kind, tmp_path, mode=mode)
    audit = attach(session.run, model=session.run.model)
    assert not audit.probe(step_of(session.trainer)).faults
    audit.detach()


def over_tokens(outputs, labels, num_items_in_batch):
    """The loss that trainers have by default."""
    losses, _ = token_losses(outputs.logits, labels)
    return losses.sum() / num_items_in_batch


def test_a_probe_finds_the_loss_over_a_batchs_tokens(tmp_path):
    session = Session(sft_trainer, tmp_path)
    session.trainer.compute_loss_func = over_tokens
    audit = attach(session.run, model=session.run.model)
    (fault,) = audit.probe(step_of(session.trainer)).faults
    assert "a mean over all their tokens" in fault_parts(fault)[3]
    audit.detach()


@pytest.mark.parametrize(
    "option", [{"max_grad_norm": 1.0}, {"gradient_accumulation_steps": 2}]
)
def test_what_undoes_opacus_is_refused(option, tmp_path):
    session = Session(plain_trainer, tmp_path, **option)
    (name,) = option
    with pytest.raises(InvalidInputError, match=name):
        session.trainer.train()
