"""``dpaudit which``: which audit can be done with what a user has.

The page "Which audit can I do?" is made from the same values.
"""

from dataclasses import dataclass
from enum import StrEnum
from textwrap import fill
from typing import Annotated, Final, final

import typer

__all__ = ["ANSWERS", "AuditAnswer", "Have", "which"]

_WIDTH: Final = 88


class Have(StrEnum):
    """What a user has who wants to audit."""

    OPACUS = "opacus"
    JAX = "jax"
    TRAINING = "training"
    LORA = "lora"
    FLOWER = "flower"
    PFL = "pfl"
    MODEL = "model"
    SCORES = "scores"
    COUNTS = "counts"
    FUNCTION = "function"
    EVIDENCE = "evidence"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AuditAnswer:
    """Which audit can be done.

    Attributes:
        what: What the user has, in words.
        shows: What the audit can show.
        not_shown: What it cannot, and why.
        lines: Calls to copy; names that are not imported are the user's own.
        page: The guide, below docs/.
    """

    what: str
    shows: str
    not_shown: str
    lines: tuple[str, ...]
    page: str


_TRAINING_SHOWS: Final = (
    "A lower bound on the epsilon of the run against an adversary who sees every "
    "iterate, and whether batch sampling, sensitivity, noise and accounting are as the "
    "claim assumes."
)
_TRAINING_LIMITS: Final = (
    "Logs and other outputs besides the model, preprocessing before the loader. No "
    "audit proves a claim."
)
_DESIGN: Final = (
    "design = Design(canaries=1000, rules=OneRun(guesses=200), "
    "claim=ApproxDP(epsilon=2.0, delta=1e-5))",
)
_FEDERATED_SHOWS: Final = (
    "A lower bound on the epsilon of one user against an adversary who sees the "
    "aggregate of every round; whether the noise of each round is as claimed, and "
    "whether one client can weigh more than the noise is scaled for."
)
_FEDERATED_LIMITS: Final = (
    "Secure aggregation, which the server's sum stands for; noise that clients add "
    "themselves; several accounts of one person."
)

ANSWERS: Final = {
    Have.OPACUS: AuditAnswer(
        what="a training loop with Opacus, also with Lightning or Hugging Face",
        shows=_TRAINING_SHOWS,
        not_shown=_TRAINING_LIMITS,
        lines=(
            "from dpaudit import audit_opacus",
            "audit = audit_opacus(engine, model, optimizer, loader, epochs=3, "
            "delta=1e-5, step=step)",
            "# train as always, calling step(batch); then:",
            "print(audit.finish())",
        ),
        page="how-to/audit-opacus.md",
    ),
    Have.JAX: AuditAnswer(
        what="a training loop with JAX Privacy",
        shows=_TRAINING_SHOWS,
        not_shown=_TRAINING_LIMITS,
        lines=(
            "from dpaudit import ApproxDP, Design, JaxAudit, Key, OneRun",
            *_DESIGN,
            "audit = JaxAudit(params, grad_fn, sampling, event, design=design, "
            "key=Key.generate())",
            "privatizer = audit.wrap(privatizer)",
            "# train as always; then:",
            "print(audit.finish())",
        ),
        page="how-to/audit-jax-privacy.md",
    ),
    Have.TRAINING: AuditAnswer(
        what="another DP training loop that can hand over its noisy sums",
        shows=_TRAINING_SHOWS,
        not_shown=_TRAINING_LIMITS,
        lines=(
            "from dpaudit import ApproxDP, Design, Key, OneRun, SumsAudit",
            *_DESIGN,
            "audit = SumsAudit(design=design, key=Key.generate(), dimension=dimension, "
            "sample_rate=rate, noise=sigma)",
            "# in each step, in units of the clipping norm:",
            "total[audit.coordinates] += audit.contributions()",
            "audit.observe((total + noise)[audit.coordinates])",
            "# after the last step:",
            "print(audit.finish())",
        ),
        page="how-to/audit-any-loop.md",
    ),
    Have.LORA: AuditAnswer(
        what="the DP fine-tuning of a language model (LoRA, Trainer, TRL)",
        shows="For an adversary who sees every step: a lower bound, and whether "
        "clipping, noise and accounting are as claimed, in adapters and heads and with "
        "ghost clipping. For one who sees only the final model, by canary texts: "
        "whether it leaks records grossly.",
        not_shown="That little leaks, from a low bound of the second adversary: bounds "
        "far below the claim are normal for a final model, and even a third of the "
        "configured noise may pass undetected.",
        lines=(
            "from dpaudit import BlackBoxAudit, Key, audit_opacus",
            "inside = audit_opacus(engine, model, optimizer, loader, epochs=3, "
            "delta=1e-5, step=step)",
            "outside = BlackBoxAudit(canaries, design=design, key=Key.generate(), "
            "fillers=canaries.blank())",
        ),
        page="tutorials/language-model.md",
    ),
    Have.FLOWER: AuditAnswer(
        what="a federated run with Flower",
        shows=_FEDERATED_SHOWS,
        not_shown=_FEDERATED_LIMITS,
        lines=(
            "from dpaudit import ApproxDP, Design, FlowerAudit, Key, OneRun",
            *_DESIGN,
            "audit = FlowerAudit(strategy, arrays, design=design, key=Key.generate())",
            "audit.wrap().start(grid, arrays, num_rounds=50)",
            "print(audit.finish())",
        ),
        page="how-to/audit-federated.md",
    ),
    Have.PFL: AuditAnswer(
        what="a federated run with pfl",
        shows=_FEDERATED_SHOWS,
        not_shown=_FEDERATED_LIMITS,
        lines=(
            "from dpaudit import ApproxDP, Design, Key, OneRun, PflAudit",
            *_DESIGN,
            "audit = PflAudit(model, mechanism, accountant, data=some_user, "
            "design=design, key=Key.generate())",
            "backend = SimulatedBackend(training_data=audit.dataset(users), "
            "val_data=users, postprocessors=audit.around([mechanism]))",
            "# run the algorithm on this backend; then:",
            "print(audit.finish())",
        ),
        page="how-to/audit-federated.md",
    ),
    Have.MODEL: AuditAnswer(
        what="a trained model and its data, without retraining",
        shows="Nothing about epsilon. A bound compares guesses with coin flips that "
        "decided, before training, which canaries were included. Here membership was "
        "not randomised, so it is not known how well the same guesses would do had "
        "the records been left out. If you can train once more, insert canaries first; "
        "then the final model is enough.",
        not_shown="Even then a low bound shows little: a final model reveals far less "
        "than the iterates do.",
        lines=(
            "from dpaudit import BlackBoxAudit, Key",
            "audit = BlackBoxAudit(canaries, design=design, key=Key.generate())",
        ),
        page="how-to/audit-a-model-from-outside.md",
    ),
    Have.SCORES: AuditAnswer(
        what="a score for each canary, and the coin flips that decided its inclusion",
        shows="A lower bound on epsilon and a verdict on a claim, for any mechanism, "
        "from ten scores or a billion.",
        not_shown="That the coins were fair and secret, unless they were registered "
        "before the run.",
        lines=(
            "dpaudit register --canaries 2000 --epsilon 2 --delta 1e-5 --key audit.key "
            "--coins coins.csv",
            "dpaudit audit scores.csv --design design.json --key audit.key",
        ),
        page="how-to/audit-scores.md",
    ),
    Have.COUNTS: AuditAnswer(
        what="the number of guesses and of correct ones",
        shows="A lower bound on epsilon, if the number of guesses was fixed first.",
        not_shown="Where the counts come from.",
        lines=(
            "dpaudit bound --canaries 100000 --guesses 1510 --correct 1439 --delta "
            "1e-5",
        ),
        page="how-to/audit-scores.md",
    ),
    Have.FUNCTION: AuditAnswer(
        what="a function that should be private, such as one of a library",
        shows="Whether two inputs can be distinguished better than the claim allows: "
        "pure, (epsilon, delta), zCDP, Renyi or Gaussian. In a test suite, with one "
        "error rate for all its tests, or over many nights.",
        not_shown="Inputs other than those that the test names or describes.",
        lines=(
            "def test_laplace(dp_audit): dp_audit(laplace, pairs=(0, 1), epsilon=1.0)",
        ),
        page="how-to/test-a-library.md",
    ),
    Have.EVIDENCE: AuditAnswer(
        what="evidence from somebody else, or a report that you received",
        shows="That coins, guesses, bound and verdict follow from each other and from "
        "what was registered. Ask for the evidence: a report alone shows nothing.",
        not_shown="That the run happened as described, or that no other run was left "
        "out.",
        lines=(
            "dpaudit verify evidence.json --registration design.json --files . "
            "--public-key public.pem",
        ),
        page="how-to/verify.md",
    ),
}


def which(
    have: Annotated[
        Have | None, typer.Argument(help="What you have; by default all are listed.")
    ] = None,
) -> None:
    """Show which audit can be done with what you have, and what it cannot show."""
    typer.echo(_question() if have is None else _answer(ANSWERS[have]))


def _question() -> str:
    width = max(map(len, ANSWERS))
    asked = (
        f"  dpaudit which {name:<{width}}  {answer.what}"
        for name, answer in ANSWERS.items()
    )
    return "\n".join(["What do you have?", "", *asked])


def _answer(answer: AuditAnswer) -> str:
    parts = [
        f"With {answer.what}:",
        fill(f"Can be shown: {answer.shows}", _WIDTH),
        fill(f"Cannot be shown: {answer.not_shown}", _WIDTH),
        "\n".join(f"  {line}" for line in answer.lines),
        f"More: docs/{answer.page}",
    ]
    return "\n\n".join(parts)
