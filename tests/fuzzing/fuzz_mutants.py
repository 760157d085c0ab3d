"""Hostile inputs: values, bytes and documents that nobody meant to write.

A mutant is made from a valid sample and a seeded ``Random``, so that a case is told by
its number alone. Documents are changed as trees, down into those that they hold as
text, for a byte that is changed at random seldom comes further than the parser.
"""

import json
from random import Random
from typing import Any

from evidence_mutants import forged, places

__all__ = [
    "NUMBERS",
    "TEXTS",
    "Tree",
    "decoded",
    "envelope_mutant",
    "json_mutant",
    "raw_mutant",
]

# Numbers as JSON, CSV and command lines spell them; not all are numbers everywhere.
NUMBERS = (
    "0", "-0", "-0.0", "1", "-1", "2", "0.5", "1e-5", "1e308", "-1e308", "1e309",
    "1e999999999", "-1e999999999", "1e-400", "5e-324", "0.1e1", "NaN", "nan", "-nan",
    "Infinity", "-Infinity", "inf", "-inf", "1_000", "0x10", "1e", "+1", " 1", "1 ",
    "01", ".5", "5.", "\u0661\u0662", "\uff11", "true", "True", "9007199254740993",
    "9223372036854775807", "9223372036854775808", "-9223372036854775809",
    "18446744073709551616", "1" + "0" * 30, "1" + "0" * 310, "1" + "0" * 5000,
    "0." + "0" * 400 + "1", "1000000000", "1e15", "1000000007", "4294967296",
)  # fmt: skip
TEXTS = (
    "", " ", "a", "\x00", "a\x00b", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\u202e",
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "[bold]x[/bold]",
    "../../etc/passwd", "/etc/passwd", "..", "C:\\x", "$(id)", "`id`", "; id", "| id",
    "%s%n", "{0}", "{x!r}", "\ud800", "\U0001f600", "\n", "a\nb", "\r", "e\u0301",
    "a" * 300, "a" * 20_000, "{}", "[]", "null", '{"format": 1}',
)  # fmt: skip
_JSON_NUMBERS = tuple(n for n in NUMBERS if n not in ("\u0661\u0662", "\uff11"))
_NESTED = tuple("[" * n + "]" * n for n in (2, 50, 900, 3000, 20_000))
_MAGIC = 987654321  # stands for a token that json.dumps would not write


class Tree:
    """A document that is held as an object, with the places that can be changed."""

    def __init__(self, text: str | bytes) -> None:
        self.root = json.loads(text)
        by_field: dict[tuple[str, ...], list[tuple[str | int, ...]]] = {}
        for at in places(self.root):
            name = tuple(part for part in at if isinstance(part, str))
            by_field.setdefault(name, []).append(at)
        self._fields = list(by_field.values())

    def place(self, rng: Random) -> tuple[str | int, ...]:
        """Return a place: first a field, then one of its entries."""
        return rng.choice(rng.choice(self._fields)) if self._fields else ()


class _Raw:
    """Tokens that are put into a text once it is written."""

    def __init__(self) -> None:
        self.tokens: list[str] = []

    def value(self, token: str) -> int:
        self.tokens.append(token)
        return _MAGIC * 10**6 + len(self.tokens)

    def put(self, text: str) -> str:
        for number, token in enumerate(self.tokens, 1):
            text = text.replace(str(_MAGIC * 10**6 + number), token)
        return text


def json_mutant(tree: Tree, rng: Random) -> bytes:
    """Return a document with a few values changed, and now and then a few bytes."""
    raw, root = _Raw(), tree.root
    for _ in range(1 + _few(rng)):
        root = _changed(root, tree.place(rng), rng, raw)
    text = raw.put(_dumped(root, rng))
    data = text.encode("utf-8", "surrogatepass")
    return raw_mutant(data, rng) if rng.random() < 0.1 else data


def envelope_mutant(tree: Tree, rng: Random) -> bytes:
    """Return evidence whose statement was changed, its hashes put right."""
    raw, root = _Raw(), tree.root
    for _ in range(1 + _few(rng)):
        root = _changed(root, tree.place(rng), rng, raw)
    statement = root
    try:
        text = forged(json.loads(raw.put(json.dumps(statement))))
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return json_mutant(tree, rng)
    data = text.encode()
    return raw_mutant(data, rng) if rng.random() < 0.05 else data


def decoded(data: bytes) -> str:
    """Return bytes as a text, with halves of surrogate pairs if they spell some."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace")


def raw_mutant(data: bytes, rng: Random) -> bytes:
    """Return bytes of which some were changed, left out, doubled or put in."""
    found = bytearray(data)
    for _ in range(1 + _few(rng)):
        start = rng.randrange(len(found) + 1)
        end = min(len(found), start + rng.choice((1, 1, 2, 4, 8, 64)))
        match rng.randrange(9):
            case 0 if start < len(found):
                found[start] ^= 1 << rng.randrange(8)
            case 1:
                found[start:end] = rng.randbytes(end - start)
            case 2:
                found[start:start] = rng.randbytes(rng.choice((1, 2, 8)))
            case 3:
                del found[start:end]
            case 4:
                del found[start:]
            case 5:
                found[start:start] = found[start:end] * rng.choice((1, 2, 50))
            case 6:
                found[start:end] = rng.choice((b"\x00", b"\xff", b"\x7f\xff\xff\xff"))
            case 7:
                token = rng.choice(rng.choice((NUMBERS, TEXTS)))
                found[start:end] = token.encode("utf-8", "surrogatepass")
            case _:
                other = rng.randrange(len(found) + 1)
                found[start:start] = found[other : other + 16]
    return bytes(found)


def _few(rng: Random) -> int:
    return min(int(rng.expovariate(1.0)), 6)


def _dumped(value: Any, rng: Random) -> str:
    if rng.random() < 0.8:
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
    return json.dumps(value, ensure_ascii=rng.random() < 0.5)


def _changed(tree: Any, at: tuple[str | int, ...], rng: Random, raw: _Raw) -> Any:
    """Return a tree of which one value is another; the place may be gone by now."""
    if not at:
        return _other(tree, rng, raw)
    head, *rest = at
    inside = (isinstance(tree, dict) and head in tree) or (
        isinstance(tree, list) and isinstance(head, int) and head < len(tree)
    )
    if not inside:
        return tree
    if not rest and rng.random() < 0.2:
        return _reshaped(tree, head, rng)
    inner = _changed(tree[head], tuple(rest), rng, raw)
    if isinstance(tree, list):
        return [*tree[:head], inner, *tree[head + 1 :]]
    return type(tree)({**tree, head: inner})


def _reshaped(tree: Any, head: Any, rng: Random) -> Any:
    """Return a list or an object with an entry more, fewer, moved or renamed."""
    if isinstance(tree, list):
        entry, rest = tree[head], [*tree[:head], *tree[head + 1 :]]
        return rng.choice(
            (rest, [*tree, entry], [*rest, entry], tree[:head], tree * 3, [entry])
        )
    rest = {name: each for name, each in tree.items() if name != head}
    name = rng.choice((head + "s", "more", *TEXTS[:8]))
    return type(tree)(rng.choice((rest, {**tree, name: 1}, {**rest, name: tree[head]})))


def _other(value: Any, rng: Random, raw: _Raw) -> Any:
    kind = rng.randrange(10)
    if kind < 3 and isinstance(value, int | float) and not isinstance(value, bool):
        near = (value + 1, value - 1, -value, 2 * value, value / 2, float(value))
        return rng.choice((*near, value * 1.001, int(value), str(value), [value]))
    if kind < 6:
        return raw.value(rng.choice(_JSON_NUMBERS))
    if kind < 8:
        if isinstance(value, str) and value and rng.random() < 0.5:
            place = rng.randrange(len(value))
            return value[:place] + rng.choice(TEXTS) + value[place + 1 :]
        return rng.choice(TEXTS)
    if kind == 8 and rng.random() < 0.1:
        return raw.value(rng.choice(_NESTED))
    odd = (None, True, False, [], {}, [value], {"a": value})
    return rng.choice((*odd, [raw.value(rng.choice(_JSON_NUMBERS))] * 3))
