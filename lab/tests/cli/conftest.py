"""What tests of the commands share."""

import json
from importlib import resources

import jsonschema
import pytest


@pytest.fixture
def schema():
    """Check that a text is JSON by a schema of the lab, and return it."""

    def checked(text, name):
        folder = resources.files("dpaudit_lab") / "schemas"
        form = json.loads((folder / f"{name}.schema.json").read_text("utf-8"))
        jsonschema.Draft202012Validator.check_schema(form)
        found = json.loads(text)
        jsonschema.validate(found, form)
        return found

    return checked
