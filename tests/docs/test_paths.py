"""Pages name files that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ["src", "lab", "tests", "docs", "examples", ".ci"]
PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "lab").rglob("*.md"),
]
NAMED = re.compile(r"(?<![\w/.*{<-])(?:\.\./)*((?:[\w.-]+/)+[\w-]+\.pyi?)\b")


def endings(path):
    """Every way to name a file: its path from any folder above it."""
    parts = path.relative_to(ROOT).parts
    return ("/".join(parts[begin:]) for begin in range(len(parts)))


def test_every_python_file_that_a_page_names_exists(subtests):
    files = (file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py*"))
    known = {name for file in files for name in endings(file)}
    assert "dpaudit/errors.py" in known
    for page in PAGES:
        text = page.read_text("utf-8")
        with subtests.test(page=str(page.relative_to(ROOT))):
            assert set(NAMED.findall(text)) <= known
