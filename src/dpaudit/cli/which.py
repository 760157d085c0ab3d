"""``dpaudit which``: what can be audited with what somebody has, and what cannot.

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
    """What somebody who wants to audit has."""

    TRAINING = "training"
    LANGUAGE = "language"
    MODEL = "model"
    FEDERATED = "federated"
    SCORES = "scores"
    COUNTS = "counts"
    FUNCTION = "function"
    EVIDENCE = "evidence"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AuditAnswer:
    """What can be done.

    Attributes:
        what: What somebody has, in words.
        shows: What can be shown with it.
        not_shown: What cannot, and why.
        lines: What to type.
        page: Where it is told, below docs/.
    """

    what: str
    shows: str
    not_shown: str
    lines: tuple[str, ...]
    page: str


ANSWERS: Final = {
    Have.TRAINING: AuditAnswer(
        what="a DP training loop that you can run (Opacus, JAX Privacy, your own)",
        shows="Whether noise, accounting, clipping and sampling are as claimed, in the "
        "run that you do anyway, and a lower bound on its epsilon against somebody who "
        "sees every step. Two lines in Opacus; any loop that hands over its noisy sums "
        "can be audited.",
        not_shown="What leaves besides the model, such as logs, and what is done to "
        "records before the loader. No audit proves a claim.",
        lines=(
            "audit = audit_opacus(engine, model, optimizer, loader, epochs=3, "
            "delta=1e-5, step=step)",
            "print(audit.finish())",
        ),
        page="how-to/audit-opacus.md",
    ),
    Have.LANGUAGE: AuditAnswer(
        what="the DP fine-tuning of a language model (adapters, Trainer, TRL)",
        shows="What two observers of one run learn. Somebody who sees every step: "
        "whether noise, clipping and accounting are as claimed, in adapters and heads, "
        "under ghost clipping, too. Somebody who has the final model only, by canaries "
        "of tokens: whether it gives records away grossly.",
        not_shown="That little leaks, from a low bound of the second observer: far "
        "below the claim is normal for a final model, and a third of the noise that "
        "there should be may pass unseen.",
        lines=(
            "inside = audit_opacus(engine, model, optimizer, loader, epochs=3, "
            "delta=1e-5, step=step)",
            "outside = BlackBoxAudit(canaries, design=design, key=key, "
            "fillers=canaries.blank())",
        ),
        page="tutorials/language-model.md",
    ),
    Have.MODEL: AuditAnswer(
        what="a trained model and its data, and no training to come",
        shows="Nothing about epsilon. A bound holds guesses against coins that were "
        "tossed before the training and decided which records it saw. Here no coin was "
        "tossed, and whichever records are guessed well, nobody can say how well they "
        "would be guessed had they been left out. If you can train once more, put "
        "canaries into the data first, and the final model is enough.",
        not_shown="A low bound of such an audit says little: a final model shows far "
        "less than its training does.",
        lines=("audit = BlackBoxAudit(canaries, design=design, key=key)",),
        page="how-to/audit-a-model-from-outside.md",
    ),
    Have.FEDERATED: AuditAnswer(
        what="a federated run (Flower, pfl, your own server)",
        shows="What is shown of any training, with a user in a record's place: whether "
        "the noise of each round is as claimed for what one user may put in, and a "
        "lower bound on epsilon against somebody who sees the aggregate of every "
        "round. A probe says whether one client counts for more than the noise is for, "
        "as by its number of examples.",
        not_shown="Secure aggregation, which the server's sum stands in for; noise "
        "that clients add themselves; several accounts of one person.",
        lines=(
            "audit = FlowerAudit(strategy, arrays, design=design, key=key)",
            "audit.wrap().start(grid, arrays, num_rounds=50)",
            "print(audit.finish())",
        ),
        page="how-to/audit-federated.md",
    ),
    Have.SCORES: AuditAnswer(
        what="a score for each canary, and the coins that decided who was included",
        shows="A lower bound on epsilon and a verdict on a claim, whatever the program "
        "was, from ten scores or a billion.",
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
        what="how many guesses were right, of how many",
        shows="A lower bound on epsilon, if the number of guesses was fixed before.",
        not_shown="Where the counts come from.",
        lines=(
            "dpaudit bound --canaries 100000 --guesses 1510 --correct 1439 --delta "
            "1e-5",
        ),
        page="how-to/audit-scores.md",
    ),
    Have.FUNCTION: AuditAnswer(
        what="a function that should be private, such as one of a library",
        shows="Whether two inputs can be told apart better than is claimed, inside a "
        "test suite, with an error rate for all its tests together.",
        not_shown="Other inputs than those that the test names.",
        lines=(
            "def test_laplace(dp_audit): dp_audit(laplace, pairs=(0, 1), epsilon=1.0)",
        ),
        page="how-to/test-a-library.md",
    ),
    Have.EVIDENCE: AuditAnswer(
        what="somebody's evidence, or a report that you were handed",
        shows="That coins, guesses, bound and verdict follow from each other and from "
        "what was registered. Ask for the evidence: a report by itself shows nothing.",
        not_shown="That the run was made as it is told, and that no other run was left "
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
        Have | None, typer.Argument(help="What you have; all are listed if not given.")
    ] = None,
) -> None:
    """Say which audit can be done with what you have, and what it cannot show.

    Exits with 0, or 2 if something is misused.
    """
    typer.echo(_question() if have is None else _answer(ANSWERS[have]))


def _question() -> str:
    width = max(map(len, ANSWERS))
    asked = (
        f"  dpaudit which {name:<{width}}  {answer.what}"
        for name, answer in ANSWERS.items()
    )
    return "\n".join(["What do you have?", "", *asked])


def _answer(answer: AuditAnswer) -> str:
    said = [
        f"With {answer.what}:",
        fill(f"Can be shown: {answer.shows}", _WIDTH),
        fill(f"Cannot be shown: {answer.not_shown}", _WIDTH),
        "\n".join(f"  {line}" for line in answer.lines),
        f"More: docs/{answer.page}",
    ]
    return "\n\n".join(said)
