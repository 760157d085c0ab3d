"""Small honest fine-tunings, audited from inside and from outside: any false alarm?

    python lab/measure/small_fine_tunings.py run --runs 300    # resumable
    python lab/measure/small_fine_tunings.py table

A tiny Llama or GPT-2, with adapters or with adapters and head, by hooks or by ghost
clipping, on padded or packed rows, all by turns, is fine-tuned on made-up text to
epsilon 4 at delta 1e-5. The steps are audited by canaries in the sums, with a probe of
the step; the final model by canaries of tokens: random, new, or sampled. Everything is
seeded but the noise of the keys; nothing may be refuted at p < 0.001, and no fault
found.
"""

import argparse
import functools
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.accountants.utils import get_noise_multiplier
from sweeping import add_line, lines
from torch.utils.data import DataLoader, TensorDataset

from dpaudit import ApproxDP, Design, Key
from dpaudit.accounting import accountant_curve
from dpaudit.dpsgd.planning import TrainingSetup, plan_audit
from dpaudit.game.rules import Ranking
from dpaudit.stats.binomial import rate_limits
from dpaudit.training.black_box import BlackBoxAudit
from dpaudit.training.language_models import (
    Logits,
    RecordLoss,
    Tokens,
    insert,
    new_tokens,
    random_tokens,
    record_loss,
    sampled_tokens,
)
from dpaudit.training.opacus import OpacusAudit

CLAIM = ApproxDP(epsilon=4.0, delta=1e-5)
WORDS, RESERVED, LENGTH = 60, 100, 10
RECORDS, CANARIES, EPOCHS, BATCHES = 300, 100, 3, 4
CASES = [
    (kind, head, mode, canaries, packed)
    for kind in ("llama", "gpt2")
    for head in (False, True)
    for mode in ("hooks", "ghost")
    for canaries in ("random", "new", "sampled")
    for packed in (False, True)
]


def small_model(kind: str, *, head: bool) -> Logits:
    import peft  # noqa: PLC0415 (a second to import)
    import transformers  # noqa: PLC0415

    ends = {"bos_token_id": 1, "eos_token_id": 1, "use_cache": False}
    size = {"vocab_size": WORDS + RESERVED, "tie_word_embeddings": False}
    if kind == "gpt2":
        sizes = {"n_positions": LENGTH, "n_embd": 16, "n_layer": 1, "n_head": 2}
        still = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        config = transformers.GPT2Config(**size, **ends, **sizes, **still)
        inside = transformers.GPT2LMHeadModel(config)
    else:
        config = transformers.LlamaConfig(
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=LENGTH,
            **size,
            **ends,
        )
        inside = transformers.LlamaForCausalLM(config)
    chosen = peft.LoraConfig(
        r=4,
        target_modules=["c_attn"] if kind == "gpt2" else ["q_proj", "v_proj"],
        modules_to_save=["lm_head"] if head else None,
        fan_in_fan_out=kind == "gpt2",
    )
    return Logits(peft.get_peft_model(inside, chosen))


def sentences(*, packed: bool) -> Tokens:
    """Return rows of a made-up language, in which few words follow each word."""
    rng = np.random.default_rng(0)
    after = rng.integers(2, WORDS, (WORDS, 4))
    ids = np.empty((RECORDS, LENGTH), np.int64)
    ids[:, 0] = rng.integers(2, WORDS, RECORDS)
    for place in range(1, LENGTH):
        ids[:, place] = after[ids[:, place - 1], rng.integers(0, 4, RECORDS)]
    if packed:
        return Tokens(torch.from_numpy(ids))
    ends = rng.integers(3, LENGTH + 1, RECORDS)[:, None] <= np.arange(LENGTH)
    return Tokens(torch.from_numpy(np.where(ends, 0, ids)), padding=0)


def canaries_of(name: str, model: Logits, *, packed: bool) -> Tokens:
    length = LENGTH // 2 if packed else LENGTH
    match name:
        case "random":
            made = random_tokens(
                CANARIES, length=length, vocabulary=range(2, WORDS), seed=1
            )
        case "new":
            own = list(range(WORDS, WORDS + CANARIES))
            made = new_tokens(own, before=list(range(2, 1 + length)))
        case _:
            made = sampled_tokens(model, CANARIES, length=length, start=1, seed=1)
    return made.filled(LENGTH) if packed else made


@functools.cache
def noise() -> float:
    return get_noise_multiplier(
        target_epsilon=CLAIM.epsilon,
        target_delta=CLAIM.delta,
        sample_rate=1 / BATCHES,
        epochs=EPOCHS,
    )


@functools.cache
def design_of(noise: float, rate: float, steps: int) -> Design:
    """Return the plan for canaries in the sums; all cases train alike."""
    curve = accountant_curve([(noise, rate, steps)])
    return plan_audit(
        TrainingSetup(steps=steps, rate=rate, noise=noise),
        claim=ApproxDP(epsilon=curve.epsilon_at(CLAIM.delta), delta=CLAIM.delta),
        coordinates=250,
        per_coordinate=1,
        guarantee=curve,
        in_rounds=False,
    ).design()


def one_run(number: int) -> dict[str, Any]:
    kind, head, mode, name, packed = case = CASES[number % len(CASES)]
    torch.manual_seed(number)
    model = small_model(kind, head=head)
    canaries = canaries_of(name, model, packed=packed)
    design = Design(canaries=CANARIES, rules=Ranking(guesses=50), claim=CLAIM)
    outside = BlackBoxAudit(
        canaries, design=design, key=Key.generate(), fillers=canaries.blank()
    )
    real = sentences(packed=packed)
    data = insert(TensorDataset(real.ids, real.labels), outside.included())
    criterion = RecordLoss()
    engine = PrivacyEngine()
    made = engine.make_private(
        module=model.train(),
        optimizer=torch.optim.Adam(
            [each for each in model.parameters() if each.requires_grad], lr=0.02
        ),
        data_loader=DataLoader(data, batch_size=len(data) // BATCHES),
        criterion=criterion,
        noise_multiplier=noise(),
        max_grad_norm=0.5,
        grad_sample_mode=mode,
    )
    wrapped, optimizer, *criteria, loader = made
    criterion = criteria[0] if criteria else criterion

    def step(batch: Any) -> None:  # noqa: ANN401
        ids, labels = batch
        optimizer.zero_grad()
        criterion(wrapped(ids), labels).backward()
        optimizer.step()

    inside = OpacusAudit(
        optimizer,
        loader,
        design=design_of(optimizer.noise_multiplier, 1 / BATCHES, EPOCHS * BATCHES),
        key=Key.generate(),
        accountant=engine,
        model=wrapped,
    )
    if number % 4 == 0:
        inside.probe(step, records=4)
    for _ in range(EPOCHS):
        for batch in inside.data_loader:
            step(batch)
    seen = inside.finish()
    told = outside.finish(outside.score(model, loss=record_loss))
    return {
        "number": number,
        "case": case,
        "steps": [seen.p_value, str(seen.verdict)],
        "final": [told.p_value, str(told.verdict)],
        "faults": [str(fault) for fault in seen.faults],
    }


def table(path: Path) -> None:
    rows = lines(path)
    for who in ("steps", "final"):
        values = np.array([row[who][0] for row in rows])
        low = int(np.sum(values < 0.001))
        _, most = rate_limits(low, len(values), alpha=0.001)
        refuted = int(np.sum(values <= 0.05))
        print(
            f"{who}: {len(values)} audits, p < 0.001 in {low} (rate at most "
            f"{most:.3f}), p <= 0.05 in {refuted}, least p {values.min():.3g}"
        )
    faults = [fault for row in rows for fault in row["faults"]]
    print(f"faults found: {len(faults)} {faults[:3]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--store", type=Path, default=Path("fine_tunings.jsonl"))
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    if asked.what == "table":
        return table(asked.store)
    done = {row["number"] for row in lines(asked.store)}
    for number in range(asked.runs):
        if number in done:
            continue
        start = time.process_time()
        row = one_run(number)
        add_line(asked.store, row)
        print(f"{number}: {time.process_time() - start:.1f} s {row}", flush=True)
    return table(asked.store)


if __name__ == "__main__":
    main()
