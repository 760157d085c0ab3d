"""What becomes of evidence that was tampered with.

    python lab/measure/tampering.py                   # 10,000 mutants of either
    python lab/measure/tampering.py --mutants 500

Signed evidence: one field of the payload is changed under the old signature, or one
field of the envelope, or one place of the file. Each mutant must be found out, or be
the same payload under the same signature in another spelling. Unsigned evidence: one
field is changed, and the statement's hashes are put right. Each mutant must be found
out, or read as the same evidence, or leave less to check, of which verification says
so; unless its field is among those that verification itself lists as stated.

Beside a registration: one field of what evidence says was registered is changed (the
program's digest and the verifier's nonce are among them), with the true copy at hand;
or one field of the copy, or it is said twice. None may pass.

All of it takes less than 30 minutes of one core for 10,000 mutants of each kind, or it
fails.
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from dpaudit.evidence import Evidence, seal
from dpaudit.evidence.signing import generate_signing_key

# The mutants are those of the tests.
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "evidence"))

from evidence_samples import KINDS, of_scores
from evidence_trials import (
    SIGNED_WAYS,
    Trial,
    registration_trial,
    signed_trial,
    unsigned_trial,
)

MOST = 1000
LIMIT = 1800  # seconds of one core


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--mutants", type=int, default=10_000)
    asked.add_argument("--seed", type=int, default=0)
    arguments = asked.parse_args()
    rng, start = np.random.default_rng(arguments.seed), time.process_time()
    with TemporaryDirectory() as name:
        folder = Path(name)
        kinds = {kind: make() for kind, make in KINDS.items()}
        kinds["score files"] = of_scores(folder)
        missed = signed(kinds, folder, arguments.mutants, rng)
        missed += registered(kinds, folder, arguments.mutants, rng)
        missed += unsigned(kinds, folder, arguments.mutants, rng)
    took = time.process_time() - start
    print(f"\n{missed} missed; {took:.0f} s of one core, of {LIMIT} s allowed")
    return 1 if missed or took > LIMIT else 0


def signed(
    kinds: dict[str, Evidence], folder: Path, mutants: int, rng: np.random.Generator
) -> int:
    key, size = generate_signing_key(), len(kinds) * len(SIGNED_WAYS)
    print("Signed\n\n| changed | mutants | found out | harmless | missed | by |")
    print("|---|---|---|---|---|---|")
    missed, run = 0, 0
    for way in SIGNED_WAYS:
        whole = Trial()
        for evidence in kinds.values():
            run += 1
            text, count = seal(evidence, key), mutants * run // size
            count -= mutants * (run - 1) // size
            trial = signed_trial(
                text, key.public_key, way, mutants=count, rng=rng, files=folder
            )
            whole.add(trial)
        print(
            f"| {way} | {whole.tried.total()} | {whole.found} | {whole.harmless} | "
            f"{whole.missed.total()} | {said(whole.by)} |"
        )
        for name, count in sorted(whole.missed.items()):
            print(f"  missed: {name} ({count})")
        missed += whole.missed.total()
    return missed


def registered(
    kinds: dict[str, Evidence], folder: Path, mutants: int, rng: np.random.Generator
) -> int:
    print("\nBeside a registration\n")
    print("| changed | mutants | found out | harmless | less checked | missed | by |")
    print("|---|---|---|---|---|---|---|")
    missed, each = 0, -(-mutants // (2 * len(kinds)))
    for what in ("what evidence says was registered", "the registered copy"):
        whole = Trial()
        for evidence in kinds.values():
            text = seal(evidence)
            if what == "the registered copy":
                trial = registration_trial(text, mutants=each, rng=rng, files=folder)
            else:
                trial = unsigned_trial(
                    text,
                    mutants=each,
                    rng=rng,
                    files=folder,
                    within="registration",
                    registration=evidence.registration,
                )
            whole.add(trial)
        print(
            f"| {what} | {whole.tried.total()} | {whole.found} | {whole.harmless} | "
            f"{whole.weaker} | {whole.missed.total()} | {said(whole.by)} |",
            flush=True,
        )
        for name, count in sorted(whole.missed.items()):
            print(f"  missed: {name} ({count})")
        missed += whole.missed.total()
    return missed


def unsigned(
    kinds: dict[str, Evidence], folder: Path, mutants: int, rng: np.random.Generator
) -> int:
    print("\nUnsigned\n")
    print(
        "| evidence | mutants | fields | found out | harmless | less checked | stated "
        "| missed |\n|---|---|---|---|---|---|---|---|"
    )
    missed, lists = 0, {}
    for run, (kind, evidence) in enumerate(kinds.items()):
        count = mutants * (run + 1) // len(kinds) - mutants * run // len(kinds)
        trial = unsigned_trial(seal(evidence), mutants=count, rng=rng, files=folder)
        listed = set(trial.missed) - set(trial.unlisted())
        stated = sum(trial.missed[name] for name in listed)
        out = trial.missed.total() - stated
        print(
            f"| {kind} | {count} | {len(trial.tried)} | {trial.found} | "
            f"{trial.harmless} | {trial.weaker} | {stated} | {out} |",
            flush=True,
        )
        for name in trial.unlisted():
            print(f"  missed: {name} ({trial.missed[name]})")
        missed += out
        lists[kind] = ", ".join(
            f"{name} ({passing(seal(evidence), name, folder, rng)})"
            for name in trial.stated
        )
    print(f"\nListed as stated; which of {MOST} mutants of each was the first to pass")
    for kind, names in lists.items():
        print(f"- {kind}: {names}")
    return missed


def passing(text: str, name: str, folder: Path, rng: np.random.Generator) -> str:
    """Return which mutant of a field was the first that verification let pass."""
    for tried in range(1, MOST + 1):
        trial = unsigned_trial(text, mutants=1, rng=rng, files=folder, within=name)
        if trial.missed:
            return str(tried)
    return "none"


def said(by: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in by.most_common())


if __name__ == "__main__":
    sys.exit(main())
