"""A made-up package whose calls were followed by hand."""

import sys
from importlib import import_module

import pytest
from tracing import Trace

ONE = """
from made_up import two

def plain():
    return own(1)

def own(value):
    return value

def across():
    return two.double(2)  # there and back

def through_others():
    return sorted([3, 1], key=two.double)  # twice there and back

def in_turns():
    return [each for each in two.turns()]  # three times there and back

def in_vain():
    try:
        two.fails()  # there and back
    except ValueError:
        pass

def lately():
    from made_up import three  # not followed: it is imported
    return three.back()  # there, back to `own`, and the same again
"""
TWO = """
def double(value):
    return [2 * each for each in [value]][0]

def turns():
    yield 1
    yield 2

def fails():
    raise ValueError
"""
THREE = """
from made_up.one import own

class Made:
    value = own(3)

def back():
    return own(4)
"""


@pytest.fixture
def one(tmp_path, monkeypatch):
    folder = tmp_path / "made_up"
    folder.mkdir()
    for name, text in {"one": ONE, "two": TWO, "three": THREE}.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    yield import_module("made_up.one")
    for name in [each for each in sys.modules if each.startswith("made_up")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("name", "moves", "pairs", "files", "functions"),
    [
        ("plain", 0, 0, 1, 2),
        ("across", 2, 1, 2, 2),
        ("through_others", 4, 1, 2, 2),
        ("in_turns", 6, 1, 2, 2),
        ("in_vain", 2, 1, 2, 2),
        ("lately", 4, 2, 2, 3),
    ],
)
def test_calls_are_followed_as_they_are_by_hand(
    one, tmp_path, name, moves, pairs, files, functions
):
    found = Trace(tmp_path).follow(getattr(one, name))
    assert found == {
        "moves": moves,
        "pairs": pairs,
        "files": files,
        "functions": functions,
    }


def test_what_is_outside_the_folder_is_not_followed(one, tmp_path):
    found = Trace(tmp_path / "elsewhere").follow(one.across)
    assert set(found.values()) == {0}


def test_who_calls_does_not_count(one, tmp_path):
    """Two calls from here, one of each file: no file of ours called another."""

    def play():
        one.plain()
        one.two.double(1)

    assert Trace(tmp_path).follow(play)["moves"] == 0
