"""How the report sets the library's plain words: Greek letters, whole sentences."""

import re

from dpaudit.reporting.report.numbers import scientific

__all__ = ["headline", "sentence", "typeset"]

_ALPHA = "\N{GREEK SMALL LETTER ALPHA}"
_LETTERS = {"epsilon": "ε", "delta": "δ", "alpha": _ALPHA, "mu": "μ"}
_WORD = re.compile(rf"(?<![\w.\-])({'|'.join(_LETTERS)})(?![\w(])")
_SMALL = re.compile(r"(?<![\w.])\d(?:\.\d+)?e-\d+(?![\w.])")
_EQUALS = re.compile(rf"(?<=[εδμp{_ALPHA}]) (=|≥|<) (?=[\d∞])")
_APOSTROPHE = re.compile(r"(?<=\w)'")


def typeset(text: str) -> str:
    """Return a text with letters for epsilon and its kin, and powers of ten.

    Example:
        >>> typeset("epsilon is 2 at delta = 1e-05, as noise_epsilon says").replace(
        ...     chr(160), "_")
        'ε is 2 at δ_=_10⁻⁵, as noise_epsilon says'
    """
    quoted = _APOSTROPHE.sub("\N{RIGHT SINGLE QUOTATION MARK}", text)
    quoted = quoted.replace(">=", "≥")
    lettered = _WORD.sub(lambda found: _LETTERS[found[0]], quoted)
    powered = _SMALL.sub(lambda found: scientific(float(found[0])), lettered)
    # What is equal to what stays on one line.
    return _EQUALS.sub("\N{NO-BREAK SPACE}\\1\N{NO-BREAK SPACE}", powered)


def sentence(text: str) -> str:
    """Return a typeset text that begins and ends as a sentence does.

    Example:
        >>> sentence("use more canaries")
        'Use more canaries.'
    """
    shown = typeset(text)
    ended = shown if shown.endswith((".", "!", "?", "…")) else f"{shown}."
    # A Greek letter stays small.
    return ended if ended[:1] in _LETTERS.values() else ended[:1].upper() + ended[1:]


def headline(verdict: str) -> tuple[str, str]:
    """Return the first half of a verdict, and what was shown.

    Example:
        >>> headline("The claim is refuted: epsilon is at least 2.")
        ('The claim is refuted:', 'ε is at least 2.')
    """
    first, colon, rest = typeset(verdict).partition(": ")
    return (f"{first}:", rest) if colon else (first, "")
