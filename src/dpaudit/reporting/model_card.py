"""The section of a model card with the result of an audit, in Markdown.

Readers of a model card have a minute. So the section begins with the first screen;
below it are the numbers that the verdict depends on, the assumptions, what was not
exercised, and what to cite. For an invalid run it gives no number about the claim. The
content of a design or a remark is text, and is escaped.

One training run can be audited against several adversaries at once, such as one who
sees every iterate and one who has only the final model. The section then begins with a
row for each, so that the result for one is not mistaken for that of all.

Hugging Face's cards also have metadata (``model-index``) for results that leaderboards
rank: a metric of a task on a data set. A lower bound on epsilon belongs to no data set,
and an undetected violation is no merit, so no metadata are written.
"""

import re
from collections.abc import Iterator

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.explanation import Explanation, explain
from dpaudit.game.design import ThreatModel
from dpaudit.game.result import Result
from dpaudit.game.text import results as text
from dpaudit.game.text.terms import capital
from dpaudit.game.verdict import Verdict

__all__ = ["model_card_section"]

_PAPER = (
    "Keinan, Shenfeld and Ligett, *How Well Can Differential Privacy Be Audited in One "
    "Run?*, 2025, <https://arxiv.org/abs/2503.07199>"
)
_ONE_RUN = (
    "Steinke, Nasr and Jagielski, *Privacy Auditing with One (1) Training Run*, "
    "NeurIPS 2023, <https://arxiv.org/abs/2305.08846>"
)


_HOW_FAR_BELOW = (
    "A bound from the final model far below the claim is normal, and does not mean "
    "that training leaks less than is claimed. The claim must hold against an "
    "adversary who sees every iterate. The final model sums up all steps: it does not "
    "show which of them a record was in, it carries the noise of all of them, other "
    "records move the same weights, and a canary is one record, not the worst case. An "
    "adversary may know more than this audit did."
)


def model_card_section(result: Result, *others: Result, level: int = 2) -> str:
    r"""Return the section of a model card, in Markdown.

    Args:
        result: The result of any audit; a training run takes seconds to explain.
        others: Results for other adversaries of the same training run.
        level: Level of the section's heading, from 1 to 5; to 4 if there are others.

    Example:
        >>> from dpaudit import Design, OneRun, PureDP
        >>> from dpaudit.bounds import Counts
        >>> from dpaudit.game.result import judge
        >>> rules = OneRun(guesses=100)
        >>> design = Design(canaries=100, rules=rules, claim=PureDP(epsilon=1.0))
        >>> counts = Counts(canaries=100, guesses=100, correct=90)
        >>> section = model_card_section(judge(counts, design=design, commitment=None))
        >>> section.splitlines()[2]
        '**Claim refuted.** Claimed ε ≤ 1; Lower bound ε ≥ 1.630 (95 % confidence).'
    """
    _validate.whole_number("level", level, least=1)
    deepest = 4 if others else 5
    if level > deepest:
        raise InvalidInputError(f"level must be at most {deepest}, got level={level}")
    if others:
        parts = [*_of_several((result, *others), level)]
    else:
        parts = [f"{'#' * level} Privacy audit", *_of_one(result, level)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _of_one(result: Result, level: int) -> Iterator[str]:
    """Yield the parts about one result, below its heading."""
    explained = explain(result)
    yield from _first(explained)
    yield _table(result, explained)
    yield _bullets("Sanity checks:", explained.sentences(explained.sanity_checks))
    yield _bullets("Assumptions:", explained.assumptions)
    yield _bullets("Not exercised by the audit:", explained.not_exercised)
    yield _bullets("Notes:", explained.sentences(explained.remarks))
    yield _commitment(result)
    yield f"{'#' * (level + 1)} How to cite"
    yield _citations(result)


def _of_several(results: tuple[Result, ...], level: int) -> Iterator[str]:
    """Yield a table of adversaries, how to read it, and a part for each of them."""
    _check_different(results)
    yield f"{'#' * level} Privacy audit"
    yield f"**{_together(results)}**"
    yield _observers(results)
    yield _confidence(results)
    if any(_is_low(each) for each in results):
        yield _HOW_FAR_BELOW
    for number, result in enumerate(results, 1):
        yield f"{'#' * (level + 1)} Adversary {number}: {_text(_who(result))}"
        yield from _of_one(result, level + 1)


def _check_different(results: tuple[Result, ...]) -> None:
    for place, result in enumerate(results):
        if any(result is each for each in results[:place]):
            raise InvalidInputError(
                f"results[{place}] was given before; give each adversary's result once"
            )


def _together(results: tuple[Result, ...]) -> str:
    """Return the verdict over all adversaries, in a sentence."""
    for verdict, means in (
        (Verdict.CLAIM_REFUTED, "A claim that is refuted for one does not hold."),
        (Verdict.FAULT_FOUND, "What the accountant proved does not apply."),
    ):
        number = sum(each.verdict is verdict for each in results)
        if number:
            who = f"{number} of {len(results)} adversaries of one training run"
            return f"{capital(verdict)} for {who}. {means}"
    return (
        f"One training run, audited against {len(results)} adversaries. The claim was "
        "refuted for none of them, which does not prove it."
    )


def _observers(results: tuple[Result, ...]) -> str:
    names = ("Adversary", "Claimed", "Lower bound", "p-value", "Verdict", "Canaries")
    lines = [names, ("---",) * len(names)]
    for number, each in enumerate(results, 1):
        delta = each.bound.delta
        claimed = f"epsilon = {each.claim_test.claim.epsilon_at(delta):.4g}"
        row = (f"{number}. {_who(each)}", claimed, *_numbers(each), str(each.verdict))
        lines.append((*map(_text, row), f"{each.design.canaries:,}"))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _numbers(result: Result) -> tuple[str, str]:
    """Return the bound and the p-value as text, if they apply to the claim."""
    if result.verdict is Verdict.INVALID_RUN:
        return "nothing", "none"
    p_value = f"p {result.claim_test.p_text}"
    if result.is_foreign_bound:
        return "see below", p_value
    return f"epsilon >= {result.bound.text}", p_value


def _who(result: Result) -> str:
    return text.threat(result)


def _confidence(results: tuple[Result, ...]) -> str:
    """Return the confidence of all rows at once: a union bound, as they share a run."""
    alphas = [
        each.bound.alpha for each in results if each.verdict is not Verdict.INVALID_RUN
    ]
    if not alphas:
        return ""
    each = " or ".join(f"{alpha:g}" for alpha in sorted({*alphas}))
    return (
        f"The probability that a row is wrong is at most {each}, and that any of them "
        f"is, at most {sum(alphas):.3g}."
    )


def _is_low(result: Result) -> bool:
    """Return whether an audit of the final model did not refute the claim."""
    final = result.design.threat_model is ThreatModel.FINAL_MODEL
    return final and result.verdict not in (Verdict.INVALID_RUN, Verdict.CLAIM_REFUTED)


def _first(explained: Explanation) -> tuple[str, ...]:
    """Return the first screen, and its confidence."""
    screen = explained.screen
    claim = "; ".join(filter(None, (screen.claim, screen.bound)))
    meaning = " ".join((screen.setting, *screen.sentences, *screen.faults))
    rows = [
        f"| {row.status} | {'- ' * row.part}{_text(row.name)} | {_text(row.measured)} |"
        for row in screen.rows
    ]
    head = ["| Status | Check | Measured |", "| --- | --- | --- |"]
    return (
        f"**{_text(screen.label)}.** {_text(claim)}.",
        _text(meaning),
        "\n".join([*head, *rows]) if rows else "",
        _text(screen.scope) if rows else "",
        _text(explained.confidence_sentence),
    )


def _table(result: Result, explained: Explanation) -> str:
    first, *rest = text.facts(result)
    rows = [first, text.Fact(name="Verdict", value=_word(explained)), *rest]
    if explained.power_below:
        rows.append(text.Fact(name="Power", value=explained.power_below))
    lines = [f"| {_text(each.name)} | {_text(each.whole)} |" for each in rows]
    return "\n".join(["| Detail | Value |", "| --- | --- |", *lines])


def _word(explained: Explanation) -> str:
    if explained.outcome is Verdict.NO_VIOLATION_DETECTED:
        return f"{explained.outcome}, which does not prove the claim"
    return str(explained.outcome)


def _bullets(title: str, lines: tuple[str, ...]) -> str:
    if not lines:
        return ""
    return "\n".join([f"{title}\n", *(f"- {_text(line)}" for line in lines)])


def _commitment(audit: Result) -> str:
    if audit.commitment is None:
        return (
            "The coin flips were not committed to, so nobody can check that they were "
            "drawn before the run."
        )
    return (
        "Key and design were committed to before the run (SHA-256 "
        f"`{audit.commitment.sha256}`); with the evidence, `dpaudit verify` checks it."
    )


def _citations(audit: Result) -> str:
    bound = audit.bound
    cited = [
        "dpaudit: audit differential privacy from one run (the software)",
        _PAPER,
        *([] if audit.design.runs > 1 else [_ONE_RUN]),
        f"of the bound, method {_text(bound.method)}: {_text(bound.reference)}",
    ]
    return "\n".join(f"- {each}" for each in cited)


def _text(words: str) -> str:
    r"""Return text on one line, with Markdown's special characters escaped.

    Example:
        >>> print(_text("1. a|b <b>*c*</b>"))
        1\. a\|b \<b\>\*c\*\</b\>
    """
    line = " ".join(words.split())
    line = re.sub(r"([\\`*_{}\[\]<>#|~$&!])", r"\\\1", line)
    # Escape what would begin a list or a rule at the beginning of a line.
    return re.sub(r"^([-+=])|^(\d+)([.)](?= |$))", r"\2\\\1\3", line)
