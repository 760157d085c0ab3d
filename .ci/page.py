"""Run the blocks of one page, in order, in the folder and environment that is there.

A page's blocks are one session. The language of a fenced block says what is done:

``console``  each line that starts with ``$`` is run by bash; what the block shows below
             it must come out; ``...`` stands for anything. A command that is expected
             to fail ends in ``|| echo "exit code $?"``.
``python``   is run; names live on in later blocks of the page.
``pycon``    is run as a doctest, on the same names.
``json``, ``toml``, ``ini``  must parse.
``text``     is a formula, a layout or an excerpt: not run, and may hold no command.

A second word after the language: a file's name, under which the block is saved instead
of run (``python test_laplace.py``); or ``any-numbers`` after ``console``, where numbers
and digests come out otherwise each time. A block in an HTML comment is run as well: it
is how a page prepares what its reader has already. Any other block, and indented code,
is an error: nothing on a page goes unchecked.

    python .ci/page.py [--installed] PAGE

With ``--installed`` the environment is there already: ``pip install`` is not run, but
the extras that it names must exist; commands that CI runs elsewhere, or that take
minutes, are parsed instead of run (``LONG``); and python blocks that a test runs, and
looks at more closely, are left to it (``TESTED``). Without it
``DPAUDIT_PIP`` must name what installs, ``pip`` or ``uv pip``; walk.py names it, for an
environment that it made.
"""

import argparse
import configparser
import contextlib
import doctest
import importlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
FENCE = re.compile(r"^```([^`\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"\b[0-9a-f]{16,}\b|\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
COMMAND = re.compile(
    r"^(\$ |>>> |pip install |dpaudit(?:-lab)? \w+ --|import |from \S+ import ).*",
    re.MULTILINE,
)

# Commands that are parsed instead of run, and why; beginnings end in a space or slash.
LONG = {
    "python lab/measure/": "minutes to hours",
    "cd docs/explanation && dpaudit-lab reproduce all ": "tests draw each",
    "dpaudit-lab benchmark ": "minutes; tests run it small",
    "dpaudit-lab calibrate ": "minutes; tests run it small",
    "dpaudit plan ": "tests run and keep what plans say",
    "dpaudit tally --engine ray ": "starts Ray, as a test does",
    "python examples/opacus_digits.py ": "the README runs it",
    "python examples/language_model.py ": "a minute; a test runs it small",
    "python examples/flower_users.py --divide-noise-by ": "starts Ray, as a test does",
}
# Pages whose python blocks are run by a test, and which.
TESTED = {
    "audit-federated.md": "tests/training/flower/test_page.py",
    "audit-jax-privacy.md": "tests/training/jax_privacy/test_page.py",
}


class WrongPageError(Exception):
    """A block that cannot be run, or does not do what the page says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block: its language, the word after it, its text."""

    language: str
    word: str
    text: str


def main() -> None:
    """Run the page that is named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("page", type=Path)
    parser.add_argument("--installed", action="store_true")
    arguments = parser.parse_args()
    tested = arguments.installed and run_by_a_test(arguments.page.name)
    page = Page(installed=arguments.installed)
    try:
        for block in blocks(arguments.page.read_text(encoding="utf-8")):
            if not (tested and block.language == "python"):
                page.run(block)
    except WrongPageError as error:
        sys.exit(f"{arguments.page}: {error}")


def run_by_a_test(name: str) -> bool:
    """Return whether a test runs the page's python blocks; it must name the page."""
    return name in TESTED and name in (ROOT / TESTED[name]).read_text(encoding="utf-8")


def blocks(text: str) -> Iterator[Block]:
    """Yield every block to run; raise at code that is fenced or indented otherwise."""
    between = FENCE.sub("", text)
    if odd := re.search(r"^\s*(```|~~~).*$", between, re.MULTILINE):
        raise WrongPageError(f"a fence that is not understood: {odd[0]!r}")
    if indented := re.search(r"^[^\s*\-\d].*\n\n {4,}\S.*$", between, re.MULTILINE):
        raise WrongPageError(f"indented code; fence it:\n{indented[0]}")
    for match in FENCE.finditer(text):
        language, _, word = match[1].partition(" ")
        if language.startswith("{") and not language.startswith("{code"):
            continue  # a directive of Sphinx
        if language not in {"console", "python", "pycon", *PARSE}:
            raise WrongPageError(f"language {match[1]!r} cannot be run:\n{match[2]}")
        yield Block(language=language, word=word, text=match[2])


class Page:
    """One session: names and files live on from block to block."""

    def __init__(self, *, installed: bool) -> None:
        self._installed = installed
        self._names = types.ModuleType("__main__")
        sys.modules["__main__"] = self._names  # so workers get its functions by value
        sys.path.insert(0, "")

    def run(self, block: Block) -> None:
        """Run a block, or save it, or parse it."""
        importlib.invalidate_caches()  # a block above may have installed something
        if block.language in PARSE:
            parse(block)
        if block.word and block.language != "console":
            Path(block.word).write_text(block.text, encoding="utf-8")
        elif block.language == "console":
            self._console(block)
        elif block.language == "python":
            self._python(block)
        elif block.language == "pycon":
            self._session(block)

    def _python(self, block: Block) -> None:
        with timed("a python block"), contextlib.redirect_stdout(io.StringIO()):
            exec(compile(block.text, "the page", "exec"), self._names.__dict__)

    def _session(self, block: Block) -> None:
        test = doctest.DocTestParser().get_doctest(
            block.text, self._names.__dict__, "the page", None, 0
        )
        said = io.StringIO()
        with timed("a session"):
            runner = doctest.DocTestRunner(optionflags=FLAGS)
            failed = runner.run(test, out=said.write, clear_globs=False).failed
        self._names.__dict__.update(test.globs)
        if failed:
            raise WrongPageError(said.getvalue())

    def _console(self, block: Block) -> None:
        if block.word not in {"", "any-numbers"}:
            raise WrongPageError(f"console blocks have no {block.word!r}")
        for command, shown in commands(block.text):
            if self._installed and command.startswith("pip install"):
                check_extras(command)
            elif self._installed and is_long(command):
                check_command(command)
            else:
                compare(shown, run(command), any_numbers=bool(block.word))


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Yield each command, its continued lines joined, with what is shown below it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, shown = re.sub(r"\s*\\\n\s*", " ", part).partition("\n")
        yield command, shown


def run(command: str) -> str:
    """Run a command and return what it printed."""
    if command.startswith("pip install"):
        if "DPAUDIT_PIP" not in os.environ:
            raise WrongPageError(
                "the page installs something: walk it in an environment of its own "
                "(python .ci/walk.py PAGE), or pass --installed to install nothing"
            )
        command = f"{os.environ['DPAUDIT_PIP']}{command.removeprefix('pip')}"
    with timed(command):
        done = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, check=False
        )
    if done.returncode:
        said = f"{done.stdout}{done.stderr}"
        raise WrongPageError(f"$ {command}\nexit code {done.returncode}\n{said}")
    return done.stdout


def compare(shown: str, printed: str, *, any_numbers: bool) -> None:
    """Raise unless what was printed is what the page shows, if it shows anything."""
    want, got = shown, printed
    if any_numbers:
        want, got = NUMBER.sub("#", want), NUMBER.sub("#", got)
    if want.strip() and not doctest.OutputChecker().check_output(want, got, FLAGS):
        raise WrongPageError(f"expected:\n{shown}\ngot:\n{printed}")


def check_extras(command: str) -> None:
    """Raise if an extra of ours does not exist."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    known = project["project"]["optional-dependencies"]
    for extras in re.findall(r"(?:dpaudit|\.)\[([^\]]*)\]", command):
        for extra in extras.split(","):
            if extra not in known:
                raise WrongPageError(f"$ {command}\nthere is no extra {extra!r}")


def is_long(command: str) -> bool:
    """Return whether a command is parsed only."""
    beginnings = tuple(name for name in LONG if name.endswith((" ", "/")))
    return command in LONG or command.startswith(beginnings)


def check_command(command: str) -> None:
    """Raise if the script does not exist, or the command has no such options."""
    words = shlex.split(command.rpartition("&& ")[2])
    if words[0] == "python":
        if not (ROOT / words[1]).is_file():
            raise WrongPageError(f"$ {command}\nthere is no {words[1]}")
        return
    from typer.main import get_command  # noqa: PLC0415 (not in a fresh environment)

    package = words[0].replace("-", "_")
    app = importlib.import_module(f"{package}.cli").app
    try:
        named = get_command(app).commands[words[1]]  # type: ignore[attr-defined]
        named.make_context(words[1], words[2:])
    except Exception as error:
        raise WrongPageError(f"$ {command}\n{error}") from error


def parse(block: Block) -> None:
    """Raise unless the block is what its language says."""
    try:
        PARSE[block.language](block.text)
    except ValueError as error:
        raise WrongPageError(f"not {block.language}: {error}\n{block.text}") from error


def check_text(text: str) -> None:
    """Raise if something in the text looks as if it were to be run."""
    if found := COMMAND.search(text):
        raise ValueError(f"this is to be run: {found[0]!r}")


@contextlib.contextmanager
def timed(name: str) -> Iterator[None]:
    """Print how much CPU time it took, in this process and those that it started."""
    start = sum(os.times()[:4])
    try:
        yield
    except WrongPageError:
        raise
    except Exception as error:
        raise WrongPageError(f"{name} failed: {error!r}") from error
    print(f"{sum(os.times()[:4]) - start:6.1f} s  {name}", flush=True)


PARSE: dict[str, Callable[[str], object]] = {
    "json": json.loads,
    "toml": tomllib.loads,
    "ini": lambda text: configparser.ConfigParser().read_string(text),
    "text": check_text,
}

if __name__ == "__main__":
    main()
