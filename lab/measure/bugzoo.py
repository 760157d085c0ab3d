"""The bug zoo: each bug planted in real Opacus runs, each run audited once.

    python lab/measure/bugzoo.py --default --store zoo.sqlite         # or resume
    python lab/measure/bugzoo.py --store zoo.sqlite                   # made for each
    python lab/measure/bugzoo.py --page docs/explanation/bug-zoo.md   # fill its table
    python lab/measure/bugzoo.py --csv lab/results/bugzoo.csv         # write every row
    python lab/measure/bugzoo.py --only noise-repeated --trials 5     # a quick look

With ``--default`` it is the audit that anyone gets, with a probe of the step. Prints
for each bug how the runs ended, at which stage it was caught and the cause that was
named, or else how its stage was checked. Exits with 1 if a run ended with "no violation
detected" though the bug's stage was tested or inspected.

Otherwise it is the audit that was made for a bug, if there is one. Prints what is
spent, how many times the claim that is, and how often one run refutes the claim at p <
0.001. Exits with 1 if a bug that spends at least four times its claim was caught in
fewer than 19 of 20 runs, unless we know no canaries in one run that could see it.

Either fills its own columns of the file and of the page, and leaves the others.
"""

import argparse
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np
import torch
from bugzoo_results import RESULTS, TABLES, csv_text, merged, read_csv, table
from sweeping import filled

from dpaudit.bounds.methods import judge_claim
from dpaudit.bounds.readings import Counts
from dpaudit.dpsgd.sampling import Poisson
from dpaudit.dpsgd.sums import DiracSums
from dpaudit.errors import InvalidInputError
from dpaudit.game.findings import Finding, Stage, Status
from dpaudit.game.guessers import most_likely
from dpaudit.game.result import Result
from dpaudit.game.text.findings import fault_parts
from dpaudit.game.text.stages import stage_name
from dpaudit.game.text.terms import terms_of
from dpaudit.game.verdict import Verdict
from dpaudit.stats.binomial import rate_limits
from dpaudit_lab.bugzoo import BUGS, CAUGHT, Bug, audit_bug, default_audit
from dpaudit_lab.bugzoo.bug import insertion_name, on_ranks
from dpaudit_lab.bugzoo.truth import Effective, claimed_curve, epsilon_of
from dpaudit_lab.held_out.program import HYPOTHESIS_OF
from dpaudit_lab.pages import fill_page
from dpaudit_lab.sweeps.progress import watched
from dpaudit_lab.sweeps.store import Outcome, Setting, Store
from dpaudit_lab.sweeps.sweep import Sweep, run

T = TypeVar("T")
R = TypeVar("R")
Fill: TypeAlias = Callable[..., dict[str, list[Outcome]]]

_REVISION = 3  # to be raised whenever the zoo or the audit changes
_DEFAULT_REVISION = 5  # likewise, of the default audit

REFUSED = "refused"
ENOUGH = (Verdict.CLAIM_REFUTED, Verdict.FAULT_FOUND)


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


@dataclass(frozen=True, kw_only=True)
class DefaultRow:
    """What the default audit said of runs with one bug."""

    bug: Bug
    outcomes: Sequence[Outcome]

    @property
    def verdicts(self) -> Counter[str]:
        """How the runs ended."""
        return Counter(str(each["verdict"]) for each in self.outcomes)

    @property
    def caught(self) -> int:
        """In how many runs the claim was refuted, or a fault was found."""
        return sum(self.verdicts[verdict] for verdict in ENOUGH)

    @property
    def caught_by(self) -> str:
        """By what, in most runs; of a bug that is missed, how its stage was checked."""
        said = [str(e["said"]) for e in self.outcomes if e["verdict"] in ENOUGH]
        said = said or [str(each["said"]) for each in self.outcomes]
        return Counter(said).most_common(1)[0][0]

    @property
    def hypothesis(self) -> str:
        """Which hypothesis failed in most runs; empty if none did."""
        failed = [str(e["hypothesis"]) for e in self.outcomes if e["verdict"] in ENOUGH]
        return Counter(failed).most_common(1)[0][0] if failed else ""

    @property
    def blind(self) -> bool:
        """Whether a run that was called clean had checked the bug's stage."""
        return any(
            each["verdict"] == Verdict.NO_VIOLATION_DETECTED
            and each["check"] != Status.NOT_CHECKED
            for each in self.outcomes
        )

    def as_plain(self) -> dict[str, str]:
        """Return it as the file holds it."""
        runs, ended = len(self.outcomes), [*self.verdicts]
        alike = len(ended) == 1 and not self.caught
        every = f"{ended[0]}, {runs} of {runs}" if alike else f"{self.caught} of {runs}"
        return {
            "default": every,
            "hypothesis": self.hypothesis,
            "caught_by": self.caught_by,
        }

    def __str__(self) -> str:
        ended = ", ".join(f"{how} {n}" for how, n in self.verdicts.most_common())
        wrong = "  <- called clean" if self.blind else ""
        return f"{self.bug.name}: {ended}; {self.caught_by}{wrong}"


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


def default_trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Train once with a bug, audited by default, and say what came of it."""
    torch.set_num_threads(1)
    bug = BUGS[str(setting["bug"])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            found = default_audit(bug, int(rng.integers(2**31)))
        except InvalidInputError as error:
            why = str(error).partition(",")[0]
            return {
                "verdict": REFUSED,
                "said": why,
                "check": str(Status.NOT_CHECKED),
                "hypothesis": "",
            }
    assert found.training is not None
    checks = found.training.coverage.checks
    (check,) = (each for each in checks if each.stage is bug.stage)
    return {
        "verdict": str(found.verdict),
        "said": said_of(bug, found, check.status),
        "check": str(check.status),
        "hypothesis": next(
            (HYPOTHESIS_OF[each.stage or bug.stage] for each in faults_of(bug, found)),
            "",
        ),
    }


def faults_of(bug: Bug, found: Result) -> list[Finding]:
    """Return the faults of a run, those at the bug's own stage first."""
    return sorted(found.faults, key=lambda fault: fault.stage is not bug.stage)


def said_of(bug: Bug, found: Result, status: Status) -> str:
    """Return by what a bug was caught, or how its stage was checked."""
    faults = faults_of(bug, found)
    if faults:
        *_, cause = fault_parts(faults[0])
        return f"{named(faults[0].stage or bug.stage)}: {cause}"
    if found.refuted:
        return "the claim is refuted"
    return f"nothing; {named(bug.stage)}: {status}"


def named(stage: Stage) -> str:
    """Return what the file calls a stage."""
    return stage_name(stage, terms_of(None))


def simulated_trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Play the same game on simulated sums with the bug's effective noise."""
    bug = BUGS[str(setting["bug"])]
    assert isinstance(bug.truth, Effective)
    ((noise, rate, steps),) = bug.truth.spent
    n = bug.canaries
    mechanism = DiracSums(
        coordinates=n,
        per_coordinate=1,
        sampling=Poisson(rate=rate),
        sigma=noise,
        steps=steps,
    )
    bits = rng.integers(2, size=n)
    odds = mechanism.log_odds(mechanism.run(bits, rng))
    index, guess = most_likely(odds, guesses=bug.guesses)
    right = int(np.count_nonzero((guess > 0) == (bits[index] > 0)))
    counts = Counts(canaries=n, guesses=bug.guesses, correct=right)
    tested = judge_claim(claimed_curve(bug.truth.claimed), counts, alpha=0.05)
    return {"p_value": tested.p_value}


def planned(
    names: Sequence[str],
    trials: int,
    function: Callable[..., Outcome],
    name: str,
    revision: int = _REVISION,
) -> Sweep:
    settings = [{"bug": bug} for bug in names]
    return Sweep(
        name=name,
        revision=revision,
        function=function,
        settings=settings,
        trials=trials,
    )


class Here:
    """An engine for bugs on two ranks, which start processes of their own."""

    def map(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """Yield the function's results, one after the other, from this process."""
        return map(function, tasks)


def measured(
    sweep: Sweep, path: Path, *, workers: int, doing: str
) -> dict[str, list[Outcome]]:
    """Run what is missing, and return what came of the runs of each bug."""
    ranks = [each for each in sweep.settings if on_ranks(BUGS[str(each["bug"])])]
    others = [each for each in sweep.settings if each not in ranks]
    with Store(path) as store, watched(f"{doing} on ranks") as progress:
        part = replace(sweep, settings=ranks)
        run(part, engine=Here(), store=store, progress=progress)
    part = replace(sweep, settings=others)
    with filled(part, path, workers=workers, doing=doing) as store:
        return {
            str(setting["bug"]): list(store.outcomes(sweep.cell(setting), sweep.trials))
            for setting in sweep.settings
        }


def p_values(outcomes: Iterable[Outcome]) -> list[float]:
    return [float(found["p_value"]) for found in outcomes]


def as_plain(row: Row) -> dict[str, str]:
    """Return a row as the file holds it."""
    runs = len(row.p_values)
    low, high = rate_limits(row.caught, runs, alpha=0.05)
    return {
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
        "stage": named(bug.stage),
        "canary": insertion_name(bug.insertion),
        "canaries": str(bug.canaries or ""),
        "story": bug.story,
        "truth_because": bug.truth.how,
        "seen_by": bug.seen_by,
        "remark": bug.remark,
    }


def default_rows(names: Sequence[str], fill: Fill, trials: int) -> list[DefaultRow]:
    """Return what the default audit says of bugs of one process."""
    names = [name for name in names if not on_ranks(BUGS[name])]
    sweep = planned(
        names, trials, default_trial, "bug zoo, default audit", _DEFAULT_REVISION
    )
    found = fill(sweep, doing="bugs, by default")
    return [DefaultRow(bug=BUGS[name], outcomes=found[name]) for name in names]


def rows(names: Sequence[str], fill: Fill, trials: int, simulations: int) -> list[Row]:
    """Return what audits made for bugs say of them."""
    names = [name for name in names if BUGS[name].insertion is not None]
    found = fill(planned(names, trials, trial, "bug zoo"), doing="bugs")
    between = [
        name
        for name in names
        if BUGS[name].visible
        and isinstance(BUGS[name].truth, Effective)
        and 2 <= ratio(BUGS[name]) < 4
    ]
    simulated = fill(
        planned(between, simulations, simulated_trial, "bug zoo, simulated"),
        doing="simulations",
    )
    return [
        Row(
            bug=BUGS[name],
            p_values=p_values(found[name]),
            predicted=float(np.mean(np.array(p_values(simulated[name])) < CAUGHT))
            if name in simulated
            else None,
        )
        for name in names
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--default", action="store_true")
    parser.add_argument("--store", type=Path, default=Path("zoo.sqlite"))
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--simulated", type=int, default=50)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", nargs="*", choices=list(BUGS), default=list(BUGS))
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    fill = partial(measured, path=arguments.store, workers=arguments.workers)

    if arguments.default:
        seen = default_rows(arguments.only, fill, arguments.trials)
        missed = any(row.blind for row in seen)
        found = {
            name: {"default": "one rank: not run"}
            for name in arguments.only
            if on_ranks(BUGS[name])
        } | {row.bug.name: row.as_plain() for row in seen}
        print(*seen, sep="\n")
    else:
        made = rows(arguments.only, fill, arguments.trials, arguments.simulated)
        missed = any(row.misses for row in made)
        found = {row.bug.name: as_plain(row) for row in made}
    held = arguments.csv if arguments.csv and arguments.csv.exists() else RESULTS
    plain = merged(
        read_csv(held.read_text(encoding="utf-8")), map(known, BUGS.values()), found
    )
    if not arguments.default:
        print(table(row for row in plain if row["bug"] in found))
    if arguments.csv:
        arguments.csv.write_text(csv_text(plain), encoding="utf-8")
    if arguments.page:
        page = arguments.page.read_text(encoding="utf-8")
        page = fill_page(
            page, TABLES, lambda name: table(plain) if name == "results" else None
        )
        arguments.page.write_text(page, encoding="utf-8")
    raise SystemExit(1 if missed else 0)


if __name__ == "__main__":
    main()
