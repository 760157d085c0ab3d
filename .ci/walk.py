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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNNER = Path(__file__).with_name("page.py")
COLD = [ROOT / "README.md", ROOT / "docs" / "tutorials" / "first-audit.md"]


def main() -> None:
    """Walk in a fresh environment, or here."""
    parser = argparse.ArgumentParser()
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--here", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    pages = [page.resolve() for page in arguments.pages]
    if arguments.here:
        others = {*(ROOT / "docs").rglob("*.md")} - {*COLD}
        walk_here(pages or sorted(others), arguments.jobs)
    else:
        walk_cold(pages or COLD)


def walk_cold(pages: list[Path]) -> None:
    """Copy the checkout, make an environment, and walk one page after the other."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "checkout"
        copy_checkout(home)
        venv.create(Path(folder) / "venv", with_pip=True)
        for page in pages:
            print(page.relative_to(ROOT), flush=True)
            binaries = Path(folder) / "venv" / "bin"
            command = [str(binaries / "python"), str(RUNNER), str(page)]
            fresh = {"DPAUDIT_PIP": "pip"} | around(binaries)  # unless it is named
            if subprocess.run(command, cwd=home, env=fresh, check=False).returncode:
                sys.exit(1)


def walk_here(pages: list[Path], jobs: int) -> None:
    """Walk each page in a scratch folder of its own, some at a time."""
    with ThreadPoolExecutor(jobs) as pool:
        walks = list(pool.map(walk_in_scratch, pages))
    if not all(walks):
        sys.exit(1)


def walk_in_scratch(page: Path) -> bool:
    """Run the page's blocks in an empty folder; say how it went."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "examples").symlink_to(ROOT / "examples")
        done = subprocess.run(
            [sys.executable, str(RUNNER), "--installed", str(page)],
            cwd=folder,
            env=around(Path(sys.executable).parent),
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode or done.stdout:
        took = f"{time.monotonic() - start:.1f} s"
        print(f"{page.relative_to(ROOT)}: {took}\n{done.stdout}", end="", flush=True)
    if done.returncode:
        print(done.stderr, file=sys.stderr, flush=True)
    return done.returncode == 0


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


if __name__ == "__main__":
    main()
