"""Do control records tell a silent model from one that was never asked?

    python lab/measure/black_box_controls.py [--runs 20]

Trainings of ``examples/black_box.py`` with control records, by Opacus to epsilon = 2
or without privacy: on what ``included()`` returns, on the data alone (forgotten), on
what another key gave, with all canaries left in the data, and not at all. Prints how
often each ended in which word. Last, audits on the boundary of their claim (randomised
response, epsilon = 1), judged with control records and without: how often refuted.
"""

import argparse
import contextlib
import copy
import io
import runpy
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, TensorDataset

from dpaudit import Design, Key, OneRun, PureDP
from dpaudit.stats.binomial import rate_limits
from dpaudit.testing import fixed_key
from dpaudit.training.black_box import BlackBoxAudit, CanaryScores, Controls

EXAMPLE = runpy.run_path(
    str(Path(__file__).resolve().parents[2] / "examples" / "black_box.py")
)
CASES = {
    "by Opacus": (True, lambda _data, audit, _other: [audit.included()]),
    "by Opacus, forgotten": (True, lambda _data, _audit, _other: []),
    "by Opacus, another key's": (True, lambda _data, _audit, other: [other.included()]),
    "without privacy, all canaries left in": (
        False,
        lambda data, audit, _other: [EXAMPLE["planted"](data)[1], audit.included()],
    ),
    "untrained": (None, None),
}


def key_of(*numbers: int) -> Key:
    return fixed_key(np.random.default_rng(numbers).bytes(32))


def trained(case: str, seed: int) -> str:
    """Return the word that a training ends in, and whether controls were told."""
    private, more = CASES[case]
    torch.manual_seed(seed)
    data = EXAMPLE["digits"]()
    audit, other = (
        EXAMPLE["opened"](data, key=key_of(seed, which), controlled=True)
        for which in (0, 1)
    )
    model = EXAMPLE["network"]()
    initial = copy.deepcopy(model)
    if private is None:  # another network that was never trained
        model = EXAMPLE["network"]()
    else:
        training_set = ConcatDataset([data, *more(data, audit, other)])
        name = "train_privately" if private else "train_plainly"
        with contextlib.redirect_stdout(io.StringIO()):
            EXAMPLE[name](model, training_set)
    scores = audit.score(model, loss=nn.functional.cross_entropy, reference=initial)
    result = audit.finish(scores)
    print(f"  {seed}: {result.verdict}; {result.controls[1].said}", flush=True)
    return str(result.verdict)


def refuted(seed: int, *, controlled: bool) -> bool:
    """Judge randomised response of epsilon = 1 by the claim that it meets exactly."""
    n = 100
    records = TensorDataset(torch.arange(n), torch.zeros(n))
    others = TensorDataset(n + torch.arange(20), torch.zeros(20))
    audit = BlackBoxAudit(
        records,
        design=Design(
            canaries=n, rules=OneRun(guesses=n), claim=PureDP(epsilon=1.0), alpha=0.05
        ),
        key=key_of(seed),
        controls=Controls(records=others, repeats=5) if controlled else None,
    )
    included = audit.included()
    inside = np.isin(np.arange(n), [int(included[i][0]) for i in range(len(included))])
    rng = np.random.default_rng([seed, 1])
    true = rng.random(n) < 1 / (1 + np.exp(-1.0))
    said = CanaryScores(
        ids=np.arange(n),
        values=(inside == true) * 1.0,
        commitment=audit.commitment,
        controls=rng.random(20) if controlled else (),
    )
    return str(audit.finish(said).verdict) == "refuted"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--audits", type=int, default=4000)
    parser.add_argument("--only", choices=[*CASES, "level"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for case in CASES:
        if options.only in (None, case):
            print(case, flush=True)
            words = Counter(trained(case, seed) for seed in range(options.runs))
            print(f"{case}: {dict(words)} of {options.runs}", flush=True)
    if options.only in (None, "level"):
        for controlled in (True, False):
            wrong = sum(
                refuted(seed, controlled=controlled) for seed in range(options.audits)
            )
            low, high = rate_limits(wrong, options.audits, alpha=0.05)
            print(
                f"refuted, control records {controlled}: {wrong} of {options.audits}, "
                f"rate {wrong / options.audits:.4f} [{low:.4f}, {high:.4f}]"
            )


if __name__ == "__main__":
    main()
