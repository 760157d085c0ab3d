"""Traces of a key and its coins in whatever was written, in every form we thought of.

Coins are sought as stretches of 64 from several places, so that a file that holds some
of them is found too. A stretch of 64 fair coins is somewhere in a megabyte of unrelated
bits with chance 2^23 / 2^64: no false alarm is to be expected.
"""

import base64
import json
import re
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile, is_zipfile

import numpy as np

from dpaudit import Coins, Key

STRETCH = 64
NUMBERS = ("u1", "i1", "<i2", "<i4", "<i8", ">i4", ">i8", "<f4", "<f8", ">f8")


def written(folder: Path) -> dict[str, bytes]:
    """Return all that is in a folder, by name."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def traces(key: Key, count: int, content: bytes) -> list[str]:
    """Return which traces of a key and so many coins are in some bytes."""
    return found_in(content, {**key_forms(key), **coin_forms(key, count)})


def found_in(content: bytes, sought: dict[str, bytes]) -> list[str]:
    """Return the names of the forms that are in some bytes."""
    layers = list(_layers(content))
    return [
        name for name, form in sought.items() if any(form in layer for layer in layers)
    ]


def _layers(content: bytes) -> Iterator[bytes]:
    """Yield bytes as they are, and what is packed or encoded in them."""
    yield content
    if is_zipfile(BytesIO(content)):
        with ZipFile(BytesIO(content)) as archive:
            for name in archive.namelist():
                yield from _layers(archive.read(name))
    for text in re.findall(rb"[A-Za-z0-9+/]{64,}={0,2}", content):
        yield base64.b64decode(text + b"=" * (-len(text) % 4), validate=False)


def key_forms(key: Key) -> dict[str, bytes]:
    secret = key.secret
    number = int.from_bytes(secret, "big"), int.from_bytes(secret, "little")
    return {
        "key": secret,
        "key reversed": secret[::-1],
        "key in hex": secret.hex().encode(),
        "key in HEX": secret.hex().upper().encode(),
        "key in base64": base64.b64encode(secret).rstrip(b"="),
        "key in base64 for addresses": base64.urlsafe_b64encode(secret).rstrip(b"="),
        "key as a list": json.dumps(list(secret))[1:-1].encode(),
        "key as Python writes it": repr(secret)[2:-1].encode(),
        "key as a number": str(number[0]).encode(),
        "key as another number": str(number[1]).encode(),
    }


def coin_forms(key: Key, count: int) -> dict[str, bytes]:
    bits = Coins(key=key, count=count).bits()
    found = {}
    for start in range(0, count - STRETCH + 1, STRETCH):
        here = bits[start : start + STRETCH]
        for order in ("big", "little"):
            packed = np.packbits(here, bitorder=order).tobytes()
            found[f"coins from {start}, packed {order} end first"] = packed
            found[f"coins from {start}, in hex, {order}"] = packed.hex().encode()
        for meaning, values in (("bits", here), ("signs", 2 * here.astype(int) - 1)):
            for kind in NUMBERS:
                if meaning == "signs" and kind == "u1":
                    continue
                numbers = values.astype(kind).tobytes()
                found[f"coins from {start}, {meaning} as {kind}"] = numbers
            for between in ("", ",", ", ", " ", "\n"):
                text = between.join(map(str, values)).encode()
                found[f"coins from {start}, {meaning} by {between!r}"] = text
        for words in (("false", "true"), ("False", "True")):
            text = ", ".join(words[bit] for bit in here).encode()
            found[f"coins from {start} as {words}"] = text
    included = np.flatnonzero(bits)[:STRETCH]
    for kind in ("<i4", "<i8"):
        found[f"who is included, {kind}"] = included.astype(kind).tobytes()
    for between in (",", ", ", "\n"):
        text = between.join(map(str, included)).encode()
        found[f"who is included, by {between!r}"] = text
    return found
