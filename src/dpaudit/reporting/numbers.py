"""Format numbers and text for reports, never overstating a result.

Lower bounds are rounded down. Powers of ten are written as such, infinity as its
symbol, and a minus is a minus sign, not a hyphen. In text, names such as epsilon become
Greek letters, and phrases become whole sentences.
"""

import re
from math import floor, isfinite

__all__ = [
    "at_least",
    "count",
    "plain",
    "scientific",
    "sentence",
    "signed",
    "superscript",
    "typeset",
]

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_MINUS, _TIMES = "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}"
_LARGE, _SMALL = 1e4, 1e-3


def plain(value: float, digits: int = 3) -> str:
    """Return an epsilon, or a similar number, to three decimals.

    Example:
        >>> plain(1.23456), plain(-0.5), plain(float("inf")), plain(123456789.0)
        ('1.235', '−0.500', '∞', '1.23 × 10⁸')
    """  # noqa: RUF002 (as it is read)
    if not isfinite(value):
        return "∞" if value > 0 else f"{_MINUS}∞" if value < 0 else "not a number"
    if abs(value) >= _LARGE:
        return scientific(value)
    shown = f"{value:.{digits}f}"
    return shown.replace("-", _MINUS) if float(shown) else shown.removeprefix("-")


def signed(value: float) -> str:
    """Return a change with its sign.

    Example:
        >>> signed(0.25), signed(-0.25), signed(0.0)
        ('+0.250', '−0.250', '0.000')
    """  # noqa: RUF002 (as it is read)
    shown = plain(value)
    return f"+{shown}" if value > 0 and shown.strip("0.") else shown


def at_least(value: float) -> str:
    """Return a lower bound, rounded down to three decimals.

    Example:
        >>> at_least(1.2349), at_least(float("inf"))
        ('1.234', '∞')
    """
    if not 0 <= value < _LARGE:
        return plain(value)
    return f"{floor(value * 1000) / 1000:.3f}"


def scientific(value: float, digits: int = 3) -> str:
    """Return a delta, an alpha or a large number, with a power of ten if suitable.

    Example:
        >>> scientific(1e-5), scientific(2.5e-6), scientific(0.05), scientific(0.0)
        ('10⁻⁵', '2.5 × 10⁻⁶', '0.05', '0')
    """  # noqa: RUF002 (as it is read)
    if value == 0 or not isfinite(value):
        return "0" if value == 0 else plain(value)
    if _SMALL <= abs(value) < _LARGE:
        return f"{value:.{digits}g}".replace("-", _MINUS)
    mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    ten = "10" + superscript(int(power))
    shown = ten if mantissa == "1" else f"{mantissa} {_TIMES} {ten}"
    return shown.replace("-", _MINUS)


def count(value: int) -> str:
    """Return a whole number, in groups of three digits.

    Example:
        >>> count(1234567)
        '1,234,567'
    """
    return f"{value:,}"


def superscript(power: int) -> str:
    """Return an exponent in superscript digits.

    Example:
        >>> "10" + superscript(-12)
        '10⁻¹²'
    """
    return str(power).translate(_SUPERSCRIPT)


_ALPHA = "\N{GREEK SMALL LETTER ALPHA}"
_LETTERS = {"epsilon": "ε", "delta": "δ", "alpha": _ALPHA, "mu": "μ"}
_WORD = re.compile(rf"(?<![\w.\-])({'|'.join(_LETTERS)})(?![\w(])")
_SMALL_NUMBER = re.compile(r"(?<![\w.])\d(?:\.\d+)?e-\d+(?![\w.])")
_EQUALS = re.compile(rf"(?<=[εδμp{_ALPHA}]) (=|≥|<) (?=[\d∞])")
_APOSTROPHE = re.compile(r"(?<=\w)'")


def typeset(text: str) -> str:
    """Return a text with Greek letters for names such as epsilon, and powers of ten.

    Example:
        >>> typeset("epsilon is 2 at delta = 1e-05, by noise_epsilon").replace(
        ...     chr(160), "_")
        'ε is 2 at δ_=_10⁻⁵, by noise_epsilon'
    """
    quoted = _APOSTROPHE.sub("\N{RIGHT SINGLE QUOTATION MARK}", text)
    quoted = quoted.replace(">=", "≥")
    lettered = _WORD.sub(lambda found: _LETTERS[found[0]], quoted)
    powered = _SMALL_NUMBER.sub(lambda found: scientific(float(found[0])), lettered)
    # Keep an equation on one line.
    return _EQUALS.sub("\N{NO-BREAK SPACE}\\1\N{NO-BREAK SPACE}", powered)


def sentence(text: str) -> str:
    """Return a typeset text with an initial capital and a final full stop.

    Example:
        >>> sentence("use more canaries")
        'Use more canaries.'
    """
    shown = typeset(text)
    ended = shown if shown.endswith((".", "!", "?", "…")) else f"{shown}."
    # A Greek letter stays lower case.
    return ended if ended[:1] in _LETTERS.values() else ended[:1].upper() + ended[1:]
