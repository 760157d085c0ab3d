"""Evidence that was tampered with, one field or one byte at a time.

A field is any value in the payload, down into the documents that it holds. A forger
who changes a field of unsigned evidence also puts the hashes of the statement right;
that is done here too. Texts of the payload are made by ``json`` alone.
"""

import base64
import hashlib
import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = [
    "broken_bytes",
    "broken_envelope",
    "broken_evidence",
    "broken_payload",
    "broken_registration",
    "contents",
    "field_of",
    "forged",
    "same",
]

Path = tuple[str | int, ...]

# Text that other places of the same documents hold: what a forger would try first.
_WORDS = (
    "",
    "exact",
    "classic",
    "add-remove",
    "replace-one",
    "counts",
    "one-run",
    "ranking",
    "adaptive-count",
    "pure",
    "an observer of the final model only",
    "dpaudit.result.1",
    "A",
    "B",
)


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def contents(text: str | bytes) -> tuple[bytes, list[Any]]:
    """Return payload and signatures of an envelope, read by nothing of ours."""
    plain = json.loads(text)
    return base64.b64decode(plain["payload"]), plain["signatures"]


def places(value: Any, at: Path = ()) -> Iterator[Path]:
    """Yield the path of every value within a value."""
    if at:
        yield at
    match value:
        case dict():
            for name, each in value.items():
                yield from places(each, (*at, name))
        case list():
            for place, each in enumerate(value):
                yield from places(each, (*at, place))


def field_of(at: Path) -> str:
    """Return the name of a field: its path without the numbers of entries."""
    return ".".join(str(part) for part in at if isinstance(part, str))


def chosen(tree: Any, rng: np.random.Generator, within: str = "") -> Path:
    """Return a place in a tree: first a field, then one of its entries."""
    fields: dict[str, list[Path]] = {}
    for at in places(tree):
        if f"{field_of(at)}.".startswith(within):
            fields.setdefault(field_of(at), []).append(at)
    name = rng.choice(sorted(fields))
    return fields[name][rng.integers(len(fields[name]))]


def changed(tree: Any, at: Path, rng: np.random.Generator) -> Any:
    """Return a tree of which one value is another."""
    head, *rest = at
    inner = changed(tree[head], tuple(rest), rng) if rest else other(tree[head], rng)
    if isinstance(tree, list):
        return [*tree[:head], inner, *tree[head + 1 :]]
    return {**tree, head: inner}


def other(value: Any, rng: np.random.Generator) -> Any:
    """Return a value that is not this one, most often of its kind."""
    options = _others(value, rng)
    fitting = [each for each in options if canonical(each) != canonical(value)]
    return fitting[rng.integers(len(fitting))]


def _others(value: Any, rng: np.random.Generator) -> list[Any]:
    odd = [[None, str(value)[:40], [], {}, 0, True][rng.integers(6)]]
    match value:
        case bool():
            near = [not value]
        case -1 | 0 | 1:
            near = [-1, 0, 1, float(value), 10]
        case int():
            near = [value + 1, value - 1] * 6 + [-value, 2 * value, 0, 1, float(value)]
            near += [*rng.integers(0, 60, 12).tolist(), 10**18]
        case float():
            near = [value * 1.001, value * 0.999, value + 1e-3, value / 2, 2 * value]
            near += [-value, 0.0, 0.5, 1.0, round(value, 3)]
        case str():
            place = int(rng.integers(max(1, len(value))))
            letter = chr(33 + int(rng.integers(94)))
            near = [value[:place] + letter + value[place + 1 :], value + " "]
            near = [*near * 3, value * 2, *_WORDS]
        case None:
            near = [0, 0.5, "", "00" * 32, True, [], {}]
        case list():
            near = _other_lists(value, rng)
        case dict():
            near = _other_objects(value, rng)
    return near + odd


def _other_lists(value: list[Any], rng: np.random.Generator) -> list[Any]:
    if not value:
        return [[0], [""], [None]]
    i, j = rng.integers(len(value), size=2)
    swapped = list(value)
    swapped[i], swapped[j] = swapped[j], swapped[i]
    return [
        value[:i] + value[i + 1 :],
        [*value, value[i]],
        [*value[:i], value[j], *value[i:]],
        swapped,
        value[::-1],
    ]


def _other_objects(value: dict[str, Any], rng: np.random.Generator) -> list[Any]:
    if not value:
        return [{"more": 1}]
    gone = sorted(value)[rng.integers(len(value))]
    rest = {name: each for name, each in value.items() if name != gone}
    return [
        rest,
        {**value, "more": 1},
        {**rest, gone + "s": value[gone]},
    ]


def broken_payload(text: str, rng: np.random.Generator) -> tuple[str, str]:
    """Change one field of the payload, keep the signature; return text and field."""
    plain = json.loads(text)
    tree = json.loads(base64.b64decode(plain["payload"]))
    at = chosen(tree, rng)
    payload = canonical(changed(tree, at, rng)).encode()
    plain["payload"] = base64.b64encode(payload).decode()
    return canonical(plain), field_of(at)


def broken_envelope(text: str, rng: np.random.Generator) -> tuple[str, str]:
    """Change one field of the envelope; the payload's text counts as one."""
    plain = json.loads(text)
    at = chosen(plain, rng)
    return canonical(changed(plain, at, rng)), field_of(at)


def broken_bytes(text: str, rng: np.random.Generator) -> tuple[bytes, str]:
    """Change the file at one place, whatever stands there."""
    data = bytearray(text.encode())
    place, kind = int(rng.integers(len(data))), int(rng.integers(6))
    match kind:
        case 0:
            data[place] ^= 1 << int(rng.integers(8))
            return bytes(data), "a bit flipped"
        case 1:
            data[place] = (data[place] + 1 + int(rng.integers(255))) % 256
            return bytes(data), "a byte replaced"
        case 2:
            data.insert(place, int(rng.integers(256)))
            return bytes(data), "a byte put in"
        case 3:
            del data[place]
            return bytes(data), "a byte left out"
        case 4:
            data.insert(place, b" \t\r\n"[rng.integers(4)])
            return bytes(data), "white space put in"
        case _:
            del data[place:]
            return bytes(data), "the end cut off"


def digest_of(value: Any) -> str:
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def forged(statement: dict[str, Any]) -> str:
    """Return an unsigned envelope whose hashes were put right."""
    predicate = statement["predicate"]
    digests = [None, None]
    try:
        registered = predicate["registration"]
        if registered["commitment"] is None:
            name = "design"
            digests[0] = digest_of(registered["design"])
        else:
            name = "commitment"
            digests[0] = registered["commitment"]["sha256"]
        statement["subject"][0]["name"] = name
    except (AttributeError, KeyError, TypeError, ValueError):
        pass
    if isinstance(predicate, dict) and "result" in predicate:
        digests[1] = digest_of(predicate["result"])
    for subject, digest in zip(statement["subject"], digests, strict=True):
        if digest is not None:
            subject["digest"]["sha256"] = digest
    payload = base64.b64encode(canonical(statement).encode()).decode()
    return canonical(
        {
            "payload": payload,
            "payloadType": "application/vnd.in-toto+json",
            "signatures": [],
        }
    )


def broken_evidence(
    text: str, rng: np.random.Generator, within: str = ""
) -> tuple[str, str]:
    """Change one field of unsigned evidence as a forger would.

    Design and commitment stand in several places; half of the time all are changed.
    """
    statement = json.loads(contents(text)[0])
    tree = statement["predicate"]
    at = chosen(tree, rng, f"{within}." if within else "")
    after = changed(tree, at, rng)
    if at[0] == "registration" and len(at) > 2 and rng.random() < 0.5:
        part = tree["registration"][at[1]]
        after = replaced(tree, part, after["registration"][at[1]])
    statement["predicate"] = after
    return forged(statement), field_of(at)


def broken_registration(text: str, rng: np.random.Generator) -> tuple[str, str]:
    """Change one field of a registration, or say one of its fields twice."""
    tree = json.loads(text)
    at = chosen(tree, rng)
    after = changed(tree, at, rng)
    if (
        at[0] == "design"
        and len(at) > 1
        and isinstance(at[1], str)
        and rng.random() < 0.2
    ):
        # Whoever takes the first of two reads another design.
        first = f"{canonical(at[1])}:{canonical(after['design'].get(at[1]))}"
        twice = canonical(tree).replace('"design":{', f'"design":{{{first},', 1)
        return twice, "a key said twice"
    return canonical(after), field_of(at)


def replaced(value: Any, old: Any, new: Any) -> Any:
    """Return a value with one part exchanged wherever it stands."""
    if isinstance(value, dict) and value == old:
        return new
    match value:
        case dict():
            return {name: replaced(each, old, new) for name, each in value.items()}
        case list():
            return [replaced(each, old, new) for each in value]
    return value


def same(first: str, second: str) -> bool:
    """Return whether two texts hold equal values, however these are written."""
    return _alike(json.loads(first), json.loads(second))


def _alike(first: Any, second: Any) -> bool:
    match first, second:
        case dict(), dict():
            return first.keys() == second.keys() and all(
                _alike(first[name], second[name]) for name in first
            )
        case list(), list():
            return len(first) == len(second) and all(map(_alike, first, second))
        case ((int() | float()), (int() | float())):
            return math.isclose(first, second, rel_tol=1e-12, abs_tol=1e-12)
    return bool(first == second)
