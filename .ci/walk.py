"""Follow pages to the letter, every block of them (page.py says how).

python .ci/walk.py [PAGE ...]      as a stranger would: README.md and the first
                                   tutorial, or the pages named, in a copy of the
                                   checkout and a fresh environment
python .ci/walk.py --here [PAGE ...]
                                   every page of docs/, or those named, each in a
                                   scratch folder, in the environment that is there
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNNER = Path(__file__).with_name("page.py")
TRIES = 2
COLD = [ROOT / "README.md", ROOT / "docs" / "tutorials" / "first-audit.md"]
# Their extras do not go with all others: run walks them in an environment of its own.
APART = [ROOT / "docs" / "how-to" / "audit-federated.md"]


def main() -> None:
    """Walk in a fresh environment, or here."""
    parser = argparse.ArgumentParser()
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--here", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    pages = [page.resolve() for page in arguments.pages]
    if arguments.here:
        others = {*(ROOT / "docs").rglob("*.md")} - {*COLD, *APART}
        walk_here(pages or sorted(others), arguments.jobs)
    else:
        walk_cold(pages or COLD)


def walk_cold(pages: list[Path]) -> None:
    """Make an environment, and walk one page after the other, each in a copy."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(Path(folder) / "venv", with_pip=True)
        binaries = Path(folder) / "venv" / "bin"
        fresh = {"DPAUDIT_PIP": "pip"} | around(binaries)  # unless it is named
        if not all(walked(page, copy_checkout, fresh, binaries) for page in pages):
            sys.exit(1)


def walk_here(pages: list[Path], jobs: int) -> None:
    """Walk each page in a scratch folder of its own, some at a time."""
    binaries = Path(sys.executable).parent

    def walk(page: Path) -> bool:
        return walked(page, link_examples, around(binaries), binaries, "--installed")

    with ThreadPoolExecutor(jobs) as pool:
        walks = list(pool.map(walk, pages))
    if not all(walks):
        sys.exit(1)


def walked(
    page: Path,
    prepare: Callable[[Path], None],
    environment: dict[str, str],
    binaries: Path,
    *options: str,
) -> bool:
    """Run the page's blocks in a folder of their own; say how it went.

    Pages toss coins: of the audits of honest programs on them one in some hundreds
    is wrong, as alpha allows. A page that fails is walked once more.
    """
    for attempt in range(TRIES):
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            prepare(Path(folder))
            done = subprocess.run(
                [str(binaries / "python"), str(RUNNER), *options, str(page)],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
        again = ", walked again" if attempt else ""
        took = f"{time.monotonic() - start:.1f} s{again}"
        if done.returncode or done.stdout:
            said = f"{page.relative_to(ROOT)}: {took}\n{done.stdout}"
            print(said, end="", flush=True)
        if not done.returncode:
            return True
        print(done.stderr, file=sys.stderr, flush=True)
    return False


def around(binaries: Path) -> dict[str, str]:
    """Return the environment with these programs first, and nothing else of ours."""
    environment = os.environ | {
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "VIRTUAL_ENV": str(binaries.parent),
        "PYTHONWARNINGS": "ignore",
        "COLUMNS": "100",
    }
    environment.pop("PYTHONPATH", None)
    return environment


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


def link_examples(home: Path) -> None:
    """Put beside a page what its commands name."""
    (home / "examples").symlink_to(ROOT / "examples")


if __name__ == "__main__":
    main()
