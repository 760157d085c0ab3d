"""Audit the private fine-tuning of a language model, by two observers of one training.

    python examples/language_model.py                        # an honest run
    python examples/language_model.py --divide-noise-by 3    # the same with a bug
    python examples/language_model.py --plain                # without any privacy
    python examples/language_model.py --model NAME --text FOLDER    # your own

A small Llama is made here, pretrained on one half of Python's own documentation and
fine-tuned on the other: adapters and head, by Opacus, to epsilon = 4. One observer sees
every step. The other has the final model only, and asks it for canaries, records that
end in a token which no other has. The exit code is 1 if either refutes the claim.
"""

import argparse
import copy
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from pydoc_data.topics import topics

import peft
import torch
from opacus import PrivacyEngine
from opacus.optimizers import DPOptimizer
from tokenizers import ByteLevelBPETokenizer, Tokenizer
from torch.utils.data import DataLoader, Dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from dpaudit import (
    ApproxDP,
    BlackBoxAudit,
    Design,
    Key,
    Ranking,
    Result,
    Verdict,
    audit_opacus,
)
from dpaudit.reporting.model_card import model_card_section
from dpaudit.training import language_models

CLAIM = ApproxDP(epsilon=4.0, delta=1e-5)
STEPS, NOISE = 6, 1.65  # what keeps the claim, with half of the records at each step
LENGTH, HELD_OUT = 12, 200  # tokens in a record, and records that are not trained on


def texts(folder: Path | None) -> tuple[list[str], list[str]]:
    """Return public and private texts, by turns."""
    found = [topics[name] for name in sorted(topics)]
    if folder is not None:
        found = [path.read_text() for path in sorted(folder.glob("*.txt"))]
    found = [" ".join(each.split()) for each in found]
    return found[0::2], found[1::2]


def records(chosen: Iterable[str], tokenizer: PreTrainedTokenizerFast) -> torch.Tensor:
    """Return texts as rows of tokens, in an order that a public seed decides."""
    ids = [token for each in chosen for token in tokenizer(each)["input_ids"]]
    rows = torch.tensor(ids[: len(ids) // LENGTH * LENGTH]).view(-1, LENGTH)
    return rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))]


def small_tokenizer(public: list[str], reserved: int) -> PreTrainedTokenizerFast:
    """Return a tokenizer of the public texts, with some tokens that no text has."""
    made = ByteLevelBPETokenizer()
    made.train_from_iterator(public, vocab_size=1024, show_progress=False)
    made.add_tokens([f"<reserved{number}>" for number in range(reserved)])
    made = Tokenizer.from_str(made.to_str())
    return PreTrainedTokenizerFast(tokenizer_object=made)


def small_model(
    tokenizer: PreTrainedTokenizerFast, rows: torch.Tensor, *, width: int, steps: int
) -> PreTrainedModel:
    """Return a Llama of four layers, trained on public rows for some seconds."""
    model = AutoModelForCausalLM.from_config(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=width,
            intermediate_size=3 * width,
            num_hidden_layers=4,
            num_attention_heads=4,
            use_cache=False,
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for _ in range(steps):
        batch = rows[torch.randint(len(rows), (64,))]
        optimizer.zero_grad()
        language_models.record_loss(model(input_ids=batch).logits, batch).backward()
        optimizer.step()
        schedule.step()
    return model


def prepare(
    name: str | None = None,
    folder: Path | None = None,
    *,
    canaries: int = 500,
    width: int = 128,
    steps: int = 100,
) -> tuple[language_models.Logits, torch.Tensor, language_models.Tokens]:
    """Return a public model with adapters, private records, and canaries.

    The head is trained too. It has a row of weights for each token, and the row of a
    new token is moved by its own canary, by noise, and by next to nothing else.
    """
    public, private = texts(folder)
    if name is None:
        tokenizer = small_tokenizer(public, reserved=canaries)
        rows = records(public, tokenizer)
        model = small_model(tokenizer, rows, width=width, steps=steps)
    else:
        tokenizer = AutoTokenizer.from_pretrained(name)
        rows = records(public, tokenizer)
        model = AutoModelForCausalLM.from_pretrained(name, use_cache=False)
    own, special = records(private, tokenizer), tokenizer.all_special_ids
    new = language_models.unseen_tokens(
        [*rows, *own], model.config.vocab_size, special=special
    )
    before = rows[0, : LENGTH - 1].tolist()
    adapters = peft.LoraConfig(r=4, lora_alpha=8, modules_to_save=["lm_head"])
    network = language_models.Logits(peft.get_peft_model(model, adapters))
    return network, own, language_models.new_tokens(new[-canaries:], before=before)


def divide_noise(optimizer: DPOptimizer, factor: float) -> None:
    """Plant a bug: add less noise than the accountant is told of."""
    add_noise = optimizer.add_noise

    def add_less_noise() -> None:
        told = optimizer.noise_multiplier  # now: a probe sets it to 0
        optimizer.noise_multiplier = told / factor
        add_noise()
        optimizer.noise_multiplier = told

    optimizer.add_noise = add_less_noise


def train_privately(
    network: language_models.Logits, data: Dataset, *, factor: float
) -> Result:
    """Train by Opacus, on half of the records at each step; return what steps show."""
    trained = [each for each in network.parameters() if each.requires_grad]
    engine = PrivacyEngine()
    model, optimizer, criterion, loader = engine.make_private(
        module=network.train(),
        optimizer=torch.optim.SGD(trained, lr=3.0),
        criterion=language_models.RecordLoss(),
        data_loader=DataLoader(data, batch_size=math.ceil(len(data) / 2)),
        noise_multiplier=NOISE,
        max_grad_norm=0.5,
        grad_sample_mode="ghost",
    )
    divide_noise(optimizer, factor)

    def step(batch: Sequence[torch.Tensor]) -> None:
        ids, labels = batch
        optimizer.zero_grad()
        criterion(model(ids), labels).backward()
        optimizer.step()

    audit = audit_opacus(
        engine, model, optimizer, loader, steps=STEPS, delta=CLAIM.delta, step=step
    )
    for _ in range(STEPS // len(loader)):
        for batch in loader:
            step(batch)
    model.remove_hooks()
    return audit.finish()


def train_plainly(network: language_models.Logits, data: Dataset) -> None:
    """Train without privacy, long enough to learn the canaries by heart."""
    trained = [each for each in network.train().parameters() if each.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=0.01)
    for _ in range(12):
        for ids, labels in DataLoader(data, batch_size=64, shuffle=True):
            optimizer.zero_grad()
            language_models.record_loss(network(ids), labels).backward()
            optimizer.step()


def fine_tune(
    network: language_models.Logits,
    private: torch.Tensor,
    canaries: language_models.Tokens,
    *,
    key: Key,
    factor: float = 1.0,
    plain: bool = False,
) -> list[Result]:
    """Return what every step shows, unless trained plainly, and what the end does."""
    rules = Ranking(guesses=len(canaries) // 2)
    audit = BlackBoxAudit(
        canaries,
        design=Design(canaries=len(canaries), rules=rules, claim=CLAIM),
        key=key,
        fillers=canaries.blank(),  # so that no count of records depends on a coin
    )
    print(f"For the final model publish, too: commitment {audit.commitment.sha256}")
    data = language_models.insert(language_models.Tokens(private), audit.included())
    initial, found = copy.deepcopy(network), []
    if plain:
        train_plainly(network, data)
    else:
        found = [train_privately(network, data, factor=factor)]
    scores = audit.score(network, loss=language_models.record_loss, reference=initial)
    return [*found, audit.finish(scores)]


def perplexity(network: language_models.Logits, rows: torch.Tensor) -> float:
    with torch.no_grad():
        return math.exp(language_models.record_loss(network.eval()(rows), rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", help="a model and its tokenizer, by name or folder")
    parser.add_argument("--text", type=Path, help="a folder of .txt files")
    parser.add_argument("--divide-noise-by", type=float, default=1.0)
    parser.add_argument("--plain", action="store_true", help="train without privacy")
    asked = parser.parse_args()
    network, rows, canaries = prepare(asked.model, asked.text)
    held_out, private = rows[:HELD_OUT], rows[HELD_OUT : HELD_OUT + 800]
    before = perplexity(network, held_out)
    results = fine_tune(
        network,
        private,
        canaries,
        key=Key.generate(),
        factor=asked.divide_noise_by,
        plain=asked.plain,
    )
    print(f"Perplexity: {before:.1f} before, {perplexity(network, held_out):.1f} after")
    print(*results, model_card_section(*results), sep="\n\n")
    raise SystemExit(any(each.verdict is Verdict.CLAIM_REFUTED for each in results))


if __name__ == "__main__":
    main()
