"""Many small fine-tunings with one canary each: the other road to a bound.

    python lab/measure/many_fine_tunings.py run --runs 1200    # resumable
    python lab/measure/many_fine_tunings.py table

Every run fine-tunes a tiny Llama (adapters and head, Opacus, full batches, epsilon 4 at
delta 1e-5) on the same thirty rows and one canary, a token of its own that a coin puts
in or leaves blank. The score is the final model's gain on it. The first 200 runs teach
what scores look like; their coins are not guessed. Of the others: the classic bound
(every run guessed, and only the surest ones), and bets, which stop when sure. With
``--divide-noise-by`` the noise is too small by that.
"""

import argparse
import copy
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from opacus import PrivacyEngine
from scipy import special
from small_fine_tunings import CLAIM, LENGTH, WORDS, sentences, small_model
from sweeping import add_line, lines
from torch.utils.data import DataLoader, TensorDataset

from dpaudit.accounting import accountant_curve
from dpaudit.bounds.bets import BettingBound
from dpaudit.bounds.exact import SeparateRunsBound
from dpaudit.bounds.readings import Bets, Counts
from dpaudit.training.language_models import RecordLoss, Tokens, new_tokens, token_gains

REAL, STEPS, CLIP, LEARNT = 30, 3, 0.5, 200
ALPHA = 0.05


def noise() -> float:
    """Return the noise multiplier at which full batches cost epsilon 4."""
    low, high = 0.5, 10.0
    for _ in range(30):
        middle = (low + high) / 2
        curve = accountant_curve([(middle, 1.0, STEPS)])
        if curve.epsilon_at(CLAIM.delta) > CLAIM.epsilon:
            low = middle
        else:
            high = middle
    return high


def score(initial: Any, seed: int, sigma: float) -> tuple[int, float]:  # noqa: ANN401
    """Return a run's coin, and what its final model says of the canary."""
    canary = new_tokens([WORDS], before=list(range(2, 1 + LENGTH)))
    real = sentences(packed=True)
    bit = int(np.random.default_rng([seed, 1]).integers(2))
    labels = canary.labels if bit else torch.full_like(canary.labels, -100)
    ids = torch.cat([real.ids[:REAL], canary.ids])
    data = TensorDataset(ids, torch.cat([real.labels[:REAL], labels]))
    model = copy.deepcopy(initial)
    torch.manual_seed(seed)
    wrapped, optimizer, loader = PrivacyEngine().make_private(
        module=model.train(),
        optimizer=torch.optim.SGD(
            [each for each in model.parameters() if each.requires_grad], lr=0.5
        ),
        data_loader=DataLoader(data, batch_size=len(data)),
        noise_multiplier=sigma,
        max_grad_norm=CLIP,
    )
    criterion = RecordLoss()
    for _ in range(STEPS):
        for given, wanted in loader:
            optimizer.zero_grad()
            criterion(wrapped(given), wanted).backward()
            optimizer.step()
    gains = token_gains(model, Tokens(canary.ids, canary.labels), reference=initial)
    return bit, float(np.nanmean(gains))


def log_odds(rows: list[dict[str, Any]]) -> tuple[Any, Any, float]:
    """Return coins and log-odds of the runs that were not learned from."""
    bits = np.array([row["bit"] for row in rows])
    scores = np.array([row["score"] for row in rows])
    first_bits, first = bits[:LEARNT], scores[:LEARNT]
    ones, zeros = first[first_bits == 1], first[first_bits == 0]
    spread = float(np.sqrt((ones.var() + zeros.var()) / 2))
    effect = (ones.mean() - zeros.mean()) / spread
    middle = (ones.mean() + zeros.mean()) / 2
    return bits[LEARNT:], effect * (scores[LEARNT:] - middle) / spread, effect


def table(path: Path) -> None:
    rows = lines(path)
    for divided in sorted({row["divided"] for row in rows}):
        chosen = [row for row in rows if row["divided"] == divided]
        bits, odds, effect = log_odds(chosen)
        right = (odds > 0) == (bits == 1)
        count = len(bits)
        seconds = np.mean([row["cpu"] for row in chosen])
        print(
            f"\nnoise / {divided:g}: {count} runs of {seconds:.2f} s, "
            f"effect {effect:.2f}"
        )
        found = classic(count, count, int(right.sum()))
        print(f"  classic, every run guessed: {right.sum()} right, epsilon {found}")
        surest = np.argsort(-np.abs(odds))[: count // 10]
        found = classic(count, len(surest), int(right[surest].sum()))
        print(f"  classic, the surest tenth: {right[surest].sum()} right, {found}")
        stakes = special.expit(np.abs(odds))
        ends = range(1, count + 1)
        course = np.array([betting(count, right[:n], stakes[:n]) for n in ends])
        at = {n: round(float(course[n - 1]), 2) for n in (100, 300, 1000) if n <= count}
        sure = int(np.argmax(course >= CLAIM.epsilon)) + 1 if course[-1] >= 4 else None
        print(f"  bets, after so many runs: {at}; refuted after {sure} runs")


def betting(runs: int, right: np.ndarray, stakes: np.ndarray) -> float:
    bets = Bets(canaries=runs, right=right, stated_probabilities=stakes)
    return (
        BettingBound().epsilon_lower(bets, delta=CLAIM.delta, alpha=ALPHA).epsilon_lower
    )


def classic(runs: int, guesses: int, right: int) -> str:
    counts = Counts(canaries=runs, guesses=guesses, correct=right)
    bound = SeparateRunsBound().epsilon_lower(counts, delta=CLAIM.delta, alpha=ALPHA)
    return f"{bound.epsilon_lower:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("--runs", type=int, default=1200)
    parser.add_argument("--divide-noise-by", type=float, default=1.0)
    parser.add_argument("--store", type=Path, default=Path("many.jsonl"))
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    if asked.what == "table":
        return table(asked.store)
    torch.manual_seed(0)
    initial = small_model("llama", head=True)
    sigma, divided = noise() / asked.divide_noise_by, asked.divide_noise_by
    known = lines(asked.store)
    done = {row["seed"] for row in known if row["divided"] == divided}
    for seed in range(asked.runs):
        if seed in done:
            continue
        start = time.process_time()
        bit, value = score(initial, seed, sigma)
        cpu = time.process_time() - start
        row = {"seed": seed, "divided": divided, "bit": bit, "score": value, "cpu": cpu}
        add_line(asked.store, row)
    return table(asked.store)


if __name__ == "__main__":
    main()
