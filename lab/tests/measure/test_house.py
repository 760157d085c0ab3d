"""A made-up tree whose counts were made by hand."""

import pytest
from house import house

RULES = '''"""Two rules.

A docstring is no code.
"""

class Rules:
    """The family."""


class OneRun(Rules):
    """Asked for below."""

    guesses: int = 1  # code, with a comment


class _Between(Rules): ...


class Ranking(_Between):
    def same(self, other: object) -> bool:
        return isinstance(other, Ranking)
'''
ALIASES = """
class OneRun: ...
class Ranking: ...

Rules: TypeAlias = OneRun | Ranking
"""
READS = """
from wheel.rules import Ranking

class Reading(Protocol[OneRun]): ...
class Counts(Reading): ...
class Ranked(Reading): ...
"""
USER = '''
from . import rules

TEXT = """a string of a statement
# counts with all its lines
"""


def ask(value):
    from .deep import reads

    # A comment is no code.
    match value:
        case rules.OneRun() | rules.Ranking(), reads.Counts():
            return isinstance(value, Rules)  # the whole family asks nothing
        case (1, Counts):  # binds a name
            return isinstance(value, int | rules.OneRun)
'''
DEEP = """
import wheel.deep.reads

class OneRun: ...
class _Kept: ...
def inside():
    class Counts: ...
"""


@pytest.fixture
def tree(tmp_path):
    for name, text in {
        "src/wheel/__init__.py": "",
        "src/wheel/rules.py": RULES,
        "src/wheel/user.py": USER,
        "src/wheel/deep/__init__.py": "from ..user import ask\n",
        "src/wheel/deep/reads.py": READS,
        "src/wheel/deep/other.py": DEEP,
        "docs/index.md": "# Two words\n\n| a | table |\n",
        "docs/deep/page.md": "three more words",
        "docs/picture.svg": "not counted",
        "README.md": "read me",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def test_a_tree_is_counted_as_it_is_by_hand(tree):
    assert house(tree) == {
        "files": 6,
        "lines": 21 + 17 + 1 + 6 + 7,
        "lines of code": 7 + 11 + 1 + 4 + 5,
        "ask which rules": 3,
        "ask which rules, outside its file": 2,
        "ask which reading": 1,
        "ask which reading, outside its file": 1,
        "modules with one importer": 1,  # user: rules and reads have two importers
        "class names defined twice": 1,  # OneRun; Counts is inside a function
        "modules with two module docstrings": 0,
        "words of documentation": 8 + 3 + 2,
    }


GLUED = (
    '"""A title."""\n\nX = 1\n\ndef f(): ...\n\n"""Another."""\n',
    '"""A title.\n\nAnother title.\n\nWhat it tells.\n"""\n',
    '"""A title.\n\nWhat\nit tells.\n\nReference: a.\n\nReference: b.\n"""\n',
)


def test_modules_that_begin_again_are_counted(tree):
    for number, text in enumerate(GLUED, start=1):
        (tree / f"src/wheel/glued{number}.py").write_text(text, encoding="utf-8")
        assert house(tree)["modules with two module docstrings"] == number


def test_a_family_that_an_alias_joins_is_counted_alike(tree):
    (tree / "src/wheel/rules.py").write_text(ALIASES, encoding="utf-8")
    found = house(tree)
    assert found["ask which rules"] == found["ask which rules, outside its file"] == 2


def test_of_two_families_with_one_name_the_larger_counts(tree):
    other = tree / "src/wheel/deep/other.py"
    other.write_text(DEEP + "Rules: TypeAlias = OneRun | int\n", encoding="utf-8")
    assert house(tree)["ask which rules, outside its file"] == 2
