"""Texts that two readers could read in two ways are refused."""

import base64
import json

import pytest

from dpaudit import _canonical
from dpaudit.errors import InvalidInputError
from dpaudit.evidence import envelope


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 1}',
        '{"b": {"a": 1, "a": 2}}',
        "[NaN]",
        "[Infinity]",
        "[1e999]",
        "[1,]",
        "",
        "[" * 100_000,
        "9" * 5000,
    ],
)
def test_json_that_is_read_in_two_ways_or_none_is_refused(text):
    with pytest.raises(InvalidInputError, match="not JSON"):
        _canonical.parsed(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"b":1,"a":2}',
        '{"a": 1}',
        '{"a":1}\n',
        '{"a":1.50}',
        '{"a":"\\u0041"}',
        '{"a":"é"}',
        '{"a":1E5}',
    ],
)
def test_a_text_that_is_not_the_canonical_one_is_refused(text):
    json.loads(text)  # it is JSON
    with pytest.raises(InvalidInputError, match="canonical"):
        _canonical.canonical(text)


@pytest.mark.parametrize("value", ["March", '{"b": 1', '{"b":NaN}', '{"b": 1}'])
def test_texts_that_look_like_documents_are_texts(value):
    text = json.dumps({"setting": {"design": value}}, separators=(",", ":"))
    assert _canonical.canonical(text) == {"setting": {"design": value}}


@pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ('{"a":', "}")])
def test_documents_may_be_nested_but_not_without_end(opened, closed):
    """So deeply on every Python; one of them read 5,000 levels, another 900."""

    def nested(depth):
        return opened * depth + "1" + closed * depth

    assert _canonical.canonical(nested(100)) == json.loads(nested(100))
    for depth in (101, 5_000, 100_000):
        with pytest.raises(InvalidInputError, match="nested too deeply"):
            _canonical.canonical(nested(depth))


@pytest.mark.parametrize("inner", [[1], {"a": 1}, (1,)])
def test_nothing_is_written_that_is_too_deep_to_be_read(inner):
    for _ in range(99):
        inner = [inner, 0]
    assert _canonical.canonical(_canonical.text(inner))
    with pytest.raises(InvalidInputError, match="nested too deeply"):
        _canonical.text({"b": 0, "a": inner})


def test_a_mark_before_the_text_is_no_part_of_it():
    assert _canonical.parsed("\ufeff{}") == {}
    with pytest.raises(InvalidInputError, match="canonical"):
        _canonical.canonical("\ufeff{}")


def test_base64_has_one_spelling():
    data = bytes(range(256))
    text = base64.b64encode(data).decode()
    assert envelope._from_base64("sig", text) == data
    assert envelope._to_base64(data) == text
    spellings = [
        text.replace("+", "-").replace("/", "_"),
        text.rstrip("="),
        text + "=",
        text[:8] + "\n" + text[8:],
        " " + text,
        text[:-3] + chr(ord(text[-3]) + 1) + text[-2:],  # bits that decode to nothing
        None,
        5,
        "é",
    ]
    for other in spellings:
        with pytest.raises(InvalidInputError, match="sig must be"):
            envelope._from_base64("sig", other)
