"""What the code and the README cite of the documentation is there, to the heading."""

import csv
import re
from pathlib import Path

import pytest

from dpaudit.bounds.methods import METHODS

ROOT = Path(__file__).parents[2]
CITED = re.compile(r"docs/[\w/-]+\.md(?:#[\w-]+)?")


def anchors(page):
    """Return the anchors of a page's headings, as Sphinx and code hosts make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.M)
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        bare = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        yield re.sub(r"[^\w\- ]", "", bare.strip().lower()).replace(" ", "-")


def citations():
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "lab" / "src").rglob("*.py")]
    for path in [*sources, ROOT / "README.md"]:
        text = re.sub(r"\n\s*", " ", path.read_text("utf-8"))
        for cited in CITED.findall(text):
            yield path.relative_to(ROOT).as_posix(), cited


def missing(cited):
    """Return whether a page or its heading is not there."""
    page, _, anchor = cited.partition("#")
    path = ROOT / page
    return not path.exists() or (bool(anchor) and anchor not in anchors(path))


def test_every_page_that_is_cited_has_the_heading():
    found = list(citations())
    assert len(found) > 60
    assert not [each for each in found if missing(each[1])]


def test_what_moved_is_where_the_list_says():
    with (ROOT / "docs" / "moved.csv").open(encoding="utf-8") as lines:
        moved = [(row["old"], row["new"]) for row in csv.DictReader(lines)]
    assert len(moved) > 60
    assert not [new for _, new in moved if missing(f"docs/{new}")]
    gone = {old.partition("#")[0] for old, _ in moved if "#" not in old}
    assert not [old for old in gone if missing(f"docs/{old}") is False]


@pytest.mark.parametrize("method", METHODS)
def test_the_reference_of_a_bound_is_a_heading_or_a_paper(method):
    reference = METHODS[method].reference
    if not reference.startswith("docs/"):
        assert re.search(r"\b(19|20)\d\d\b|https://", reference)
    else:
        assert "#" in reference
        assert not missing(reference)


@pytest.mark.parametrize(
    "cited",
    [
        "docs/explanation/no-page.md",
        "docs/explanation/bounds.md#no-heading",
    ],
)
def test_what_is_not_there_is_noticed(cited):
    assert missing(cited)
