"""The schemas say what real documents are, and nothing more is allowed in them."""

import base64
import json
import os
from functools import cache
from importlib import resources

import jsonschema
import pytest
from evidence_samples import KINDS, of_scores
from evidence_schemas import DOCUMENTS, FOLDER, name_of, schema_text

from dpaudit.evidence import seal, verify

# Which schema a document's format has.
SCHEMAS = {each.form: name_of(each) for each in DOCUMENTS}


@cache
def schema(name):
    folder = resources.files("dpaudit") / "schemas"
    return json.loads((folder / f"{name}.schema.json").read_text("utf-8"))


@cache
def validator(form):
    return jsonschema.Draft202012Validator(schema(SCHEMAS[form]))


def documents(value):
    """Yield every document in a value, however deep it is held."""
    if isinstance(value, dict):
        if "format" in value:
            yield value
        for each in value.values():
            yield from documents(each)
    elif isinstance(value, list):
        for each in value:
            yield from documents(each)


def envelopes(folder):
    for make in KINDS.values():
        yield seal(make())
    yield seal(of_scores(folder))


def test_every_document_in_real_evidence_is_as_its_schema_says(tmp_path):
    seen = set()
    for text in envelopes(tmp_path):
        envelope = json.loads(text)
        jsonschema.validate(envelope, schema("envelope"))
        statement = json.loads(base64.b64decode(envelope["payload"]))
        jsonschema.validate(
            statement, {"$ref": "#/$defs/statement", **defs(schema("envelope"))}
        )
        found = json.loads(verify(text, files=tmp_path).to_json())
        for document in (*documents(statement["predicate"]), found):
            validator(document["format"]).validate(document)
            seen.add(document["format"])
    assert seen == set(SCHEMAS)


def defs(found):
    return {"$defs": found["$defs"]}


OURS = sorted({*SCHEMAS.values(), "envelope"})


@pytest.mark.parametrize("form", DOCUMENTS, ids=name_of)
def test_a_schema_is_what_the_dataclasses_say(form):
    file = FOLDER / f"{name_of(form)}.schema.json"
    if os.environ.get("DPAUDIT_WRITE_SCHEMAS"):
        file.write_text(schema_text(form), "utf-8")
    assert file.read_text("utf-8") == schema_text(form)


@pytest.mark.parametrize("name", OURS)
def test_every_object_in_a_schema_is_closed(name):
    found = schema(name)
    jsonschema.Draft202012Validator.check_schema(found)
    assert "title" in found
    for part in objects(found):
        if "properties" in part:
            assert part["additionalProperties"] is False
            assert {*part["required"]} <= {*part["properties"]}
        else:  # names that the user chooses
            assert (
                "additionalProperties" in part
                or "predicate" in found["$defs"]["statement"]["properties"]
            )


def objects(value):
    if isinstance(value, dict):
        if value.get("type") == "object":
            yield value
        for each in value.values():
            yield from objects(each)
    elif isinstance(value, list):
        for each in value:
            yield from objects(each)


def test_a_field_more_or_less_is_no_such_document(tmp_path):
    samples = {}
    for text in envelopes(tmp_path):
        envelope = json.loads(text)
        statement = json.loads(base64.b64decode(envelope["payload"]))
        for document in documents(statement["predicate"]):
            samples.setdefault(document["format"], document)
    for form, document in samples.items():
        assert not validator(form).is_valid({**document, "more": 1})
        for field in document:
            rest = {name: each for name, each in document.items() if name != field}
            assert not validator(form).is_valid(rest)
