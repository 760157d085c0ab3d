"""Tiny language models, made private by Opacus: a Llama with LoRA, a tied GPT-2."""

from types import SimpleNamespace

import torch
from opacus import PrivacyEngine
from peft import LoraConfig, get_peft_model
from private_runs import UNPROBED, attach
from torch import nn
from torch.utils.data import DataLoader
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

WORDS, LENGTH, RECORDS = 48, 10, 200
NOISE, IGNORED = 1.5, -100


def llama(**options):
    """A Llama of two layers."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=WORDS,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=4 * LENGTH,
            use_cache=False,
            bos_token_id=1,
            eos_token_id=1,
            pad_token_id=0,
            **options,
        )
    )


def gpt2(**options):
    """A GPT-2 of two layers, whose head and embedding are one weight."""
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=WORDS,
            n_positions=4 * LENGTH,
            n_embd=16,
            n_layer=2,
            n_head=2,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            use_cache=False,
            bos_token_id=1,
            eos_token_id=1,
            pad_token_id=0,
            **options,
        )
    )


def with_lora(model, **options):
    """The model with adapters at its attention; nothing else is trained."""
    targets = ["c_attn"] if isinstance(model, GPT2LMHeadModel) else ["q_proj", "v_proj"]
    told = {"target_modules": targets, "fan_in_fan_out": "c_attn" in targets} | options
    return get_peft_model(
        model, LoraConfig(r=4, lora_alpha=8, task_type="CAUSAL_LM", **told)
    )


def sentences(count=RECORDS, *, shortest=4):
    """Records as a tokenizer leaves them: lists of tokens, of several lengths."""
    lengths = torch.randint(shortest, LENGTH + 1, (count,)).tolist()
    return [{"input_ids": torch.randint(2, WORDS, (n,)).tolist()} for n in lengths]


def padded(records, length=LENGTH):
    """Records of one length, with labels that say which tokens count."""

    def filled(ids, value):
        return torch.tensor([*ids, *[value] * (length - len(ids))])

    return {
        "input_ids": torch.stack([filled(r["input_ids"], 0) for r in records]),
        "attention_mask": torch.stack(
            [filled([1] * len(r["input_ids"]), 0) for r in records]
        ),
        "labels": torch.stack([filled(r["input_ids"], IGNORED) for r in records]),
    }


def longest(records):
    """Records padded to the longest of the batch."""
    return padded(records, max(len(each["input_ids"]) for each in records))


def token_losses(logits, labels):
    """The loss of each token of each record; 0 where none is to be learnt."""
    ahead = labels[:, 1:]
    losses = nn.functional.cross_entropy(
        logits[:, :-1].transpose(1, 2), ahead, reduction="none", ignore_index=IGNORED
    )
    return losses, ahead != IGNORED


class ByRecord(nn.Module):
    """Each record's own mean over its tokens."""

    def __init__(self, reduction="mean"):
        super().__init__()
        self.reduction = reduction

    def forward(self, logits, labels):
        losses, counted = token_losses(logits, labels)
        each = losses.sum(1) / counted.sum(1).clamp(min=1)
        return each if self.reduction == "none" else each.mean()


def private_language_model(
    model=None,
    *,
    mode="hooks",
    collate=longest,
    criterion=None,
    records=None,
    noise=NOISE,
    seed=0,
    lr=0.01,
    **options,
):
    """A model, its optimizer, loader, loss and engine, made private."""
    torch.manual_seed(seed)
    model = with_lora(llama()) if model is None else model()
    records = sentences() if records is None else records
    criterion = ByRecord() if criterion is None else criterion
    trained = [p for p in model.parameters() if p.requires_grad]
    engine = PrivacyEngine()
    made = engine.make_private(
        module=model.train(),
        optimizer=torch.optim.Adam(trained, lr=lr),
        data_loader=DataLoader(
            records, batch_size=len(records) // 10, collate_fn=collate
        ),
        criterion=criterion,
        noise_multiplier=noise,
        max_grad_norm=1.0,
        grad_sample_mode=mode,
        **options,
    )
    private, optimizer, *criteria, loader = made
    return SimpleNamespace(
        model=private,
        inside=model,
        optimizer=optimizer,
        loader=loader,
        criterion=criteria[0] if criteria else criterion,
        engine=engine,
    )


def step_of(run, loss=None, **options):
    """What anybody does with a batch."""
    loss = loss or run.criterion

    def step(batch):
        run.optimizer.zero_grad()
        labels = batch["labels"]
        given = {name: part for name, part in batch.items() if name != "labels"}
        loss(run.model(**given, **options).logits, labels).backward()
        run.optimizer.step()

    return step


def audited(run, *, epochs=3, probed=True, between=lambda k: None):
    """The result of a training that is audited by default, probed with its step."""
    step = step_of(run)
    audit = attach(run, model=run.model, **({} if probed else UNPROBED))
    found = audit.probe(step, records=3) if probed else None
    for epoch in range(epochs):
        for k, batch in enumerate(audit.data_loader):
            step(batch)
            between(10 * epoch + k)
    return audit.finish(), found
