"""One audited training with a bug planted, and what came of it.

``audit_bug`` looks by the canaries that were made for the bug. ``default_audit`` knows
nothing of it: it is what anyone gets who follows the guide to Opacus.
"""

import hashlib
from dataclasses import asdict, dataclass
from typing import Final, assert_never, final

import torch

from dpaudit.bounds.readings import Counts
from dpaudit.errors import InvalidInputError
from dpaudit.game.coins import Key
from dpaudit.game.design import Design
from dpaudit.game.result import Result
from dpaudit.game.rules import OneRun
from dpaudit.privacy.guarantees import ApproxDP
from dpaudit.testing import fixed_key
from dpaudit.training.opacus import Canary, OpacusAudit, plan_opacus
from dpaudit.training.opacus.setup import Facts, read_facts
from dpaudit_lab.bugzoo.bug import (
    Bug,
    Examples,
    PairedHalves,
    Ranks,
    Records,
    Sums,
    on_ranks,
)
from dpaudit_lab.bugzoo.distributed import distributed_run, paired_audit
from dpaudit_lab.bugzoo.ghost import token_run
from dpaudit_lab.bugzoo.honest import Run, private_run, train
from dpaudit_lab.bugzoo.processes import Plain, on_two_ranks
from dpaudit_lab.bugzoo.truth import DELTA, claimed_curve, epsilon_of
from dpaudit_lab.bugzoo.zoo import BUGS

__all__ = ["CAUGHT", "Outcome", "audit_bug", "audit_result", "default_audit"]

CAUGHT = 0.001  # a bug is caught if the p-value of the claim is below

_PLANNED: Final[dict[tuple[Facts, int], Design]] = {}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one audited training with a bug showed.

    Attributes:
        p_value: Of the accountant's whole curve.
        epsilon_lower: The lower bound at ``DELTA``.
        guesses: How many canaries were guessed.
        correct: How many of them rightly.
    """

    p_value: float
    epsilon_lower: float
    guesses: int
    correct: int

    @property
    def caught(self) -> bool:
        """Whether the claim is refuted at a level of one in a thousand."""
        return self.p_value < CAUGHT


def audit_bug(bug: Bug, seed: int) -> Outcome:
    """Train once with the bug planted, audited as the bug says, and judge.

    Args:
        bug: Of the zoo.
        seed: Decides everything, the coins too; real audits take a key from
            ``Key.generate()``.
    """
    if on_ranks(bug):
        if BUGS.get(bug.name) != bug:
            raise InvalidInputError(
                f"bug={bug.name!r} runs in processes of its own, which know the bugs "
                "of the zoo only"
            )
        return Outcome(**on_two_ranks(_on_a_rank, bug.name, seed))  # type: ignore[arg-type]
    return _outcome(audit_result(bug, seed))


def audit_result(bug: Bug, seed: int) -> Result:
    """Return the whole result of ``audit_bug``; in this process, if it has ranks."""
    if bug.insertion is None:
        raise InvalidInputError(
            f"bug={bug.name!r} has no audit of its own; use default_audit"
        )
    key, design = _key(bug, seed), _design(bug)
    match bug.insertion:
        case Records(canary=canary):
            torch.manual_seed(seed)
            run = private_run(bug.setting, canaries=bug.canaries)
            return _with_opacus_audit(bug, run, canary, design, key)
        case Sums():
            torch.manual_seed(seed)
            run = private_run(bug.setting)
            return _with_opacus_audit(bug, run, None, design, key)
        case Examples():
            torch.manual_seed(seed)
            run = token_run(bug.setting, bug.canaries)
            return _with_opacus_audit(bug, run, None, design, key)
        case Ranks():
            run = distributed_run(bug.setting, seed)
            return _with_opacus_audit(bug, run, None, design, key)
        case PairedHalves():
            run = distributed_run(bug.setting, seed)
            bug.plant(run)
            paired = paired_audit(run, design=design, key=key)
            train(run, run.loader)
            claim = claimed_curve(tuple(run.engine.accountant.history))
            return paired.finish(claim=claim)
        case _:
            assert_never(bug.insertion)


def default_audit(bug: Bug, seed: int, design: Design | None = None) -> Result:
    """Train once with the bug planted, audited by default with a probe, and judge.

    Args:
        bug: Of the zoo, and of one process.
        seed: Decides everything, the coins too.
        design: The default plan's if left out.
    """
    if on_ranks(bug):
        raise InvalidInputError(f"bug={bug.name!r} needs two ranks, and this is one")
    torch.manual_seed(seed)
    run = bug.make(bug.setting)
    bug.plant(run)
    audit = OpacusAudit(
        run.optimizer,
        run.loader,
        design=_planned(run) if design is None else design,
        key=_key(bug, seed),
        accountant=run.engine.accountant,
        model=run.model,
    )
    audit.probe(run.step)
    train(run, audit.data_loader)
    return audit.finish()


def _with_opacus_audit(
    bug: Bug, run: Run, canary: Canary | None, design: Design, key: Key
) -> Result:
    bug.plant(run)
    audit = OpacusAudit(
        run.optimizer,
        run.loader,
        design=design,
        key=key,
        accountant=run.engine.accountant,
        canary=canary,
        model=run.model if isinstance(bug.insertion, Examples) else None,
        step=run.step,
        # Of shuffled batches the real part would tell more than a claim allows.
        knows_real_sums=run.setting.poisson,
    )
    train(run, audit.data_loader)
    return audit.finish()


def _on_a_rank(name: str, seed: int) -> Plain:
    return asdict(_outcome(audit_result(BUGS[name], seed)))


def _outcome(result: Result) -> Outcome:
    counts = result.reading
    assert isinstance(counts, Counts)  # all guesses come at once
    return Outcome(
        p_value=result.p_value,
        epsilon_lower=result.bound.epsilon_lower,
        guesses=counts.guesses,
        correct=counts.correct,
    )


def _planned(run: Run) -> Design:
    """Return the design of the default plan, made once for all runs that are alike."""
    alike = (read_facts(run.optimizer, run.loader), run.setting.steps)
    if alike not in _PLANNED:
        plan = plan_opacus(
            run.optimizer, run.loader, steps=run.setting.steps, delta=DELTA
        )
        _PLANNED[alike] = plan.design()
    return _PLANNED[alike]


def _key(bug: Bug, seed: int) -> Key:
    return fixed_key(
        hashlib.sha256(f"dpaudit.bugzoo {bug.name} {seed}".encode()).digest()
    )


def _design(bug: Bug) -> Design:
    claim = ApproxDP(epsilon=epsilon_of(bug.truth.claimed), delta=DELTA)
    rules = OneRun(guesses=bug.guesses)
    return Design(canaries=bug.canaries, rules=rules, claim=claim)
