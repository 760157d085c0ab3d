"""Outputs that are kept: compared with what is said now, or written anew.

    DPAUDIT_WRITE_GOLDEN=1 pytest tests/golden

writes them. They change only in commits whose message says why. Numbers may differ by
one part in 10^9, as they do between versions of numpy and scipy; all else is compared
to the letter, but for dates and versions of packages, which are left out.
"""

import base64
import json
import os
import re
from html import unescape
from importlib.metadata import version
from math import isclose
from pathlib import Path
from textwrap import fill

OUTPUTS = Path(__file__).with_name("outputs")
_NUMBER = re.compile(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)")
_VERSIONS = re.compile(
    r"(\"(?:dpaudit|python|numpy|scipy)\": ?\"|(?:dpaudit|Python|numpy|scipy) )"
    r"\d[\w.+]*"
)
# Which packages a report names depends on what else was loaded.
_LOADED = re.compile(r"(Versions that made this page\n)(?:[\w-]+ \d\S*\n)*")
_DATE = re.compile(r"\b\d{1,2} [A-Z][a-z]+ \d{4}\b")  # of today
_LIST = re.compile(r"\[[^\[\]{}\"]*\]")  # of numbers


def check_golden(name: str, text: str) -> None:
    """Check that a text is the one kept under a name."""
    text = _DATE.sub("DATE", _LOADED.sub(r"\1", text))
    text = _VERSIONS.sub(r"\1VERSION", text).replace(version("dpaudit"), "VERSION")
    path = OUTPUTS / name
    if os.environ.get("DPAUDIT_WRITE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
    kept = path.read_text("utf-8").splitlines()
    for number, (was, now) in enumerate(zip(kept, text.splitlines(), strict=False), 1):
        assert alike(was, now), f"{name}, line {number}:\n- {was}\n+ {now}"
    assert len(text.splitlines()) == len(kept), f"{name} has another number of lines"


def pretty(text: str) -> str:
    """Return JSON on many lines; of an envelope what is in it, without versions."""
    plain = json.loads(text)
    if isinstance(plain, dict) and "payload" in plain:
        plain["payload"] = json.loads(base64.b64decode(plain["payload"]))
        plain["payload"]["predicate"].pop("versions")
        for each in plain["signatures"]:
            each["sig"] = "left out, as versions are signed too"
    return _LIST.sub(_on_one_line, json.dumps(plain, indent=1)) + "\n"


def _on_one_line(found: re.Match[str]) -> str:
    return " ".join(found[0].split())


def words_of(page: str) -> str:
    """Return what a page says: a line for each part of it."""
    page = re.sub(r"<(style|svg).*?</\1>", "", page, flags=re.DOTALL)
    parts = re.split(r"</(?:p|h\d|li|td|th|div|title|summary|pre)>", page)
    lines = (" ".join(unescape(re.sub("<[^>]*>", "", part)).split()) for part in parts)
    return "\n".join(fill(line, 100) for line in lines if line) + "\n"


def alike(one: str, other: str) -> bool:
    """Return whether two lines are the same but for the last digits of numbers."""
    if one == other:
        return True
    parts, others = _NUMBER.split(one), _NUMBER.split(other)
    if parts[::2] != others[::2]:  # what is between the numbers
        return False
    pairs = zip(parts[1::2], others[1::2], strict=True)
    return all(_close(float(a), float(b)) for a, b in pairs)


def _close(a: float, b: float) -> bool:
    return isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
