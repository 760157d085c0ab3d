"""The report: one page with the result of an audit and what it depends on.

The page is one self-contained file: no script, no font, no picture from elsewhere, and
a policy in its head that forbids them. Pictures are inline SVG in the page's own
colours, so that they work in light and dark mode and on paper. The content of a design
or a remark is text and is escaped. The same result and date give the same bytes, as
long as the versions named in it are the same. Needs the extra ``report``.
"""

import datetime
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from dpaudit import _files, _validate
from dpaudit._progress import progress_note
from dpaudit.errors import InvalidInputError, MissingExtraError, printable
from dpaudit.explanation import Explanation, explain
from dpaudit.game.findings import Status
from dpaudit.game.result import Result
from dpaudit.game.text.terms import capital, terms_of
from dpaudit.game.transcript import Transcript
from dpaudit.game.verdict import Verdict
from dpaudit.reporting.figure import Figure, LeftOut, style_sheet
from dpaudit.reporting.numbers import sentence, typeset
from dpaudit.reporting.report import facts
from dpaudit.reporting.report.bound_by_guesses import by_k_figure
from dpaudit.reporting.report.by_turn import course_figure
from dpaudit.reporting.report.certificate import certificate_figure
from dpaudit.reporting.report.scores import histogram_figure, roc_figure
from dpaudit.reporting.report.subject import Subject
from dpaudit.reporting.report.summary import summary_of
from dpaudit.reporting.waterfall import (
    explanation_figure,
    explanation_rows,
    scale_of,
)

if TYPE_CHECKING:
    import jinja2

__all__ = ["check_extra", "report", "report_html", "write_figures"]

_SUFFIXES = (".html", ".htm")
_FIGURES = (
    certificate_figure,
    histogram_figure,
    roc_figure,
    by_k_figure,
    course_figure,
)


def report(
    result: Result,
    path: str | Path,
    *,
    transcript: Transcript | None = None,
    explanation: Explanation | None = None,
    title: str = "",
    auditor: str = "",
    date: datetime.date | None = None,
) -> None:
    """Write the report of a result: one HTML file that opens offline.

    Args:
        result: What an audit returned, or ``dpaudit.evidence`` read from a file.
        path: The file to write, with suffix .html or .htm. An existing file is replaced
            atomically.
        transcript: Every guess, if available and not part of the result; some figures
            need the order of the guesses.
        explanation: An explanation of this result, if more is known than the result
            holds: ``explain(result, mechanism=...)``.
        title: What was audited: a model, a run.
        auditor: Who ran the audit.
        date: Date of the page; today if not given.

    Raises:
        InvalidInputError: The suffix is another one, or the transcript is of another
            audit.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> import numpy as np
        >>> from dpaudit import Coins, Design, Key, PureDP, Ranking, audit_scores
        >>> coins = Coins(key=Key(bytes(32)), count=100)
        >>> rules, claim = Ranking(guesses=100), PureDP(epsilon=1.0)
        >>> design = Design(canaries=100, rules=rules, claim=claim)
        >>> scores = coins.bits() + np.random.default_rng(0).normal(size=100)
        >>> result = audit_scores(np.arange(100), coins, scores, design=design)
        >>> with TemporaryDirectory() as folder:
        ...     report(result, f"{folder}/audit.html")
    """
    _validate.path("path", path)
    path = Path(path)
    if path.suffix.lower() not in _SUFFIXES:
        raise InvalidInputError(
            f"a report is an HTML page, so path must end in .html, got path="
            f"{str(path)!r}; for other formats print the page from a browser"
        )
    if not path.parent.is_dir():
        raise InvalidInputError(
            f"there is no folder {path.parent} to write {path.name} into; make it"
        )
    page = report_html(
        result,
        transcript=transcript,
        explanation=explanation,
        title=title,
        auditor=auditor,
        date=date,
    )
    _files.write(path, page)


@progress_note("drawing figures")
def write_figures(
    result: Result,
    folder: str | Path,
    *,
    transcript: Transcript | None = None,
    explanation: Explanation | None = None,
) -> tuple[Path, ...]:
    """Write each figure of the report as SVG and PDF, with legend and caption.

    Args:
        result: What an audit returned.
        folder: The target folder; it is created if it does not exist.
        transcript: Every guess, if the result does not hold it.
        explanation: Of this result; made from it if not given.

    Returns:
        The files, named by the figures.
    """
    _validate.kind("result", result, Result)
    _validate.path("folder", folder)
    explanation = explain(result) if explanation is None else explanation
    drawn = _figures(result, transcript)
    figures = [each for each in drawn if isinstance(each, Figure)]
    if explanation.steps:
        figures.append(explanation_figure(explanation))
    Path(folder).mkdir(parents=True, exist_ok=True)
    written = []
    for figure in figures:
        for suffix in (".svg", ".pdf"):
            path = Path(folder, figure.name + suffix)
            figure.write(path)
            written.append(path)
    return tuple(written)


def _figures(result: Result, transcript: Transcript | None) -> list[Figure | LeftOut]:
    """Return the figures of a result, and why others are left out."""
    subject = Subject.of(result, transcript)
    invalid_run = result.verdict is Verdict.INVALID_RUN
    # The other figures show the claim, about which an invalid run shows nothing.
    drawn = (histogram_figure,) if invalid_run else _FIGURES
    return [figure(subject) for figure in drawn]


@progress_note("writing the report")
def report_html(
    result: Result,
    *,
    transcript: Transcript | None = None,
    explanation: Explanation | None = None,
    title: str = "",
    auditor: str = "",
    date: datetime.date | None = None,
) -> str:
    """Return the report of a result as the text of an HTML page.

    Args:
        result: What an audit returned.
        transcript: Every guess, if not part of the result.
        explanation: An explanation of this result; made from it if not given.
        title: What was audited.
        auditor: Who ran the audit.
        date: Date of the page; today if not given.
    """
    _validate.kind("result", result, Result)
    _validate.kind("title", title, str)
    _validate.kind("auditor", auditor, str)
    date = datetime.datetime.now(tz=datetime.UTC).date() if date is None else date
    template, unit = _template(), result.design.setting.unit
    subject = Subject.of(result, transcript)
    explanation = explain(result) if explanation is None else explanation
    word = explanation.outcome
    invalid_run = word is Verdict.INVALID_RUN
    figures = _figures(result, transcript)
    levels = explanation_rows(explanation)
    commitment = subject.result.commitment
    return template.render(
        css=style_sheet() + _resource("page.css"),
        kind=word.replace(" ", "-"),
        word=capital(word),
        record=terms_of(unit).record,
        title=title,
        date=f"{date.day} {date:%B %Y}",
        object_facts=facts.object_facts(subject, auditor),
        summary=summary_of(subject.result),
        gaps=(str(Status.NOT_CHECKED), str(Status.ACCEPTED)),
        invalid_run=invalid_run,
        explanation=explanation,
        screen=explanation.screen,
        sanity_checks=facts.sanity_facts(explanation.sanity_checks, unit),
        stages=facts.stage_facts(subject),
        key_facts=facts.key_facts(subject),
        more_facts=facts.more_facts(subject),
        levels=levels,
        scale=scale_of(levels),
        figures=[each for each in figures if isinstance(each, Figure)],
        left_out=_together([each for each in figures if isinstance(each, LeftOut)]),
        design_facts=facts.design_facts(subject),
        setting_facts=facts.setting_facts(subject),
        versions=facts.versions(),
        commitment=commitment and commitment.sha256,
        references=facts.references(subject),
    )


def _together(figures: list[LeftOut]) -> dict[str, list[str]]:
    """Return the headings of the figures that are left out, by reason."""
    headings: dict[str, list[str]] = {}
    for figure in figures:
        headings.setdefault(figure.why, []).append(figure.heading)
    return headings


def check_extra() -> None:
    """Raise an error if the extra is missing, before anything is computed."""
    _template()


def _template() -> "jinja2.Template":
    # Imported here, as ``report`` is in the package's interface, which needs no extra.
    try:
        import jinja2  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError.of(
            "reports are written with jinja2", "report"
        ) from error
    environment = jinja2.Environment(
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"sentence": sentence, "typeset": typeset}
    return environment.from_string(_resource("page.html"))


def _shown(value: object) -> object:
    """Return a value that a page may contain: text without control characters."""
    return printable(value) if type(value) is str else value


def _resource(name: str) -> str:
    folder = resources.files("dpaudit.reporting.report")
    return (folder / name).read_text(encoding="utf-8")
