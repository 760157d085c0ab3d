"""JSON and base64 that can be read in one way only.

Whoever checks a document and whoever shows it to others must see the same thing. JSON
with a key that appears twice, or base64 with bits to spare, is read differently by
different readers, and a forger can use that. Here such texts are refused. A canonical
document is in addition written in the one way that ``dpaudit._canonical`` writes it,
and so is every document that it holds as text.
"""

import base64
from typing import Any

from dpaudit import _canonical
from dpaudit.errors import InvalidInputError

__all__ = [
    "DOCUMENTS",
    "canonical",
    "from_base64",
    "object_of",
    "parsed",
    "to_base64",
    "unlike",
    "without_mark",
]

# Fields of a document that hold another document as text. Names that the user chose,
# as in a design's setting, are those of an object within a document, and not meant.
DOCUMENTS = frozenset(
    {
        "audit",
        "commitment",
        "design",
        "guesses",
        "reading",
        "registration",
        "result",
        "transcript",
    }
)


def parsed(text: str) -> Any:  # noqa: ANN401 (parsed JSON)
    """Return the value of a JSON text, if there is only one way to read it.

    Example:
        >>> parsed('{"a": 1, "a": 2}')
        Traceback (most recent call last):
        dpaudit.errors.InvalidInputError: not JSON that can be read in one way only: \
the key 'a' appears twice
    """
    return _canonical.parsed(text, "not JSON that can be read in one way only", _once)


def object_of(value: object, what: str, names: set[str]) -> dict[str, Any]:
    """Return a JSON object that has exactly these fields."""
    if not isinstance(value, dict):
        raise InvalidInputError(f"{what} must be an object, got {value!r:.60}")
    if value.keys() != names:
        odd = sorted(value.keys() ^ names)[0]
        lacks = "lacks the" if odd in names else "has no"
        raise InvalidInputError(f"{what} {lacks} field {odd!r}")
    return value


def canonical(text: str) -> Any:  # noqa: ANN401 (parsed JSON)
    """Return the value of a canonical JSON text; documents in it must be so too."""
    value = parsed(text)
    try:
        same = _canonical.text(value) == text
        _check_documents(value)
    except RecursionError as error:
        raise InvalidInputError("the document is nested too deeply") from error
    if not same:
        raise InvalidInputError(
            "the document is not in canonical form: keys sorted, no spaces, numbers as "
            "Python writes them"
        )
    return value


def unlike(written: Any, read: Any, path: str = "") -> str:  # noqa: ANN401 (parsed JSON)
    """Return where a value is written otherwise than it is read; "" if nowhere.

    Python takes ``True``, ``1`` and ``1.0`` for equal, and ``0.0`` for ``-0.0``; texts
    and other readers do not.

    Example:
        >>> unlike({"a": [1, True]}, {"a": [1, 1]})
        'a[1] as true, which is read as 1'
    """
    if isinstance(written, dict) and isinstance(read, dict):
        names = sorted(written.keys() | read.keys())
        parts = [
            (f"{path}.{name}", written.get(name), read.get(name)) for name in names
        ]
    elif isinstance(written, list) and isinstance(read, list):
        if len(written) != len(read):
            return (
                f"{path[1:]} with {len(written)} entries, of which {len(read)} are read"
            )
        pairs = enumerate(zip(written, read, strict=True))
        parts = [(f"{path}[{place}]", *pair) for place, pair in pairs]
    else:
        texts = _canonical.text(written), _canonical.text(read)
        # Whatever a user puts into a setting is for the record, and has no other form.
        free = path.startswith(".setting.")
        if texts[0] == texts[1] and (free or texts[0] != "-0.0"):
            return ""
        return f"{path[1:]} as {texts[0]:.40}, which is read as {texts[1]:.40}"
    return next(filter(None, (unlike(one, two, at) for at, one, two in parts)), "")


def without_mark(text: str) -> str:
    """Return a text without the mark (BOM) that some editors put before UTF-8."""
    return text.removeprefix("\ufeff")


def to_base64(data: bytes) -> str:
    """Return bytes as base64 text.

    Example:
        >>> to_base64(b"coin")
        'Y29pbg=='
    """
    return base64.b64encode(data).decode("ascii")


def from_base64(name: str, value: object) -> bytes:
    """Return the bytes of a base64 text, if it is the one text for them.

    Example:
        >>> from_base64("payload", "Y29pbg==")
        b'coin'
        >>> from_base64("payload", "Y29pbh==")  # the same bytes, other spare bits
        Traceback (most recent call last):
        dpaudit.errors.InvalidInputError: payload must be standard base64 with nothing \
to spare
    """
    try:
        found = base64.b64decode(str(value), validate=True)
    except ValueError as error:
        raise InvalidInputError(f"{name} must be base64: {error}") from error
    if to_base64(found) != value:
        raise InvalidInputError(f"{name} must be standard base64 with nothing to spare")
    return found


def _check_documents(value: object) -> None:
    if isinstance(value, dict):
        for name in value.keys() & DOCUMENTS:
            if isinstance(value[name], str):
                canonical(value[name])


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {name!r} appears twice")
        found[name] = value
    return found
