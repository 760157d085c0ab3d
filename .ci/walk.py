"""Follow the README to the letter, as a stranger would, in a fresh environment.

Every fenced block is run, in order: ``console`` blocks command by command (lines that
start with ``$``), ``python`` blocks as scripts, ``pycon`` blocks as doctests. What a
block shows as output must come out; ``...`` stands for anything. A block in any other
language is an error, so nothing in the README goes unrun.

    python .ci/walk.py [README.md]
"""

import doctest
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def main() -> None:
    """Copy the checkout, make an environment, and walk."""
    readme = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "README.md").resolve()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "checkout"
        copy_checkout(home)
        venv.create(Path(folder) / "venv", with_pip=True)
        environment = os.environ | {
            "PATH": f"{folder}/venv/bin{os.pathsep}{os.environ['PATH']}",
            "PYTHONWARNINGS": "ignore",
        }
        environment.pop("PYTHONPATH", None)
        for language, text in blocks(readme.read_text(encoding="utf-8")):
            RUN[language](text, home, environment)


def copy_checkout(home: Path) -> None:
    """Copy what git tracks or would track; a stranger has nothing else."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\n")
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, home / name)


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield the language and the text of each fenced block."""
    for match in re.finditer(r"^```(\S*)\n(.*?)^```$", text, re.M | re.S):
        if match[1] not in RUN:
            sys.exit(f"a block of language {match[1]!r} cannot be run:\n{match[2]}")
        yield match[1], match[2]


def run_console(text: str, home: Path, environment: dict[str, str]) -> None:
    """Run each ``$`` line and compare what the block shows below it."""
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, _, want = part.partition("\n")
        got = run(["bash", "-c", command], command, home, environment)
        if want and not doctest.OutputChecker().check_output(want, got, FLAGS):
            sys.exit(f"expected:\n{want}\ngot:\n{got}")


def run_python(text: str, home: Path, environment: dict[str, str]) -> None:
    """Run the block as a script."""
    run(["python", "-c", text], "a python block", home, environment)


def run_pycon(text: str, home: Path, environment: dict[str, str]) -> None:
    """Run the block as a doctest."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(text)
        file.flush()
        run(["python", "-m", "doctest", file.name], "a session", home, environment)


def run(command: list[str], name: str, home: Path, environment: dict[str, str]) -> str:
    """Run a command and return what it printed; stop the walk if it fails."""
    start = time.monotonic()
    done = subprocess.run(
        command, cwd=home, env=environment, capture_output=True, text=True, check=False
    )
    print(f"{time.monotonic() - start:6.1f} s  {name}", flush=True)
    if done.returncode:
        sys.exit(f"exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


RUN = {"console": run_console, "python": run_python, "pycon": run_pycon}

if __name__ == "__main__":
    main()
