"""What the package pulls in when it is installed, and what importing it costs.

    python lab/measure/importing.py                   # a fresh environment; a minute
    python lab/measure/importing.py --here            # this one, nothing installed

The wheel is built and installed into an environment of its own, and what came with it
is listed with who asked for it. There, ``import dpaudit``, and the same with every name
of its face fetched, as names are fetched when they are first used, are each held
against ``import numpy, scipy.special``: median ratio of the CPU time of the import
alone over interleaved pairs of processes, with a bootstrap interval; a limit holds if
the interval's lower end is within it. Last, what ``dpaudit --help`` has imported when
it ends. Exits with 1 if anything is not as it should be.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Final

from dpaudit_lab.power.timing import ratio_of

LIMIT: Final = 1.6
RUNTIME: Final = {"numpy", "scipy", "typer", "rich"}
BARE: Final = "import numpy, scipy.special"
EVERY_NAME: Final = (
    "import dpaudit; [getattr(dpaudit, name) for name in dpaudit.__all__]"
)
OURS: Final = {"import dpaudit": "import dpaudit", "every name of it": EVERY_NAME}
FOREIGN: Final = ("numpy", "scipy", "pyarrow", "jinja2", "matplotlib", "torch")
LISTED: Final = """
import json
from importlib.metadata import distributions
print(json.dumps({each.name: [each.version, each.requires or []]
                  for each in distributions()}))
"""
HELPED: Final = f"""
import sys
from dpaudit.cli import app
try:
    app(["--help"], prog_name="dpaudit")
except SystemExit as end:
    assert not end.code
print(sorted(set(sys.modules) & set({FOREIGN!r})), file=sys.stderr)
"""


def python(interpreter: Path, code: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # or --here would compile every time
    return subprocess.run(
        [interpreter, "-c", code], capture_output=True, text=True, check=True, env=env
    )


def installed(folder: Path) -> Path:
    """Build the wheel and install it into a fresh environment; return its Python."""
    root = Path(__file__).parents[2]
    wheels, place = folder / "wheels", folder / "environment"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", wheels, root], check=True)
    (wheel,) = wheels.glob("dpaudit-*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    interpreter = place / "bin" / "python"
    into = ["--python", interpreter, "install", wheel]
    subprocess.run([*pip, *into], check=True)
    return interpreter


def named(text: str) -> str:
    """Return a distribution's name, in the one spelling that counts."""
    found = re.match(r"[A-Za-z0-9._-]+", text)
    return re.sub(r"[-_.]+", "-", found.group() if found else text).lower()


def what_came(interpreter: Path) -> bool:
    """List what is installed; return whether it is what the package asks for."""
    found = json.loads(python(interpreter, LISTED).stdout)
    asked_by = defaultdict(set)
    for name, (_, requirements) in found.items():
        for each in requirements:
            if "extra ==" not in each:
                asked_by[named(each)].add(named(name))
    print("installed with the wheel:")
    for name, (version, _) in sorted(found.items()):
        who = ", ".join(sorted(asked_by[named(name)] - {named(name)}))
        print(f"  {name} {version}" + (f" (asked for by {who})" if who else ""))
    names = {named(name) for name in found} - {"dpaudit"}
    own = {name for name in names if "dpaudit" in asked_by[name]}
    stray = {name for name in names if not asked_by[name]}
    print(
        f"asked for by dpaudit: {', '.join(sorted(own))}; nobody's: {stray or 'none'}"
    )
    return own == RUNTIME and not stray


def spent(interpreter: Path, code: str) -> float:
    """Return the CPU time of an import in a process of its own, without its start."""
    timed = f"import time; t = time.process_time(); {code}; "
    return float(python(interpreter, timed + "print(time.process_time() - t)").stdout)


def costs(interpreter: Path, pairs: int) -> bool:
    well = True
    for name, code in OURS.items():
        for each in (code, BARE):
            spent(interpreter, each)  # compiles, and warms the disk
        times = [
            (spent(interpreter, code), spent(interpreter, BARE)) for _ in range(pairs)
        ]
        ours, bare = zip(*times, strict=True)
        ratio = ratio_of(ours, bare)
        well &= ratio.low <= LIMIT
        print(
            f"{name}: {ratio} of `{BARE}` ({sorted(bare)[pairs // 2] * 1000:.0f} ms), "
            f"{ratio.pairs} pairs (limit {LIMIT})"
        )
    return well


def helps(interpreter: Path) -> bool:
    loaded = python(interpreter, HELPED).stderr.strip()
    print(f"of {', '.join(FOREIGN)}, `dpaudit --help` imports: {loaded}")
    return loaded == "[]"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--here", action="store_true", help="install nothing")
    parser.add_argument("--pairs", type=int, default=25)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        interpreter, well = Path(sys.executable), True
        if not args.here:
            interpreter = installed(Path(folder))
            well = what_came(interpreter)
        well &= costs(interpreter, args.pairs)
        well &= helps(interpreter)
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
