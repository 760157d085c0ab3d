"""Set the write-up: numbers into the text, the text into Typst, Typst into a PDF.

    python docs/paper/build.py [PDF]     # build/paper.pdf; group `docs`

Fails if a number can no longer be computed or found, if the text has a measured number
that no command stands for, or if it is longer or shorter than it should be.
"""

import json
import re
import sys
import tempfile
from pathlib import Path

import pypandoc
import typst
from quoted import NUMBERS, Number

HERE = Path(__file__).resolve().parent
FIGURES = HERE.parent / "explanation"
PAGES = (8, 12)
# Three digits or more after the point, or an error: nobody chooses such a number.
MEASURED = re.compile(r"(?<![\w.])\d+\.\d{3,}|± ?\.?\d")
NAMED = re.compile(r"\{\{(\w+)\}\}")


def numbered(text: str) -> tuple[str, dict[str, Number]]:
    """Return the text with its numbers, and the numbers that it has."""
    stray = sorted(set(MEASURED.findall(text)))
    if stray:
        raise SystemExit(f"paper.md has numbers without a command: {', '.join(stray)}")
    names = sorted(set(NAMED.findall(text)))
    unknown = [name for name in names if name not in NUMBERS]
    if unknown:
        raise SystemExit(f"quoted.py has no number {', '.join(unknown)}")
    unused = sorted(set(NUMBERS) - set(names))
    if unused:
        raise SystemExit(f"paper.md does not use {', '.join(unused)}")
    found = {name: NUMBERS[name]() for name in names}
    return NAMED.sub(lambda match: found[match[1]].text, text), found


def commands(found: dict[str, Number]) -> str:
    """Return the table of commands, with how many of the numbers are from each."""
    each: dict[str, int] = {}
    for number in found.values():
        each[number.command] = each.get(number.command, 0) + 1
    rows = [f"| `{command}` | {each[command]} |" for command in sorted(each)]
    return "\n".join(["| command | numbers |", "|:-----------------|--:|", *rows])


def build(path: Path) -> int:
    """Write the PDF, and return its number of pages."""
    text, found = numbered((HERE / "paper.md").read_text(encoding="utf-8"))
    text = text.replace("[[commands]]", commands(found))
    body = pypandoc.convert_text(
        text,
        "typst",
        format="markdown+smart",
        extra_args=[
            "--standalone",
            "--columns=1000",  # so that tables take the widths of their cells
            "--citeproc",
            f"--bibliography={HERE / 'references.bib'}",
            f"--template={HERE / 'template.typ'}",
        ],
    )
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "paper.typ"
        source.write_text(body, encoding="utf-8")
        for figure in (*FIGURES.glob("*.svg"), *(FIGURES / "figures").glob("*.svg")):
            (source.parent / figure.name).write_bytes(figure.read_bytes())
        path.parent.mkdir(parents=True, exist_ok=True)
        typst.compile(str(source), output=str(path))
        (pages,) = json.loads(typst.query(str(source), "<pages>", field="value"))
    return int(pages)


def main() -> None:
    """Build it where the argument says."""
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "build/paper.pdf")
    pages = build(path)
    if not PAGES[0] <= pages <= PAGES[1]:
        raise SystemExit(f"{path} has {pages} pages, not {PAGES[0]} to {PAGES[1]}")
    print(f"{path}: {pages} pages")


if __name__ == "__main__":
    main()
