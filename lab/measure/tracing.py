"""The files that one small audit passes through.

    python lab/measure/tracing.py                     # this checkout
    python lab/measure/tracing.py BEFORE AFTER        # two checkouts, a column each

Four fixed inputs, each in a process of its own that imports ``dpaudit`` from the tree
that is named (what the package asks for must be installed): coins through
``audit_one_run``; scores through ``audit_scores``, and from a file through the command
``dpaudit audit``; noisy gradients of three steps through ``OpacusAudit``. Everything
from making the design to the result as printed is followed by ``sys.setprofile``.
Importing a module is left out, and so is whatever calls us: only calls from one part of
``dpaudit`` to another count, with other packages' calls between them or not.

``moves``
    Calls and returns after which another file of ``dpaudit`` runs than before, a
    generator's turns among them.
``pairs``
    Pairs of files of which the first calls the second: moves as often as one likes
    count once.
``files``, ``functions``
    Those entered; comprehensions and lambdas are parts of the function they stand in.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import numpy as np

__all__ = ["Trace", "trace_of"]

COINS: Final = 1000
STEPS: Final = 3
# Homes of names that the face does not have in every tree, tried in order.
HOMES: Final = {
    "Adjacency": (
        "dpaudit",
        "dpaudit.privacy.guarantees",
        "dpaudit.privacy.guarantees",
    ),
    "OpacusAudit": ("dpaudit.training.opacus",),
    "app": ("dpaudit.cli",),
}


class Trace:
    """Follows calls and returns between the files of one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = f"{folder.resolve()}{os.sep}"
        self._entered: list[str] = []  # the files of the calls that are under way
        self._importing = 0
        self.moves = 0
        self.pairs: set[tuple[str, str]] = set()
        self.functions: set[CodeType] = set()

    def follow(self, call: Callable[[], object]) -> dict[str, int]:
        """Return what was passed through while something was called."""
        sys.setprofile(self._see)
        try:
            call()
        finally:
            sys.setprofile(None)
        files = {code.co_filename for code in self.functions}
        functions = {
            (code.co_filename, code.co_qualname.partition(".<locals>.<")[0])
            for code in self.functions
        }
        return {
            "moves": self.moves,
            "pairs": len(self.pairs),
            "files": len(files),
            "functions": len(functions),
        }

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event not in {"call", "return"} or not self._ours(code.co_filename):
            return
        if code.co_name == "<module>":
            self._importing += 1 if event == "call" else -1
        elif self._importing:
            return
        elif event == "call":
            self.functions.add(code)
            self._enter(code.co_filename)
        else:
            self._leave()

    def _ours(self, file: str) -> bool:
        return file.startswith(self._folder)

    def _enter(self, file: str) -> None:
        if self._entered and self._entered[-1] != file:
            self.moves += 1
            self.pairs.add((self._entered[-1], file))
        self._entered.append(file)

    def _leave(self) -> None:
        left = self._entered.pop()
        self.moves += bool(self._entered) and self._entered[-1] != left


def named(name: str) -> Any:  # noqa: ANN401
    """Return a name of the package from where it lives in this tree."""
    for home in HOMES.get(name, ("dpaudit",)):
        try:
            return getattr(import_module(home), name)
        except (ImportError, AttributeError):
            continue
    raise ImportError(f"{name} is in none of {HOMES.get(name, ('dpaudit',))}")


def one_run() -> Callable[[], object]:
    """Coins that a mechanism shows through noise, guessed where it is surest."""
    pure, adjacency, rules = named("PureDP"), named("Adjacency"), named("OneRun")
    design, pairs, key = named("Design"), named("Pairs"), named("Key")
    extremes, audit = named("Extremes"), named("audit_one_run")

    class Noisy:
        def run(self, data: np.ndarray, rng: np.random.Generator) -> np.ndarray:
            return data + rng.laplace(scale=1.0, size=len(data))

    def play() -> str:
        claim = pure(epsilon=1.0, adjacency=adjacency.REPLACE_ONE)
        result = audit(
            Noisy(),
            extremes(score=np.asarray, top=50, bottom=50),
            pairs=pairs(x=-1, y=1),
            design=design(canaries=COINS, rules=rules(guesses=100), claim=claim),
            rng=np.random.default_rng(1),
            key=key(bytes(range(32))),
        )
        return str(result)

    return play


def _scores() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 2, COINS)
    return bits, bits + rng.standard_normal(COINS)


def scores() -> Callable[[], object]:
    """Scores that are larger for canaries that were in."""
    approx, ranking = named("ApproxDP"), named("Ranking")
    design, audit = named("Design"), named("audit_scores")
    bits, values = _scores()

    def play() -> str:
        claim = approx(epsilon=1.0, delta=1e-5)
        rules = ranking(guesses=COINS)
        made = design(canaries=COINS, rules=rules, claim=claim)
        return str(audit(np.arange(COINS), bits, values, design=made))

    return play


def command() -> Callable[[], object]:
    """The same scores from a file, through the command line."""
    app = named("app")
    bits, values = _scores()
    rows = [
        f"{i},{bit},{score}"
        for i, bit, score in zip(range(COINS), bits, values, strict=True)
    ]

    def play() -> None:
        with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()):
            table = Path(folder) / "scores.csv"
            table.write_text("\n".join(["id,bit,score", *rows]), encoding="utf-8")
            words = ["audit", str(table), "--epsilon", "1", "--delta", "1e-5"]
            try:
                app(words, prog_name="dpaudit")
            except SystemExit as end:  # 0: nothing found, 1: refuted
                if end.code not in (0, 1):
                    raise RuntimeError(f"dpaudit ended with {end.code}") from end

    return play


def gradients() -> Callable[[], object]:
    """Noisy gradients of a few steps of a small Opacus training."""
    import torch  # noqa: PLC0415 (only here)
    from opacus import PrivacyEngine  # noqa: PLC0415

    approx, rules, design = named("ApproxDP"), named("OneRun"), named("Design")
    key, audit = named("Key"), named("OpacusAudit")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(
        torch.randn(200, 30), torch.randint(4, (200,))
    )
    model = torch.nn.Sequential(
        torch.nn.Linear(30, 40), torch.nn.ReLU(), torch.nn.Linear(40, 4)
    )
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
        data_loader=torch.utils.data.DataLoader(data, batch_size=20),
        noise_multiplier=1.5,
        max_grad_norm=1.0,
    )

    def play() -> str:
        claim = approx(epsilon=2.0, delta=1e-5)
        riding = audit(
            optimizer,
            loader,
            design=design(canaries=400, rules=rules(guesses=40), claim=claim),
            key=key(bytes(range(32))),
            accountant=engine.accountant,
        )
        for _, (inputs, labels) in zip(range(STEPS), loader, strict=False):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
        return str(riding.finish())

    return play


INPUTS: Final = {
    "audit_one_run": one_run,
    "audit_scores": scores,
    "dpaudit audit": command,
    "OpacusAudit": gradients,
}


def trace_of(name: str, root: Path) -> dict[str, int]:
    """Return what one input passes through in the checkout at ``root``."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, "--only", name, str(root)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(root.resolve() / "src")},
    )
    if done.returncode:
        raise RuntimeError(f"{name} in {root}: {done.stderr}")
    found: dict[str, int] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    here = Path(__file__).parents[2]
    parser.add_argument("trees", nargs="*", type=Path, default=[here], metavar="TREE")
    parser.add_argument("--only", choices=INPUTS, help="follow one here, print JSON")
    args = parser.parse_args()
    if args.only:
        play = INPUTS[args.only]()
        print(json.dumps(Trace(args.trees[0] / "src").follow(play)))
        return
    row("through", "count", *(root.resolve().name for root in args.trees))
    row(*["---"] * (2 + len(args.trees)))
    for name in INPUTS:
        columns = [trace_of(name, root) for root in args.trees]
        for count in columns[0]:
            row(name, count, *(f"{each[count]:,}" for each in columns))


def row(*cells: str) -> None:
    """Print a row of the table."""
    print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
