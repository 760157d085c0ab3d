"""What a final model shows of its canaries: kinds of canaries against kinds of scores.

    python lab/measure/final_model.py run --training lora --runs 20   # resumable
    python lab/measure/final_model.py table
    python lab/measure/final_model.py pool     # scores pooled as other runs teach

Each run fine-tunes the small Llama of ``language_models`` on 5,000 sequences of private
text with canaries of several kinds, each kind with coins, a commitment and an audit of
its own, the excluded ones blank. Everything a score is made of is the final model, the
public initial one and what was fixed beforehand. A run is a line in the store; one that
is there is not made again.

Trainings: ``lora`` (adapters at every layer, hooks), ``head`` (adapters at queries and
values, and the head, ghost clipping), ``repeats`` (as ``head``; half of the new tokens
stand four times in their record), each to epsilon 4 at delta 1e-5 by Opacus; ``--rate``
and ``--steps`` say how; ``--plain`` trains without clipping and noise, and makes the
same claim; ``--blank`` leaves all canaries blank, for what they cost in perplexity.
"""

import argparse
import copy
import json
import os
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import language_models
import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.accountants.utils import get_noise_multiplier
from opacus.utils.batch_memory_manager import BatchMemoryManager
from sweeping import add_line, lines
from torch.utils.data import ConcatDataset, DataLoader, TensorDataset

from dpaudit import ApproxDP, Design, Key
from dpaudit.game.coins import Coins
from dpaudit.game.rules import Ranking
from dpaudit.stats.intervals import standard_error
from dpaudit.testing import fixed_key
from dpaudit.training.black_box import BlackBoxAudit, CanaryScores, pooled_scores
from dpaudit.training.language_models import (
    Logits,
    RecordLoss,
    Tokens,
    best_tokens,
    least_alike,
    new_tokens,
    random_tokens,
    record_gradients,
    sampled_tokens,
    token_gains,
    weight_scores,
)
from dpaudit.training.language_models.canaries import IGNORED

CLAIM = ApproxDP(epsilon=4.0, delta=1e-5)
REAL, HELD_OUT, LENGTH = 5000, 400, 12
CLIP = 0.1  # below the norm of most records
PHYSICAL = 125
POOL = 2000  # candidates for optimised canaries
PUBLIC = 200  # public records, for what real ones look like
EVERY_LAYER = [f"{name}_proj" for name in ("q", "k", "v", "o", "gate", "up", "down")]
COUNTS = {
    "lora": {"new tokens": 250, "random": 250, "sampled": 250, "optimised": 500},
    "head": {"new tokens": 1000, "random": 250, "sampled": 250},
    "repeats": {"new tokens": 500, "four times": 500, "random": 250, "sampled": 250},
}
BLANK = {"canaries": "all blank"}
HEAD = ("head", "repeats")  # trainings of the head, too
OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}


def kinds_of(training: str, initial: Logits) -> dict[str, Tokens]:
    """Return the canaries of each kind; public, and the same in all runs."""
    path = language_models.kept_in() / f"canaries-{training}.pt"
    if not path.exists():
        made = {
            kind: MAKERS[kind](count, initial)
            for kind, count in COUNTS[training].items()
        }
        torch.save({kind: (each.ids, each.labels) for kind, each in made.items()}, path)
    return {kind: Tokens(*each) for kind, each in torch.load(path).items()}


def new(count: int, initial: Logits) -> Tokens:
    del initial
    first = language_models.WORDS
    return new_tokens(
        list(range(first, first + count)), before=_public()[0, : LENGTH - 1].tolist()
    )


def repeated(count: int, initial: Logits) -> Tokens:
    del initial
    last = language_models.VOCABULARY
    return new_tokens(
        list(range(last - count, last)),
        before=_public()[0, : LENGTH - 4].tolist(),
        repeats=4,
    )


def drawn(count: int, initial: Logits) -> Tokens:
    del initial
    words = range(2, language_models.WORDS)
    return random_tokens(count, length=LENGTH, vocabulary=words, seed=1)


def sampled(count: int, initial: Logits) -> Tokens:
    return sampled_tokens(initial, count, length=LENGTH, start=1, seed=1)


def optimised(count: int, initial: Logits) -> Tokens:
    """Return rows whose last token is learned, of which no two look alike to training.

    They are chosen from many by their gradients at the initial model.
    """
    pool = random_tokens(
        POOL, length=LENGTH, vocabulary=range(2, language_models.VOCABULARY), seed=2
    )
    labels = torch.full_like(pool.ids, -100)
    labels[:, -1] = pool.ids[:, -1]
    pool = Tokens(pool.ids, labels)
    gradients = record_gradients(initial, pool, clip=CLIP)
    besides = record_gradients(initial, Tokens(_public()[:PUBLIC]), clip=CLIP)
    return pool.some(least_alike(gradients, count, besides=besides))


MAKERS = {
    "new tokens": new,
    "four times": repeated,
    "random": drawn,
    "sampled": sampled,
    "optimised": optimised,
}


def _public() -> torch.Tensor:
    return language_models.sequences(LENGTH, private=False)


def gradients_of(name: str, initial: Logits, records: Tokens) -> Any:  # noqa: ANN401
    """Return clipped gradients at the initial model; computed once and kept."""
    path = language_models.kept_in() / f"gradients-{name}.npy"
    if not path.exists():
        np.save(path, record_gradients(initial, records, clip=CLIP))
    return np.load(path, mmap_mode="r")


def initial_model(training: str) -> Logits:
    torch.manual_seed(0)
    pretrained = language_models.pretrained()
    head = training in HEAD
    targets = None if head else EVERY_LAYER
    return Logits(language_models.with_lora(pretrained, targets=targets, head=head))


def key_of(seed: int, kind: str) -> Key:
    """Return a key that a number makes, so that a run can be made again."""
    return fixed_key(np.random.default_rng([seed, *kind.encode()]).bytes(32))


def audits_of(kinds: dict[str, Tokens], seed: int) -> dict[str, BlackBoxAudit]:
    return {
        kind: BlackBoxAudit(
            canaries,
            design=Design(
                canaries=len(canaries),
                rules=Ranking(guesses=len(canaries) // 2),
                claim=CLAIM,
            ),
            key=key_of(seed, kind),
            fillers=canaries.blank(),
        )
        for kind, canaries in kinds.items()
    }


def private_training(
    model: Logits,
    data: ConcatDataset[Any],
    asked: argparse.Namespace,
) -> None:
    """Train by Opacus; every record is there whatever the coins."""
    ghost = asked.training in HEAD
    trained = [each for each in model.parameters() if each.requires_grad]
    criterion = RecordLoss()
    options = {"grad_sample_mode": "ghost", "criterion": criterion} if ghost else {}
    made = PrivacyEngine().make_private(
        module=model.train(),
        optimizer=OPTIMIZERS[asked.optimizer](trained, lr=asked.rate_of_learning),
        data_loader=DataLoader(data, batch_size=round(asked.rate * len(data))),
        noise_multiplier=asked.noise,
        max_grad_norm=CLIP,
        **options,
    )
    if ghost:
        wrapped, optimizer, criterion, loader = made
    else:
        wrapped, optimizer, loader = made
    done = 0
    with BatchMemoryManager(
        data_loader=loader, max_physical_batch_size=PHYSICAL, optimizer=optimizer
    ) as parts:
        while done < asked.steps:
            for ids, labels in parts:
                last = not optimizer._check_skip_next_step(pop_next=False)
                criterion(wrapped(ids), labels).backward()
                optimizer.step()
                optimizer.zero_grad()
                done += last
                if done == asked.steps:
                    break
    wrapped.remove_hooks()


def plain_training(
    model: Logits,
    data: ConcatDataset[Any],
    asked: argparse.Namespace,
) -> None:
    trained = [each for each in model.train().parameters() if each.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=asked.rate_of_learning)
    criterion = RecordLoss()
    for _ in range(asked.epochs):
        for ids, labels in DataLoader(data, batch_size=64, shuffle=True):
            optimizer.zero_grad()
            criterion(model(ids), labels).backward()
            optimizer.step()


def scores_of(
    asked: argparse.Namespace, initial: Logits, final: Logits, kinds: dict[str, Tokens]
) -> dict[str, dict[str, Any]]:
    """Return each canary's score by each rule, kind by kind; no coin is used."""
    found = {}
    for kind, canaries in kinds.items():
        gains = token_gains(final, canaries, reference=initial)
        losses = token_gains(final, canaries)
        asked.raw[f"{kind} gains"], asked.raw[f"{kind} losses"] = gains, losses
        found[kind] = {
            "loss": best_tokens(losses),
            "gain": best_tokens(gains),
            "best three": best_tokens(gains, 3),
        }
    if asked.training in HEAD:
        return found
    before, after = (
        [each for each in model.parameters() if each.requires_grad]
        for model in (initial, final)
    )
    every = [gradients_of(kind, initial, kinds[kind]) for kind in kinds]
    values = weight_scores(
        before,
        after,
        np.concatenate(every),
        besides=gradients_of("public", initial, Tokens(_public()[:PUBLIC])),
        ridge=4 * asked.noise**2 / (asked.rate * asked.steps),
    )
    ends = np.cumsum([len(each) for each in every])[:-1]
    for kind, part in zip(kinds, np.split(values, ends), strict=True):
        found[kind]["weights"] = asked.raw[f"{kind} weights"] = part
    return found


def one_run(asked: argparse.Namespace, seed: int) -> dict[str, Any]:
    start = time.process_time()
    initial = initial_model(asked.training)
    model = copy.deepcopy(initial)
    kinds = kinds_of(asked.training, initial)
    audits = audits_of(kinds, seed)
    rows = language_models.sequences(LENGTH)
    real, held_out = rows[:REAL], rows[REAL : REAL + HELD_OUT]
    inserted = [
        TensorDataset(each.ids, torch.full_like(each.labels, IGNORED))
        if asked.blank
        else audits[kind].included()
        for kind, each in kinds.items()
    ]
    data = ConcatDataset([TensorDataset(real, real), *inserted])
    torch.manual_seed(seed)
    (plain_training if asked.plain else private_training)(model, data, asked)
    found = {
        "perplexity": [
            language_models.perplexity(each, held_out) for each in (initial, model)
        ],
        "audits": [],
    }
    if asked.blank:
        return {**found, "cpu": time.process_time() - start}
    scores = scores_of(asked, initial, model, kinds)
    for kind, canaries in kinds.items():
        for name, values in scores[kind].items():
            row = judged(kind, canaries, seed, name, values)
            found["audits"].append(row)
            print(json.dumps(row), flush=True)
    found["cpu"] = time.process_time() - start
    return found


def judged(
    kind: str,
    canaries: Tokens,
    seed: int,
    score: str,
    values: Any,  # noqa: ANN401
) -> dict[str, Any]:
    """Return what one score shows; each is judged as if it were the only one."""
    audit = audits_of({kind: canaries}, seed)[kind]
    result = audit.finish(
        CanaryScores(
            ids=np.arange(len(values)), values=values, commitment=audit.commitment
        )
    )
    bits = coins_of(kind, seed, len(values))
    ones, zeros = values[bits], np.sort(values[~bits])
    return {
        "kind": kind,
        "score": score,
        "canaries": len(values),
        "epsilon": result.bound.epsilon_lower,
        "p_value": result.p_value,
        # how often an included canary scores above an excluded one
        "told": float(np.searchsorted(zeros, ones).mean() / len(zeros)),
    }


def coins_of(kind: str, seed: int, count: int) -> Any:  # noqa: ANN401
    return Coins(key=key_of(seed, kind), count=count).bits() == 1


def noise_of(rate: float, steps: int) -> float:
    return get_noise_multiplier(
        target_epsilon=CLAIM.epsilon,
        target_delta=CLAIM.delta,
        sample_rate=rate,
        steps=steps,
        accountant="prv",
    )


def setting_of(asked: argparse.Namespace) -> dict[str, Any]:
    told = {"training": asked.training, "learning rate": asked.rate_of_learning}
    if asked.blank:
        told |= BLANK
    if asked.plain:
        return {**told, "epochs": asked.epochs}
    made = {"optimizer": asked.optimizer, "rate": asked.rate, "steps": asked.steps}
    return {**told, **made}


def run(asked: argparse.Namespace) -> None:
    setting = setting_of(asked)
    done = {row["seed"] for row in lines(asked.store) if row["setting"] == setting}
    for seed in range(asked.first, asked.first + asked.runs):
        if seed in done:
            continue
        print(f"seed {seed}: {setting}", flush=True)
        asked.raw = {}
        row = {"setting": setting, "seed": seed, **one_run(asked, seed)}
        row["raw"] = f"{asked.store.stem}-{len(lines(asked.store))}.npz"
        np.savez(asked.store.with_name(row["raw"]), **asked.raw)
        add_line(asked.store, row)
        print(f"perplexity {row['perplexity']}, {row['cpu']:.0f} s of CPU", flush=True)


def by_setting(asked: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    found = defaultdict(list)
    for row in lines(asked.store):
        found[json.dumps(row["setting"], sort_keys=True)].append(row)
    return found


def pool(asked: argparse.Namespace) -> None:
    """Judge each run by a rule that the canaries of the other runs taught."""
    for setting, rows in by_setting(asked).items():
        training = json.loads(setting)["training"]
        if not rows[0]["audits"] or len(rows) == 1:
            continue
        raw = [np.load(asked.store.with_name(row["raw"])) for row in rows]
        pooled = []
        for kind, canaries in kinds_of(training, initial_model(training)).items():
            parts = [name for name in raw[0].files if name.startswith(f"{kind} ")]
            features = [np.column_stack([each[name] for name in parts]) for each in raw]
            coins = [coins_of(kind, row["seed"], len(canaries)) for row in rows]
            for at, row in enumerate(rows):
                values = pooled_scores(
                    features[at],
                    held_out=np.concatenate(features[:at] + features[at + 1 :]),
                    trained=np.concatenate(coins[:at] + coins[at + 1 :]),
                )
                pooled.append(judged(kind, canaries, row["seed"], "pooled", values))
        print(f"\n{setting}: {len(rows)} runs")
        show(pooled)


def table(asked: argparse.Namespace) -> None:
    found = by_setting(asked)
    for setting, rows in list(found.items()):
        before, after = np.mean([row["perplexity"] for row in rows], axis=0)
        seconds = np.mean([row["cpu"] for row in rows])
        print(f"\n{setting}: {len(rows)} runs, {seconds:.0f} s of CPU each")
        print(f"  perplexity {before:.2f} to {after:.2f}")
        show_lost(rows, found[json.dumps(json.loads(setting) | BLANK, sort_keys=True)])
        show([each for row in rows for each in row["audits"]])


def show_lost(rows: list[dict[str, Any]], blank: list[dict[str, Any]]) -> None:
    """Print what canaries cost, by runs of the same seed with and without them."""
    without = {row["seed"]: row["perplexity"][1] for row in blank}
    lost = [
        row["perplexity"][1] - without[row["seed"]]
        for row in rows
        if row["seed"] in without
    ]
    if len(lost) > 1 and rows is not blank:
        error = standard_error(lost)
        print(f"  canaries cost {np.mean(lost):.3f} ± {error:.3f}, {len(lost)} pairs")


def show(audits: list[dict[str, Any]]) -> None:
    found = defaultdict(list)
    for each in audits:
        found[each["kind"], each["score"], each["canaries"]].append(each)
    for (kind, score, canaries), each in found.items():
        bounds = np.array([one["epsilon"] for one in each])
        told = np.mean([one["told"] for one in each])
        error = standard_error(bounds) or 0.0
        refuted = sum(one["p_value"] <= 0.05 for one in each)
        print(
            f"  {kind:12} {score:12} {canaries:5} canaries: "
            f"{bounds.mean():.3f} ± {error:.3f}, told apart {told:.3f}, "
            f"refuted {refuted} of {len(each)}, least p "
            f"{min(one['p_value'] for one in each):.2g}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("run", "table", "pool"))
    parser.add_argument("--store", type=Path, default=Path("final_model.jsonl"))
    parser.add_argument("--training", choices=COUNTS, default="lora")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--rate", type=float, default=1.0)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd")
    parser.add_argument("--rate-of-learning", type=float, default=20.0)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--blank", action="store_true")
    parser.add_argument("--epochs", type=int, default=20, help="without privacy")
    asked = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    warnings.filterwarnings("ignore")
    # Without privacy nothing says how much noise to expect in the weights.
    asked.noise = 0.1 if asked.plain else noise_of(asked.rate, asked.steps)
    {"run": run, "table": table, "pool": pool}[asked.what](asked)


if __name__ == "__main__":
    main()
