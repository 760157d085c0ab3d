"""Language models made here: text, tokenizer, pretrained weights; nothing downloaded.

    python lab/measure/language_models.py     # makes them, and says how good they are

Jane Austen's novels, in the public domain, are in Debian's package r-cran-janeaustenr,
which ``apt-get download`` fetches; ``DPAUDIT_TEXT`` names a folder of ``.txt`` files to
use instead. Four novels are public, and a small Llama or GPT-2 (four layers, some four
million parameters) is pretrained on them for minutes. The other two are private: they
are what is fine-tuned on. Everything is kept in a folder (``DPAUDIT_MODELS``, or one in
the user's cache), so it is made once.
"""

import argparse
import functools
import os
import subprocess
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dpaudit.training.language_models import Logits, record_losses

WORDS = 3072  # tokens that the tokenizer learns from the public novels
RESERVED = 1024  # tokens that no text has, as any large vocabulary has thousands
VOCABULARY = WORDS + RESERVED
POSITIONS = 64
WIDTH, LAYERS, HEADS = 256, 4, 4
PUBLIC = 4  # novels; the rest is private
TARGETS = {"llama": ["q_proj", "v_proj"], "gpt2": ["c_attn"]}


def kept_in() -> Path:
    told = os.environ.get("DPAUDIT_MODELS")
    folder = Path(told) if told else Path.home() / ".cache" / "dpaudit-language-models"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@functools.cache
def novels() -> list[str]:
    """Return each novel as one text, public ones first."""
    told = os.environ.get("DPAUDIT_TEXT")
    if told:
        return [path.read_text() for path in sorted(Path(told).glob("*.txt"))]
    folder = kept_in() / "novels"
    if not folder.exists():
        made = _austen()
        folder.mkdir()
        for number, text in enumerate(made):
            (folder / f"{number}.txt").write_text(text)
    return [path.read_text() for path in sorted(folder.glob("*.txt"))]


def _austen() -> list[str]:
    """Return the novels of Debian's package; R keeps them as compressed strings."""
    with tempfile.TemporaryDirectory() as folder:
        fetch = ["apt-get", "download", "r-cran-janeaustenr"]
        subprocess.run(fetch, cwd=folder, check=True, capture_output=True)
        (package,) = Path(folder).glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
        (data,) = Path(folder).glob("usr/lib/R/**/data/Rdata.rdb")
        rest = data.read_bytes()
    found = []
    while rest:
        stream = zlib.decompressobj()
        found.append(_lines(stream.decompress(rest[4:])))  # the first four: its length
        rest = stream.unused_data
    return found


def _lines(serialized: bytes) -> str:
    """Return a vector of strings, as R writes it, as one text."""
    start = 14 + 4 + int.from_bytes(serialized[14:18], "big") + 4  # to the vector
    count = int.from_bytes(serialized[start : start + 4], "big")
    at, lines = start + 4, []
    for _ in range(count):
        size = int.from_bytes(serialized[at + 4 : at + 8], "big")
        lines.append(serialized[at + 8 : at + 8 + size].decode())
        at += 8 + size
    return "\n".join(lines)


@functools.cache
def tokenizer() -> Any:  # noqa: ANN401 (of an optional library)
    """Return a tokenizer trained on the public novels."""
    import transformers  # noqa: PLC0415 (a second to import)

    path = kept_in() / "tokenizer.json"
    if not path.exists():
        _train_tokenizer(path)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(path), pad_token="<pad>", eos_token="<end>"
    )


def _train_tokenizer(path: Path) -> None:
    import tokenizers  # noqa: PLC0415

    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=WORDS,
        special_tokens=["<pad>", "<end>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(novels()[:PUBLIC], trainer)
    made.add_tokens([f"<new{number}>" for number in range(RESERVED)])
    made.save(str(path))


@functools.cache
def sequences(length: int, *, private: bool = True) -> torch.Tensor:
    """Return all text of the private (or public) novels, cut into rows of tokens."""
    chosen = novels()[PUBLIC:] if private else novels()[:PUBLIC]
    ids = [token for text in chosen for token in tokenizer()(text)["input_ids"]]
    rows = len(ids) // length
    found = torch.tensor(ids[: rows * length]).view(rows, length)
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(0))
    return found[order]


def made(kind: str, **more: Any) -> Any:  # noqa: ANN401
    """Return a new model: ``llama`` or ``gpt2``."""
    import transformers  # noqa: PLC0415

    common = {"vocab_size": VOCABULARY, "use_cache": False, **more}
    common.setdefault("tie_word_embeddings", False)
    if kind == "gpt2":
        return transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                n_positions=POSITIONS,
                n_embd=WIDTH,
                n_layer=LAYERS,
                n_head=HEADS,
                resid_pdrop=0.0,
                embd_pdrop=0.0,
                attn_pdrop=0.0,
                bos_token_id=1,
                eos_token_id=1,
                **common,
            )
        )
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            hidden_size=WIDTH,
            intermediate_size=704,
            num_hidden_layers=LAYERS,
            num_attention_heads=HEADS,
            num_key_value_heads=HEADS,
            max_position_embeddings=POSITIONS,
            bos_token_id=1,
            eos_token_id=1,
            pad_token_id=0,
            **common,
        )
    )


def pretrained(kind: str = "llama", *, steps: int = 300, **more: Any) -> Any:  # noqa: ANN401
    """Return the model, trained on the public novels; made once and kept."""
    told = "-".join([kind, str(steps), *(f"{name}{more[name]}" for name in more)])
    path = kept_in() / f"{told}.pt"
    torch.manual_seed(0)
    model = made(kind, **more)
    if path.exists():
        model.load_state_dict(torch.load(path))
        return model.eval()
    rows = sequences(POSITIONS, private=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for step in range(steps):
        batch = rows[torch.randint(len(rows), (48,))]
        optimizer.zero_grad()
        loss = record_losses(model(input_ids=batch).logits, batch).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 25 == 0:
            print(
                f"pretraining {kind}, step {step}: loss {loss.item():.3f}", flush=True
            )
    torch.save(model.state_dict(), path)
    return model.eval()


def with_lora(
    model: Any,  # noqa: ANN401
    kind: str = "llama",
    *,
    r: int = 4,
    targets: list[str] | None = None,
    head: bool = False,
) -> Any:  # noqa: ANN401
    """Return the model with adapters; with ``head`` its head is trained too."""
    import peft  # noqa: PLC0415

    chosen = peft.LoraConfig(
        r=r,
        lora_alpha=2 * r,
        lora_dropout=0.0,
        target_modules=TARGETS[kind] if targets is None else targets,
        modules_to_save=["lm_head"] if head else None,
        fan_in_fan_out=kind == "gpt2",
    )
    return peft.get_peft_model(model, chosen)


def perplexity(model: nn.Module, rows: torch.Tensor) -> float:
    """Return how surprised a model of logits is by rows of tokens."""
    with torch.no_grad():
        found = [record_losses(model(part), part) for part in rows.split(64)]
    return float(torch.cat(found).mean().exp())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=("llama", "gpt2"), default="llama")
    asked = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    start = time.process_time()
    model = pretrained(asked.kind)
    count = sum(each.numel() for each in model.parameters())
    print(
        f"{asked.kind}: {count:,} parameters, {time.process_time() - start:.0f} s CPU"
    )
    for name, private in (("public", False), ("private", True)):
        rows = sequences(POSITIONS, private=private)
        found = perplexity(Logits(model), rows[:200])
        print(f"{name}: {len(rows):,} rows of {POSITIONS}, perplexity {found:.1f}")


if __name__ == "__main__":
    main()
