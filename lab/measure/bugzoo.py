"""The bug zoo: each bug planted in real Opacus runs, each run audited once.

    python lab/measure/bugzoo.py --store zoo.sqlite                   # or resume
    python lab/measure/bugzoo.py --page docs/explanation/bug-zoo.md   # fill its table
    python lab/measure/bugzoo.py --csv lab/results/bugzoo.csv         # write every row
    python lab/measure/bugzoo.py --only noise-repeated --trials 5     # a quick look

Prints for each bug what is spent, how many times the claim that is, and how often one
run refutes the claim at p < 0.001. Exits with 1 if a bug that spends at least four
times its claim was caught in fewer than 19 of 20 runs, unless we know no audit of one
run that could see it.
"""

import argparse
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from bugzoo_results import csv_text, table
from sweeping import filled

from dpaudit.bounds.methods import test_claim
from dpaudit.bounds.readings import Counts
from dpaudit.dpsgd.joining import Poisson
from dpaudit.dpsgd.sums import DiracSums
from dpaudit.engines.store import Outcome, Setting, Store
from dpaudit.engines.sweep import Sweep, run
from dpaudit.game.guessers import most_likely
from dpaudit.reporting.live import watched
from dpaudit.stats.binomial import rate_limits
from dpaudit_lab.bugzoo import BUGS, CAUGHT, Bug, audit_bug
from dpaudit_lab.bugzoo.bug import PairedHalves, Ranks, insertion_name
from dpaudit_lab.bugzoo.truth import Effective, claimed_curve, epsilon_of
from dpaudit_lab.pages import fill_page

T = TypeVar("T")
R = TypeVar("R")

_REVISION = 2  # to be raised whenever the zoo or the audit changes


@dataclass(frozen=True, kw_only=True)
class Row:
    """What the runs with one bug showed."""

    bug: Bug
    p_values: Sequence[float]
    predicted: float | None

    @property
    def caught(self) -> int:
        """In how many runs the claim was refuted."""
        return sum(p < CAUGHT for p in self.p_values)

    @property
    def misses(self) -> bool:
        """Whether a bug that should be caught is not, though it could be."""
        short = self.caught < 0.95 * len(self.p_values)
        return ratio(self.bug) >= 4 and short and self.bug.visible


def ratio(bug: Bug) -> float:
    """Return true epsilon over claimed epsilon."""
    return bug.truth.epsilon / epsilon_of(bug.truth.claimed)


def trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Train once with a bug, audited, and say what came of it."""
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = audit_bug(BUGS[str(setting["bug"])], int(rng.integers(2**31)))
    return {
        "p_value": found.p_value,
        "epsilon_lower": found.epsilon_lower,
        "correct": found.correct,
    }


def simulated_trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Play the same game on simulated sums with the bug's effective noise."""
    bug = BUGS[str(setting["bug"])]
    assert isinstance(bug.truth, Effective)
    ((noise, rate, steps),) = bug.truth.spent
    n = bug.canaries
    mechanism = DiracSums(
        coordinates=n,
        per_coordinate=1,
        participation=Poisson(rate=rate),
        sigma=noise,
        steps=steps,
    )
    bits = rng.integers(2, size=n)
    odds = mechanism.log_odds(mechanism.run(bits, rng))
    index, guess = most_likely(odds, guesses=bug.guesses)
    right = int(np.count_nonzero((guess > 0) == (bits[index] > 0)))
    counts = Counts(canaries=n, guesses=bug.guesses, correct=right)
    tested = test_claim(claimed_curve(bug.truth.claimed), counts, alpha=0.05)
    return {"p_value": tested.p_value}


def planned(
    names: Sequence[str], trials: int, function: Callable[..., Outcome], name: str
) -> Sweep:
    settings = [{"bug": bug} for bug in names]
    return Sweep(
        name=name,
        revision=_REVISION,
        function=function,
        settings=settings,
        trials=trials,
    )


class Here:
    """An engine for bugs on two ranks, which start processes of their own."""

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """Yield the function's results, one after the other, from this process."""
        return map(function, tasks)


def on_ranks(name: str) -> bool:
    return isinstance(BUGS[name].insertion, Ranks | PairedHalves)


def measured(
    sweep: Sweep, path: Path, *, workers: int, doing: str
) -> dict[str, list[float]]:
    """Run what is missing, and return the p-values of each bug."""
    ranks = [each for each in sweep.settings if on_ranks(str(each["bug"]))]
    others = [each for each in sweep.settings if each not in ranks]
    with Store(path) as store, watched(f"{doing} on ranks") as progress:
        part = replace(sweep, settings=ranks)
        run(part, engine=Here(), store=store, progress=progress)
    part = replace(sweep, settings=others)
    with filled(part, path, workers=workers, doing=doing) as store:
        return {
            str(setting["bug"]): [
                float(found["p_value"])
                for found in store.outcomes(sweep.cell(setting), sweep.trials)
            ]
            for setting in sweep.settings
        }


def as_plain(row: Row) -> dict[str, str]:
    """Return a row as the file holds it."""
    bug, runs = row.bug, len(row.p_values)
    low, high = rate_limits(row.caught, runs, alpha=0.05)
    return {
        **known(bug),
        "runs": str(runs),
        "caught": str(row.caught),
        "low": f"{low:.4g}",
        "high": f"{high:.4g}",
        "median_p": f"{np.median(row.p_values):.3g}",
        "simulated": "" if row.predicted is None else f"{row.predicted:.2f}",
    }


def known(bug: Bug) -> dict[str, str]:
    """Return what is known of a bug before any run."""
    return {
        "bug": bug.name,
        "title": bug.title,
        "claim": f"{epsilon_of(bug.truth.claimed):.6g}",
        "truth": str(bug.truth),
        "ratio": f"{ratio(bug):.6g}",
        "canary": insertion_name(bug.insertion),
        "canaries": str(bug.canaries),
        "story": bug.story,
        "truth_because": bug.truth.how,
        "seen_by": bug.seen_by,
        "remark": bug.remark,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--store", type=Path, default=Path("zoo.sqlite"))
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--simulated", type=int, default=50)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", nargs="*", choices=list(BUGS), default=list(BUGS))
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    fill = partial(measured, path=arguments.store, workers=arguments.workers)

    found = fill(
        planned(arguments.only, arguments.trials, trial, "bug zoo"),
        doing="bugs",
    )
    between = [
        name
        for name in arguments.only
        if BUGS[name].visible
        and isinstance(BUGS[name].truth, Effective)
        and 2 <= ratio(BUGS[name]) < 4
    ]
    simulated = fill(
        planned(between, arguments.simulated, simulated_trial, "bug zoo, simulated"),
        doing="simulations",
    )
    rows = [
        Row(
            bug=BUGS[name],
            p_values=found[name],
            predicted=float(np.mean(np.array(simulated[name]) < CAUGHT))
            if name in simulated
            else None,
        )
        for name in arguments.only
    ]
    plain = [as_plain(row) for row in rows]
    print(table(plain))
    if arguments.csv:
        arguments.csv.write_text(csv_text(plain), encoding="utf-8")
    if arguments.page:
        page = arguments.page.read_text(encoding="utf-8")
        page = fill_page(page, ["results"], lambda _: table(plain))
        arguments.page.write_text(page, encoding="utf-8")
    raise SystemExit(1 if any(row.misses for row in rows) else 0)


if __name__ == "__main__":
    main()
