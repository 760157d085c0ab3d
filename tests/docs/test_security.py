"""The threat model names tests that exist, one for every attack that is stopped."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "SECURITY.md").read_text("utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", TEXT)


def test_every_test_that_is_named_exists(subtests):
    for path, name in NAMED:
        with subtests.test(path=path, name=name):
            tree = ast.parse((ROOT / path).read_text("utf-8"))
            assert name in {node.name for node in tree.body if hasattr(node, "name")}


def test_every_attack_has_a_test():
    rows = re.findall(r"^\| (?!---|attack|who|\*\*)(.*) \|$", TEXT, re.M)
    assert len(rows) > 20
    for row in rows:
        assert "::test_" in row.rpartition(" | ")[2], row
