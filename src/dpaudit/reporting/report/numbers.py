"""How the report writes numbers: none says more than was shown, none is unreadable.

Lower bounds are rounded down. Powers of ten are written as such, an infinite epsilon as
the sign for it, and a minus is a minus, not a hyphen.
"""

from math import floor, isfinite

__all__ = [
    "at_least",
    "count",
    "plain",
    "scientific",
    "signed",
    "superscript",
]

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_MINUS, _TIMES = "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}"
_LARGE, _SMALL = 1e4, 1e-3


def plain(value: float, digits: int = 3) -> str:
    """Return an epsilon, or any number of its kind, to three places.

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
    """Return a change, with its sign.

    Example:
        >>> signed(0.25), signed(-0.25), signed(0.0)
        ('+0.250', '−0.250', '0.000')
    """  # noqa: RUF002 (as it is read)
    shown = plain(value)
    return f"+{shown}" if value > 0 and shown.strip("0.") else shown


def at_least(value: float) -> str:
    """Return a lower bound, rounded down.

    Example:
        >>> at_least(1.2349), at_least(float("inf"))
        ('1.234', '∞')
    """
    if not 0 <= value < _LARGE:
        return plain(value)
    return f"{floor(value * 1000) / 1000:.3f}"


def scientific(value: float, digits: int = 3) -> str:
    """Return a delta, an alpha or a large number, with a power of ten if that helps.

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
    """Return a power as it stands after its base.

    Example:
        >>> "10" + superscript(-12)
        '10⁻¹²'
    """
    return str(power).translate(_SUPERSCRIPT)
