"""What the ranked bound takes, beside JAX Privacy's one-run bound and an earlier one.

    python lab/measure/ranked_time.py
    python lab/measure/ranked_time.py --before TREE  # git worktree add TREE fd90845

All get the same scores and coins (N(0, 1) and N(1, 1), delta = 1e-5, alpha = 0.05) and
return a bound, in turn on each draw; the first draw is for warming up. CPU times are
medians, ratios medians of pairs with bootstrap limits; above one the other is slower.
``--before`` asks a process of an earlier checkout instead, which must give the same
bounds. At the end each is called once in a process of its own, after its imports.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from dpaudit_lab.power.jax_privacy import JaxPrivacyDefault, JaxPrivacySplit
from dpaudit_lab.power.methods import Method, RankedAll
from dpaudit_lab.power.task import Task, draw
from dpaudit_lab.power.timing import cpu, ratio_of

OURS = RankedAll()
OTHERS: tuple[Method, ...] = (JaxPrivacyDefault(), JaxPrivacySplit())
SLOW = 100_000  # above, JAX Privacy's default takes many seconds
Timed = Callable[[int, int], tuple[float, float]]


def timed(method: Method, canaries: int, number: int) -> tuple[float, float]:
    """Return the bound of a draw and its CPU time."""
    drawn, found = draw(Task(canaries=canaries), number), list[float]()
    seconds = cpu(lambda: found.append(method.epsilon_lower(drawn)))
    return found[0], seconds


def serve() -> None:
    """Time a draw for each line that is read."""
    for line in sys.stdin:
        canaries, number = json.loads(line)
        print(json.dumps(timed(OURS, canaries, number)), flush=True)


@contextmanager
def earlier(tree: Path) -> Iterator[Timed]:
    """Give what asks another checkout."""
    paths = os.pathsep.join([str(tree / "src"), str(tree / "lab" / "src")])
    with subprocess.Popen(
        [sys.executable, __file__, "--serve"],
        env={**os.environ, "PYTHONPATH": paths},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        asked, answers = process.stdin, process.stdout
        if asked is None or answers is None:
            raise RuntimeError("the other checkout has no pipes")

        def ask(canaries: int, number: int) -> tuple[float, float]:
            print(json.dumps([canaries, number]), file=asked, flush=True)
            bound, seconds = json.loads(answers.readline())
            return bound, seconds

        yield ask
        asked.close()


def compare(name: str, other: Timed, canaries: int, pairs: int) -> None:
    """Print both times and their ratio; of an earlier tree, that bounds are alike."""
    ours, theirs = [], []
    for number in range(pairs + 1):
        ours.append(timed(OURS, canaries, number))
        theirs.append(other(canaries, number))
        if name == "before" and ours[-1][0] != theirs[-1][0]:
            sys.exit(f"draw {number} of {canaries}: {ours[-1][0]}, {theirs[-1][0]}")
    a, b = (np.array(times)[1:, 1] for times in (ours, theirs))
    print(
        f"{canaries:>8} canaries: {name} {1e3 * np.median(b):.3g} ms, ranked "
        f"{1e3 * np.median(a):.3g} ms, ratio {ratio_of(b.tolist(), a.tolist())} "
        f"({pairs} pairs)",
        flush=True,
    )


def cold(method: Method, canaries: int) -> None:
    """Print what the first call of a process takes, its imports apart."""
    program = (
        "import ranked_time as r; "
        f"m, = (m for m in (r.OURS, *r.OTHERS) if m.key == {method.key!r}); "
        f"{'' if method is OURS else 'import jax_privacy.auditing; '}"
        f"print(r.timed(m, {canaries}, 0)[1])"
    )
    run = [sys.executable, "-c", program]
    here = Path(__file__).parent
    times = [
        float(subprocess.run(run, cwd=here, check=True, capture_output=True).stdout)
        for _ in range(5)
    ]
    middle = 1e3 * np.median(times)
    print(f"{canaries:>8} canaries, first call: {method.key} {middle:.3g} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve()
        return
    if arguments.before:
        with earlier(arguments.before.resolve()) as ask:
            for canaries in (10**3, 10**4, 10**5, 10**6):
                compare("before", ask, canaries, arguments.pairs)
        return
    for canaries in (10**3, 10**4, 10**5, 10**6):
        for method in OTHERS:
            if canaries <= SLOW or not isinstance(method, JaxPrivacyDefault):
                other = partial(timed, method)
                compare(method.key, other, canaries, arguments.pairs)
    for method in (OURS, *OTHERS):
        cold(method, 10**3)


if __name__ == "__main__":
    main()
