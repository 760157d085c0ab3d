"""One finding as a sentence, by its code.

The catalogues in this package have a template for each code: a format string, or a
function of the finding's numbers where the sentence depends on them. Findings from
other people's files are only data here: a code without a template, or a template whose
numbers are missing, is written as the code and its numbers.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from dpaudit._codec import encode
from dpaudit.game.findings import Finding
from dpaudit.game.text import (
    accounting,
    custom,
    federated,
    interference,
    noise,
    probes,
    sampling,
    sanity_checks,
    stages,
)
from dpaudit.game.text.measured import MEASURED
from dpaudit.game.text.terms import (
    FaultText,
    Template,
    Terms,
    Values,
    rendered,
    terms_of,
)

__all__ = [
    "FAULTS",
    "SENTENCES",
    "cause",
    "described",
    "fault_parts",
    "measured",
    "sentence",
    "sentences",
]

_WITH_FAULTS: Final = (
    accounting,
    custom,
    federated,
    interference,
    noise,
    probes,
    sampling,
)
SENTENCES: Final[Mapping[str, Template]] = {
    code: text
    for each in (*_WITH_FAULTS, sanity_checks, stages)
    for code, text in each.SENTENCES.items()
}
FAULTS: Final[Mapping[str, FaultText]] = {
    code: text for each in _WITH_FAULTS for code, text in each.FAULTS.items()
}


def sentence(finding: Finding, unit: str | None = None) -> str:
    """Return a finding as a sentence, without a full stop.

    Args:
        finding: A finding of any status; for a fault the sentence states what is
            wrong, measured and expected.
        unit: The unit of privacy, if not a record.

    Example:
        >>> from dpaudit.game.findings import passed
        >>> sentence(passed("guesses_not_made", missing=3, committed=1000))
        '3 of the 1,000 guesses committed to were not made and count as incorrect; \
commit to fewer before the run'
        >>> sentence(passed("no.such_code", steps=3))
        'no.such_code (steps = 3)'
    """
    terms = terms_of(unit)
    if finding.code in FAULTS:
        what, seen, expected, likely = fault_parts(finding, unit)
        text = f"{what} ({seen}; expected: {expected}); likely cause: {likely}"
    else:
        text = _rendered(SENTENCES.get(finding.code, ""), finding, terms)
    run = finding.numbers.get("run")
    return text if run is None else f"run {run}: {text}"


def sentences(findings: Iterable[Finding], unit: str | None = None) -> str:
    """Return several findings as one sentence."""
    return "; ".join(sentence(each, unit) for each in findings)


def measured(findings: Iterable[Finding], unit: str | None = None) -> str:
    """Return in a few words what was measured at a stage.

    Example:
        >>> from dpaudit.game.findings import Stage, inspected
        >>> measured([inspected(Stage.ACCOUNTING, "accounting.compared", steps=40)])
        '40 steps, each as accounted'
    """
    by_code = {each.code: each for each in findings}
    for code, template in MEASURED.items():
        if code in by_code:
            return _rendered(template, by_code[code], terms_of(unit))
    return next((sentence(each, unit) for each in by_code.values()), "")


def described(
    findings: Iterable[Finding], unit: str | None = None
) -> list[dict[str, Any]]:
    """Return findings as JSON for other programs, each with its sentence."""
    return [{**encode(each), "text": sentence(each, unit)} for each in findings]


def fault_parts(fault: Finding, unit: str | None = None) -> tuple[str, str, str, str]:
    """Return a fault as four texts: fault, measured, expected, likely cause."""
    text, terms = FAULTS.get(fault.code), terms_of(unit)
    if text is None:
        return _plain(fault), "as recorded", "nothing of the kind", "not known here"
    likely = cause(fault)
    parts = (text.what, text.measured, text.expected, likely)
    what, measured, expected, behind = (_rendered(t, fault, terms) for t in parts)
    return what, measured, expected, behind


def cause(fault: Finding) -> Template:
    """Return the template of the most likely cause of a fault."""
    likely = FAULTS[fault.code].cause
    if isinstance(likely, Mapping):
        return likely.get(str(fault.numbers.get("cause")), "a cause not known here")
    return likely


def _rendered(template: Template, finding: Finding, terms: Terms) -> str:
    values = Values(finding.numbers, subject=finding.subject, terms=terms)
    try:
        text = rendered(template, values)
    except (AttributeError, LookupError, ValueError, TypeError, ArithmeticError):
        return _plain(finding)
    return text or _plain(finding)


def _plain(finding: Finding) -> str:
    """Return a finding as its code, names and numbers."""
    parts = [*map(repr, finding.subject)]
    parts += [f"{name} = {value}" for name, value in finding.numbers.items()]
    return f"{finding.code} ({', '.join(parts)})" if parts else finding.code
