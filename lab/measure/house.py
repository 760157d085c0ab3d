"""How large the house is, and how often it asks what it could know: two trees beside.

    python lab/measure/house.py                     # this checkout
    python lab/measure/house.py BEFORE AFTER        # two checkouts, a column each

Everything is counted from the text of a tree, nothing of it is imported, so that any
commit can be counted. For what the wheel is made of (``src/``):

``files``, ``lines``
    Python files, and their lines.
``lines of code``
    Lines with a part of a statement on them: no blanks, no comments, no docstrings (a
    string that is the first statement of a module, class or function). A string in a
    statement counts with all its lines.
``ask which rules``, ``ask which reading``
    ``match`` statements with a class of that family in a pattern, and calls of
    ``isinstance`` with one. A family is what derives from the class ``Rules`` or
    ``Reading``, or what the alias of that name joins (the largest, if several have
    it); the name of the whole family asks
    nothing. A class is known by its last name, wherever it stands.
``…, outside its file``
    The same without the file that defines ``Rules`` or ``Reading``.
``modules with one importer``
    Modules, packages' own ``__init__`` aside, that exactly one other file imports, at
    its top, in a function or for the type checker. To import a name from a package is
    to import that package, or the module of that name if there is one.
``class names defined twice``
    Public names of classes at the top of modules that two modules or more define.
``modules with two module docstrings``
    Modules that were glued: a string of their own after the first statement, a second
    title of one line below the first, or a second paragraph of references.

Beside it ``words of documentation``: what white space divides in the Markdown files of
``docs/`` and in ``README.md``, tables and code included.
"""

import argparse
import ast
import io
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final

__all__ = ["house"]

FAMILIES: Final = {"rules": "Rules", "reading": "Reading"}
EMPTY: Final = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def house(root: Path) -> dict[str, int]:
    """Return every count of the checkout at ``root``, by name."""
    source = root / "src"
    texts = {
        path.relative_to(source): path.read_text(encoding="utf-8")
        for path in sorted(source.rglob("*.py"))
    }
    trees = {path: ast.parse(text) for path, text in texts.items()}
    counts = {
        "files": len(texts),
        "lines": sum(len(text.splitlines()) for text in texts.values()),
        "lines of code": sum(
            len(code_lines(text, trees[path])) for path, text in texts.items()
        ),
    }
    for family, name in FAMILIES.items():
        home, members = family_of(name, trees)
        sites = {path: sum(asks(tree, members)) for path, tree in trees.items()}
        counts[f"ask which {family}"] = sum(sites.values())
        counts[f"ask which {family}, outside its file"] = (
            sum(sites.values()) - sites[home]
        )
    importers = imported_by(trees).values()
    return counts | {
        "modules with one importer": sum(len(each) == 1 for each in importers),
        "class names defined twice": sum(n > 1 for n in class_names(trees).values()),
        "modules with two module docstrings": sum(map(is_glued, trees.values())),
        "words of documentation": words(root),
    }


def code_lines(text: str, tree: ast.Module) -> set[int]:
    """Return the numbers of the lines that hold a part of a statement."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in EMPTY:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, Documented) and ast.get_docstring(node) is not None:
            told = node.body[0]
            lines.difference_update(range(told.lineno, (told.end_lineno or 0) + 1))
    return lines


def family_of(name: str, trees: Mapping[Path, ast.Module]) -> tuple[Path, set[str]]:
    """Return the file that defines a family and the names of its members."""
    derived: dict[str, set[str]] = defaultdict(set)
    for node in (each for tree in trees.values() for each in tree.body):
        if isinstance(node, ast.ClassDef):
            for base in node.bases:
                whole = base.value if isinstance(base, ast.Subscript) else base
                for above in names_in([whole]):
                    derived[above].add(node.name)
    found = []
    for path, tree in trees.items():
        for node in tree.body:
            match node:
                case ast.ClassDef(name=defined) if defined == name:
                    found.append((path, _below(name, derived)))
                case ast.AnnAssign(target=ast.Name(id=defined), value=ast.expr() as of):
                    if defined == name:
                        found.append((path, names_in([of])))
    if not found:
        raise ValueError(f"no file of the tree defines {name}")
    return max(found, key=lambda each: len(each[1]))


def _below(name: str, derived: Mapping[str, set[str]]) -> set[str]:
    own = derived.get(name, set())
    return own.union(*(_below(each, derived) for each in own))


def names_in(nodes: Iterable[ast.AST]) -> set[str]:
    """Return names, and the last part of dotted ones, anywhere in some nodes."""
    found = set()
    for node in (each for top in nodes for each in ast.walk(top)):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
    return found


def asks(tree: ast.Module, members: set[str]) -> Iterator[bool]:
    """Yield for every ``match`` and ``isinstance`` whether it names a member."""
    for node in ast.walk(tree):
        match node:
            case ast.Match(cases=cases):
                patterns = (part for case in cases for part in ast.walk(case.pattern))
                classes = [p.cls for p in patterns if isinstance(p, ast.MatchClass)]
                yield not members.isdisjoint(names_in(classes))
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, which]):
                yield not members.isdisjoint(names_in([which]))


def imported_by(trees: Mapping[Path, ast.Module]) -> dict[str, set[Path]]:
    """Return for every module, packages aside, the files that import it."""
    modules = {
        ".".join(path.with_suffix("").parts): path
        for path in trees
        if path.name != "__init__.py"
    }
    importers: dict[str, set[Path]] = defaultdict(set)
    for path, tree in trees.items():
        for name in imports(tree, path.parent.parts):
            if name in modules and modules[name] != path:
                importers[name].add(path)
    return importers


def imports(tree: ast.Module, package: tuple[str, ...]) -> Iterator[str]:
    """Yield the dotted names that a file imports, and those of their modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{each.name}" for each in node.names)


def class_names(trees: Mapping[Path, ast.Module]) -> Counter[str]:
    """Return how many modules define each public name of a class."""
    return Counter(
        name
        for tree in trees.values()
        for name in {n.name for n in tree.body if isinstance(n, ast.ClassDef)}
        if not name.startswith("_")
    )


def is_glued(tree: ast.Module) -> bool:
    """Return whether a module tells two ideas one after the other."""
    strings = [
        node
        for before, node in pairwise(tree.body)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and not isinstance(before, ast.Assign | ast.AnnAssign)  # which it would explain
    ]
    title, *paragraphs = (ast.get_docstring(tree) or "").split("\n\n")
    references = [each for each in paragraphs if each.startswith("Reference")]
    second = paragraphs[0] if title and len(paragraphs) > 1 else "\n"
    is_title = "\n" not in second and second[0].isalpha() and second[-1] in ".?"
    return bool(strings) or is_title or len(references) > 1


def words(root: Path) -> int:
    """Return the words of a checkout's documentation."""
    pages = [*sorted((root / "docs").rglob("*.md")), root / "README.md"]
    return sum(len(page.read_text(encoding="utf-8").split()) for page in pages)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    here = Path(__file__).parents[2]
    parser.add_argument("trees", nargs="*", type=Path, default=[here], metavar="TREE")
    trees = parser.parse_args().trees
    columns = [house(root) for root in trees]
    row("count", *(root.resolve().name for root in trees))
    row(*["---"] * (1 + len(trees)))
    for name in columns[0]:
        row(name, *(f"{each[name]:,}" for each in columns))


def row(*cells: str) -> None:
    """Print a row of the table."""
    print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
