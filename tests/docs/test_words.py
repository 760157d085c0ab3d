"""Words that the glossary replaces remain only where they are the right ones.

Probability was called chance, a pipeline stage a road, and findings "said" things. Each
use that remains, in the package or on a page for users, lies within a phrase of
``ALLOWED``, with the reason for which it stays.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = {".py", ".pyi", ".json", ".css", ".html"}
PAGES = ("README.md", "docs/index.md", "docs/tutorials/*.md", "docs/how-to/*.md")
CONCEPTS = (
    "faq",
    "glossary",
    "the-game",
    "why-the-bound-is-lower",
    "assumptions",
    "final-model",
    "others",
)
REPLACED = re.compile(
    r"(?<![a-z])(chances?|roads?|sa(?:y|ys|id|ying)|look(?:s|ed|ing)?|told|"
    r"mend(?:s|ed|ing)?|lots|held against|a training)(?![a-z])",
    re.IGNORECASE,
)
# Each phrase in which a word may remain, and why. White space is folded beforehand.
ALLOWED = {
    r"(than|up to|at|below|beyond|by|mistaking|for|as) chance|guesses beat chance|"
    r"(beyond|better_than)_chance|chance( alone)? (explains|exceeds|may|is)": (
        "random variation, or guessing at random: 'no better than chance'"
    ),
    r"\"chance\"|\.line\.chance": "the style class of the line of random guesses",
    r"looks?": "a look of a sequential test, the term of the field; only in LOOKS",
    r"(pays for|chosen by|made by) looking": "a choice made after seeing the data",
    r"looks (like|random|tight)": "ordinary prose: appears to be",
    r"lots within cells|dpaudit lots 2": "the hash domain in the format of a tally",
    r"a training (run|step|loop|batch|audit|record|result)": "the phrase goes on",
    r"all \+1, say|sees more, say": "for example",
    r"says yes": "the text of an example",
}
LOOKS = (  # where a look of a sequential test may be meant
    "src/dpaudit/bounds/ranked.py",
    "src/dpaudit/stats/ranked_tail.py",
    "src/dpaudit/reporting/report/bound_by_guesses.py",
    "src/dpaudit/game/rules/__init__.py",
    "src/dpaudit/game/tie_breaking.py",
    "src/dpaudit/explanation/accuracy.py",
)


def texts():
    """Yield the path and the text of everything that the words are sought in."""
    for path in sorted((ROOT / "src").rglob("*")):
        if path.suffix in SOURCES:
            yield path
    for pattern in PAGES:
        yield from sorted(ROOT.glob(pattern))
    for name in CONCEPTS:
        yield ROOT / "docs" / "explanation" / f"{name}.md"


def folded(path):
    """Return a file's text without line ends, comment signs and joins of strings."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"\"\n\s*f?\"", "", text)
    return re.sub(r"\s+(#\s+)?", " ", text)


def remaining(path, text):
    """Yield each replaced word that no allowed phrase covers, and its context."""
    covered = set()
    for phrase in ALLOWED:
        if phrase == "looks?" and path.relative_to(ROOT).as_posix() not in LOOKS:
            continue
        for found in re.finditer(phrase, text, re.IGNORECASE):
            covered |= set(range(found.start(), found.end()))
    for word in REPLACED.finditer(text):
        begin, end = word.span()
        if not covered.issuperset(range(begin, end)):
            yield f"{path.relative_to(ROOT)}: {text[max(begin - 40, 0) : end + 30]}"


def test_replaced_words_remain_only_where_they_were_allowed():
    assert not [each for path in texts() for each in remaining(path, folded(path))]


def test_every_allowed_phrase_is_needed():
    everything = " ".join(folded(path) for path in texts())
    for phrase in ALLOWED:
        assert re.search(phrase, everything, re.IGNORECASE), phrase


def test_a_word_that_comes_back_is_found():
    page = ROOT / "README.md"
    for text in (
        "with chance 0.9",
        "what was said",
        "a training of 5",
        "by every road",
    ):
        assert list(remaining(page, text)), text
