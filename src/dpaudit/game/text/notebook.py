"""A result in a notebook: the first screen as HTML, with the details folded below it.

It uses the notebook's own colours, so that light and dark work alike; it loads nothing,
and every text in it is escaped.
"""

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Final

from dpaudit.game.text.results import rows
from dpaudit.game.text.screen import CheckRow, screen_of
from dpaudit.game.verdict import Verdict

if TYPE_CHECKING:
    from dpaudit.game.result import Result

__all__ = ["html"]

_BOX: Final = (
    "border-left:4px solid {colour};padding:2px 0 2px 14px;margin:4px 0;max-width:46em"
)
_TABLE: Final = "border-collapse:collapse;margin:6px 0;color:inherit;font-size:inherit"
_CELL: Final = "text-align:left;padding:3px 14px 3px 0;vertical-align:top"
_COLOURS: Final = {  # all legible on white and on black
    Verdict.INVALID_RUN: "#808080",
    Verdict.CLAIM_REFUTED: "#d1495b",
    Verdict.FAULT_FOUND: "#d9662b",
    Verdict.INCONCLUSIVE: "#c28e0e",
    Verdict.NO_VIOLATION_DETECTED: "#3d85c6",
}
_ALARMING: Final = {"failed": "#d1495b", "suspect": "#d1495b", "not checked": "#c28e0e"}


def html(result: "Result") -> str:
    """Return a result as HTML for a notebook.

    Example:
        >>> from dpaudit import Design, OneRun, PureDP
        >>> from dpaudit.bounds import Counts
        >>> from dpaudit.game.result import judge
        >>> rules, claim = OneRun(guesses=100), PureDP(epsilon=1.0)
        >>> design = Design(canaries=100, rules=rules, claim=claim)
        >>> counts = Counts(canaries=100, guesses=100, correct=90)
        >>> result = judge(counts, design=design, commitment=None)
        >>> "<strong>Claim refuted</strong>" in html(result)
        True
    """
    screen = screen_of(result)
    first = "; ".join(filter(None, (screen.claim, screen.bound)))
    lines = [first, screen.setting, *screen.sentences, *screen.faults]
    notes = [f"Note: {each}." for each in screen.notes]
    return (
        f'<div style="{_BOX.format(colour=_COLOURS[screen.verdict])}">'
        f"<strong>{escape(screen.label)}</strong>{_paragraph(lines)}"
        f"{_table(map(_check, screen.rows))}"
        f"{_paragraph([*notes, *filter(None, [screen.scope])])}"
        f"<details><summary>Details</summary>"
        f"{_table(_fact(*each) for each in rows(result))}</details></div>"
    )


def _paragraph(lines: list[str]) -> str:
    if not lines:
        return ""
    return f'<p style="margin:0 0 6px">{"<br>".join(map(escape, lines))}</p>'


def _table(lines: Iterator[str]) -> str:
    body = "".join(lines)
    if not body:
        return ""
    return f'<table style="{_TABLE}"><tbody>{body}</tbody></table>'


def _check(row: CheckRow) -> str:
    colour = _ALARMING.get(row.status)
    shown = f"color:{colour};font-weight:bold" if colour else "opacity:.75"
    inset = ";padding-left:1.5em" if row.part else ""
    return (
        f'<tr style="background:none"><td style="{_CELL};{shown}">{row.status}</td>'
        f'<th scope="row" style="{_CELL}{inset};font-weight:normal">'
        f'{escape(row.name)}</th><td style="{_CELL}">{escape(row.measured)}</td></tr>'
    )


def _fact(name: str, value: str) -> str:
    return (
        f'<tr style="background:none"><th scope="row" style="{_CELL};'
        f'font-weight:normal;opacity:.75">{escape(name)}</th>'
        f'<td style="{_CELL}">{escape(value)}</td></tr>'
    )
