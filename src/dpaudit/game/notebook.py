"""How a result shows itself in a notebook: the word first, then rows.

A small piece of HTML in the notebook's own colours, so that light and dark work alike.
It needs nothing installed and loads nothing; every text in it is escaped. The whole
story is ``dpaudit.report``.
"""

from collections.abc import Iterable
from html import escape
from typing import Final

from dpaudit.bounds.bound import ClaimTest, LowerBound, p_value_text, rounded_down
from dpaudit.game.verdict import Control, Verdict
from dpaudit.privacy.guarantee import Guarantee
from dpaudit.privacy.guarantees import ApproxDP, PureDP

__all__ = ["html_fragment"]

_BOX = (
    "border-left:4px solid {colour};padding:2px 0 2px 14px;margin:4px 0;max-width:46em"
)
_TABLE = "border-collapse:collapse;margin:0;color:inherit;font-size:inherit"
_CELL = "text-align:left;padding:3px 14px 3px 0;vertical-align:top"
_COLOURS: Final = {  # all stand out on white and on black
    Verdict.VOID: "#808080",
    Verdict.REFUTED: "#d1495b",
    Verdict.INCONCLUSIVE: "#c28e0e",
    Verdict.NO_VIOLATION_FOUND: "#3d85c6",
}


def html_fragment(  # noqa: PLR0913 (what a result shows of itself)
    *,
    verdict: Verdict,
    said: str,
    controls: Iterable[Control],
    test: ClaimTest,
    bound: LowerBound,
    ceiling: float,
    score: tuple[int, int],
    canaries: int,
    threat_model: str,
) -> str:
    """Return what a notebook shows of a result.

    Args:
        verdict: How the audit ended.
        said: That in a sentence, which begins with the word.
        controls: What was looked at besides.
        test: The test of the claim that counts; of a void audit it is not shown.
        bound: The lower bound.
        ceiling: The bound if every guess had been right.
        score: How many guesses were right, and how many were made.
        canaries: How many canaries there were.
        threat_model: What the guesser saw.

    Example:
        >>> from dpaudit import Counts, Design, OneRun
        >>> from dpaudit.game.result import judge
        >>> rules, claim = OneRun(guesses=100), PureDP(epsilon=1.0)
        >>> design = Design(canaries=100, rules=rules, claim=claim)
        >>> counts = Counts(canaries=100, guesses=100, correct=90)
        >>> shown = judge(counts, design=design, commitment=None)._repr_html_()
        >>> "<strong>Refuted</strong>." in shown
        True
    """
    right, made = score
    share = f" ({right / made:.1%})" if made else ""
    about_claim = (
        (
            "found, at least",
            f"epsilon = {rounded_down(bound.epsilon_lower)} at delta = {bound.delta:g}",
        ),
        (
            "evidence",
            f"p {p_value_text(test.p_value)}; refuted at {test.alpha:g} or less",
        ),
        ("most it could have shown", f"epsilon = {rounded_down(ceiling)}"),
        ("method", f"{bound.method}, tier {bound.tier}: any mechanism"),
    )
    rows = (
        ("claimed", _claim(test.claim, bound.delta)),
        ("threat model", threat_model),
        *(() if verdict is Verdict.VOID else about_claim),
        ("right guesses", f"{right:,} of {made:,}{share}, {canaries:,} canaries"),
        *(("looked at", each.said) for each in controls),
    )
    box, word = _BOX.format(colour=_COLOURS[verdict]), len(verdict)
    return (
        f'<div style="{box}"><p style="margin:0 0 6px">'
        f"<strong>{escape(said[:word])}</strong>{escape(said[word:])}</p>"
        f'<table style="{_TABLE}"><tbody>'
        + "".join(_row(name, value) for name, value in rows)
        + "</tbody></table></div>"
    )


def _row(name: str, value: str) -> str:
    return (
        f'<tr style="background:none"><th scope="row" style="{_CELL};'
        f'font-weight:normal;opacity:.75">{escape(name)}</th>'
        f'<td style="{_CELL}">{escape(value)}</td></tr>'
    )


def _claim(claim: Guarantee, delta: float) -> str:
    said = f"epsilon = {claim.epsilon_at(delta):.4g} at delta = {delta:g}"
    whole = not isinstance(claim, PureDP | ApproxDP)
    return f"{said} (a whole curve)" if whole else said
