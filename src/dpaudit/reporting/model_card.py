"""The section of a model card that says what an audit showed, in Markdown.

A model card is read by people who have a minute. So the section has the verdict with
its threat model, the numbers that it turns on, what would have been caught, what it
rests on, what was not run through, and what to cite. Of a void audit no number stands
there that would say something about the claim. Whatever a design or a remark holds is
text, and stays text: it is escaped.

Hugging Face's cards also have metadata (``model-index``) for results that leaderboards
rank: a metric of a task on a data set. A lower bound on a leak is of no data set, and
what is not found is no merit, so none is written.
"""

import re

from dpaudit import _validate
from dpaudit.errors import InvalidInputError
from dpaudit.explanation import Explanation, explain
from dpaudit.game import words
from dpaudit.game.result import Result
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


def model_card_section(result: Result, *, level: int = 2) -> str:
    r"""Return the section of a model card, in Markdown.

    Args:
        result: Of any audit. One of training takes some seconds to explain.
        level: Of the section's heading, from 1 to 5.

    Example:
        >>> from dpaudit import Design, OneRun, PureDP
        >>> from dpaudit.bounds import Counts
        >>> from dpaudit.game.result import judge
        >>> rules = OneRun(guesses=100)
        >>> design = Design(canaries=100, rules=rules, claim=PureDP(epsilon=1.0))
        >>> counts = Counts(canaries=100, guesses=100, correct=90)
        >>> section = model_card_section(judge(counts, design=design, commitment=None))
        >>> section.splitlines()[2]
        '**Refuted. Epsilon is at least 1.630, where 1 is claimed.**'
    """
    _validate.whole_number("level", level, least=1)
    if level > 5:
        raise InvalidInputError(f"level must be at most 5, got level={level}")
    explained = explain(result)
    parts = [
        f"{'#' * level} Privacy audit",
        *_first(explained),
        _table(result, explained),
        _bullets("Looked at:", tuple(each.said for each in explained.controls)),
        _bullets("This rests on:", explained.assumptions),
        _bullets("Not exercised by the audit:", explained.not_exercised),
        _bullets("Noticed:", explained.remarks),
        _commitment(result),
        f"{'#' * (level + 1)} How to cite",
        _citations(result),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _first(explained: Explanation) -> tuple[str, ...]:
    """Return the first lines, and how sure they are."""
    said, *lines = explained.head
    listed = "\n".join(f"- {_text(line)}" for line in lines)
    return f"**{_text(said)}**", listed, _text(explained.below)


def _table(result: Result, explained: Explanation) -> str:
    first, *rest = words.facts(result)
    rows = [first, words.Fact(name="Verdict", value=_word(explained)), *rest]
    if explained.strength and not explained.worth:
        caught = "What would have been caught"
        rows.append(words.Fact(name=caught, value=explained.strength))
    lines = [f"| {_text(each.name)} | {_text(each.whole)} |" for each in rows]
    return "\n".join(["| What | Value |", "| --- | --- |", *lines])


def _word(explained: Explanation) -> str:
    if explained.outcome is Verdict.NO_VIOLATION_FOUND:
        return f"{explained.outcome}, which does not prove the claim"
    return str(explained.outcome)


def _bullets(title: str, lines: tuple[str, ...]) -> str:
    if not lines:
        return ""
    return "\n".join([f"{title}\n", *(f"- {_text(line)}" for line in lines)])


def _commitment(audit: Result) -> str:
    if audit.commitment is None:
        return (
            "The coins were not committed to, so that nobody can check that they came "
            "first."
        )
    return (
        "Key and design were committed to before the run (SHA-256 "
        f"`{audit.commitment.sha256}`); whoever is given the evidence can check it "
        "with `dpaudit verify`."
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
    r"""Return text that Markdown takes as such, on one line.

    Example:
        >>> print(_text("1. a|b <b>*c*</b>"))
        1\. a\|b \<b\>\*c\*\</b\>
    """
    line = " ".join(words.split())
    line = re.sub(r"([\\`*_{}\[\]<>#|~$&!])", r"\\\1", line)
    # What would begin a list or a rule, if it stood at the beginning of a line.
    return re.sub(r"^([-+=])|^(\d+)([.)](?= |$))", r"\2\\\1\3", line)
