"""The schemas of documents, made from the dataclasses that are written as such."""

import json
from dataclasses import fields
from enum import StrEnum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

import dpaudit
from dpaudit._codec import PossiblyInfinite, PrintableText
from dpaudit.bounds.readings import Reading
from dpaudit.evidence import Evidence, Registration, ScoreFiles, Verification
from dpaudit.game.coins import Key
from dpaudit.game.design import Commitment, Design
from dpaudit.game.result import Result
from dpaudit.game.rules import Rules
from dpaudit.game.transcript import Transcript
from dpaudit.game.verdict import Verdict

FOLDER = Path(dpaudit.__file__).parent / "schemas"
DOCUMENTS = (
    Commitment,
    Design,
    Evidence,
    Reading,
    Registration,
    Result,
    ScoreFiles,
    Transcript,
    Verification,
)
DERIVED = {"verdict": Verdict, "sound": bool, "missing": tuple[str, ...]}
PLAIN = {
    bool: {"type": "boolean"},
    float: {"type": "number"},
    int: {"type": "integer"},
    str: {"type": "string"},
    NoneType: {"type": "null"},
    PrintableText: {"type": "string"},
    PossiblyInfinite: {"anyOf": [{"type": "number"}, {"const": "inf"}]},
    Key: {"type": "string", "pattern": "^[0-9a-f]{64}$"},
}


def name_of(form: type) -> str:
    """Return the name of a document's schema, as its format has it."""
    return form.form.split(".")[1]


def schema_text(form: type) -> str:
    """Return the schema of a document as it stands in its file."""
    defs: dict[str, Any] = {}
    whole = _object(form, defs)
    title = (form.__doc__ or "").partition("\n")[0].removesuffix(".")
    plain = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{title} ({form.form})",
        **whole,
        "$defs": dict(sorted(defs.items())),
    }
    return _lines(plain, depth=2) + "\n"


def _lines(value: Any, depth: int) -> str:
    """Return JSON with a line for each entry, down to some depth."""
    if not depth or not isinstance(value, dict) or not value:
        return json.dumps(value)
    entries = (f"{json.dumps(k)}: {_lines(v, depth - 1)}" for k, v in value.items())
    return "{\n" + ",\n".join(entries) + "\n}"


def _schema(form: Any, defs: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of values of a type."""
    origin, inside = get_origin(form), get_args(form)
    if form in PLAIN:
        found = PLAIN[form]
    elif origin in (Union, UnionType):
        found = {"anyOf": [_schema(each, defs) for each in inside]}
    elif origin is Literal:
        found = {"enum": [str(each) for each in inside]}
    elif origin is tuple:
        found = {"type": "array", "items": _schema(inside[0], defs)}
    elif origin is np.ndarray:
        found = {"type": "array", "items": _entry(get_args(inside[1])[0])}
    elif origin is NDArray:  # an alias that keeps its name, from numpy 2.5 on
        found = {"type": "array", "items": _entry(inside[0])}
    elif origin is not None:
        found = {"type": "object", "additionalProperties": _schema(inside[1], defs)}
    elif issubclass(form, StrEnum):
        found = {"enum": [str(each) for each in form]}
    else:
        if form.__name__ not in defs:
            defs[form.__name__] = {}  # it may hold others of its kind
            defs[form.__name__] = _object(form, defs)
        found = {"$ref": f"#/$defs/{form.__name__}"}
    return found


def _entry(kind: type[np.generic]) -> dict[str, Any]:
    names = {"b": "boolean", "i": "integer", "f": "number"}
    return {"type": names[np.dtype(kind).kind]}


def _object(form: type, defs: dict[str, Any]) -> dict[str, Any]:
    if form in (Reading, Rules):
        kinds = sorted(form.__subclasses__(), key=lambda each: each.__name__)
        some = [
            each for each in _leaves(kinds) if each.__module__.startswith("dpaudit.")
        ]
        return {"anyOf": [_schema(each, defs) for each in some]}
    types = get_type_hints(form, include_extras=True)
    properties: dict[str, Any] = {}
    if hasattr(form, "form"):
        properties["format"] = {"const": form.form}
    if hasattr(form, "kind"):
        properties["kind"] = {"const": form.kind}
    for each in fields(form):
        if each.compare is not False:
            properties[each.name] = _schema(types[each.name], defs)
    for name in getattr(form, "derived", ()):
        properties[name] = _schema(DERIVED[name], defs)
    return {
        "type": "object",
        "required": [n for n in properties if n not in getattr(form, "optional", ())],
        "additionalProperties": False,
        "properties": properties,
    }


def _leaves(classes: list[type]) -> list[type]:
    """Return the classes of a hierarchy that have a kind of their own."""
    found = {}
    for each in classes:
        if isinstance(each.__dict__.get("kind"), str):
            found[each.kind] = each
        found |= {leaf.kind: leaf for leaf in _leaves(each.__subclasses__())}
    return [found[kind] for kind in sorted(found)]
