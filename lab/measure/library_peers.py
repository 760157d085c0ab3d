"""How many calls refute faulty mechanisms: dpaudit and Google's DP-Auditorium.

    python lab/measure/library_peers.py              # run or resume, print the table
    python lab/measure/library_peers.py --only svt   # faults whose name begins so
    python lab/measure/library_peers.py --table      # print the table only

Twelve faults of Laplace, Gaussian, report noisy max and sparse vector, each with one
fixed pair of neighbours that shows it. Outputs are rounded to multiples of 2^-10, which
is post-processing, so that floating-point noise is no second fault; the fault "low
bits" is the first of its kind and is not rounded. All tools call the same functions
with the same two inputs, and all tests have alpha = 0.001.

- ``audit_sequentially`` of dpaudit: calls until the claim is refuted, 20 repeats; their
  median and the least number within which 90 % of the repeats refuted.
- Tests with a fixed number of calls (``audit_function`` of dpaudit, 20 repeats, and the
  testers of DP-Auditorium, 10 repeats): the least number of a ladder, 250, 500, ... up
  to 200,000, with which 90 % of the repeats refute. All calls count: those that are
  learned from and those of the test, with both inputs. A number is given up once too
  many repeats did not refute; the share is that of the repeats that were made.

``cpu_seconds`` is the median of a repeat at the last number of calls, of all repeats
if calls are made until the claim is refuted.

DP-Auditorium (https://github.com/google/differential-privacy, python/dp_auditorium) was
used at commit b5b0286e313b64a692abfc8c528d54ef47d960a0. It is not on PyPI: its folder
``python/dp_auditorium`` must be on PYTHONPATH, and tensorflow-cpu, tf-keras, etils,
absl-py and google-vizier must be installed, in an environment of their own. It asks for
TensorFlow 2.15 (Keras 2) and numpy 1.26; here it ran with TensorFlow 2.21, its legacy
Keras (``TF_USE_LEGACY_KERAS=1``, set below) and numpy 2.4, as dpaudit needs numpy 2. If
it cannot be found, only dpaudit is run.

It is run by its own runner, with a generator that returns the given pair, one trial and
``failure_probability`` 0.001, which its configuration describes as the probability of
test failure for each trial. The runner takes the larger of the lower bounds for both
orders of the pair, each computed with that failure probability. Samples are not
processed by the runner.

Its testers read arrays, so places of an output are given as indicators; the histogram
tester reads bins, chosen here for each fault. The hockey-stick tester has its own
defaults, and once more 20 epochs instead of 2. The Renyi tester tests pure claims only;
epochs, batches and learning rate are those of its unit tests, the order is 2 and
outputs are bounded by 1. The MMD tester refutes (epsilon, 0) only if a mean of values
of at most 2 exceeds (e^epsilon - 1)^2, which is 2.95 for epsilon = 1. It is run once on
the most calls, with a function that returns its input, and not on the faults if it does
not refute that.
"""

import argparse
import csv
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidRunError
from dpaudit.game.coins import Key
from dpaudit.privacy.guarantees import ApproxDP, Guarantee, PureDP
from dpaudit.testing.calling import OneValue
from dpaudit.testing.functions import audit_function
from dpaudit.testing.guesser_selection import Calls
from dpaudit.testing.sequential import Pair, audit_sequentially

Array: TypeAlias = NDArray[np.float64]
Generator: TypeAlias = np.random.Generator
# Repeat and number of calls to whether the claim was refuted.
Test: TypeAlias = Callable[[int, int], bool]

RESULTS: Final = Path(__file__).parents[1] / "results" / "library_peers.csv"
COLUMNS: Final = (
    *("tool", "tester", "fault", "claim", "repeats", "calls_median", "calls_90"),
    *("found_share", "cpu_seconds", "date", "note"),
)
ALPHA: Final = 0.001
SHARE: Final = 0.9
LADDER: Final = (*(250 * 2**i for i in range(10)), 200_000)
MOST_CPU: Final = 60.0  # seconds of a run of DP-Auditorium
OURS, PEER = "dpaudit", "DP-Auditorium"
REPEATS: Final = {OURS: 20, PEER: 10}
NEVER_FOUND: Final = "not found at cap"

EPSILON, DELTA = 1.0, 1e-5
SIGMA: Final = 3.730632  # analytic calibration of (1, 1e-5), sensitivity 1
PURE: Final = PureDP(epsilon=EPSILON)
APPROX: Final = ApproxDP(epsilon=EPSILON, delta=DELTA)


# Mechanisms with a fault


def rounded(value: float) -> float:
    return round(value * 1024) / 1024


def laplace(x: float, rng: Generator, *, too_small: float) -> float:
    return rounded(x + rng.laplace(scale=1 / (EPSILON * too_small)))


def laplace_low_bits(x: float, rng: Generator) -> float:
    return x + rng.laplace(scale=1 / EPSILON)


def gaussian(x: float, rng: Generator, *, scale: float) -> float:
    return rounded(x + rng.normal(scale=scale))


def noisy(counts: Sequence[float], rng: Generator, *, scale: float) -> Array:
    return np.asarray(counts) + rng.laplace(scale=scale, size=len(counts))


def max_half_noise(counts: Sequence[float], rng: Generator) -> int:
    return int(np.argmax(noisy(counts, rng, scale=1 / EPSILON)))


def max_with_value(counts: Sequence[float], rng: Generator) -> tuple[int, float]:
    values = noisy(counts, rng, scale=2 / EPSILON)
    first = int(np.argmax(values))
    return first, rounded(values[first])


def max_with_gap(counts: Sequence[float], rng: Generator) -> tuple[int, float]:
    first = int(np.argmax(noisy(counts, rng, scale=2 / EPSILON)))
    others = [count for i, count in enumerate(counts) if i != first]
    return first, counts[first] - max(others)


def svt_stoddard(queries: Sequence[float], rng: Generator) -> tuple[int, ...]:
    threshold = rng.laplace(scale=2 / EPSILON)
    return tuple(int(query >= threshold) for query in queries)


def svt_chen(queries: Sequence[float], rng: Generator) -> tuple[int, ...]:
    threshold = rng.laplace(scale=2 / EPSILON)
    above = noisy(queries, rng, scale=2 / EPSILON) >= threshold
    return tuple(above.astype(int).tolist())


def svt_roth(queries: Sequence[float], rng: Generator) -> tuple[float | None, ...]:
    threshold = rng.laplace(scale=2 / EPSILON)
    values = noisy(queries, rng, scale=2 / EPSILON)
    above = np.flatnonzero(values >= threshold)
    if not len(above):
        return (None,) * len(queries)
    return (*(None,) * int(above[0]), rounded(values[above[0]]))


# Outputs as DP-Auditorium's testers read them


def one_hot(place: int, size: int) -> list[float]:
    return [float(i == place) for i in range(size)]


def bin_of(value: float, edges: Sequence[float]) -> int:
    return int(np.searchsorted(edges, value, side="right"))


def one_number(output: float) -> list[float]:
    return [output]


def in_bins(output: float, *, edges: Sequence[float]) -> int:
    return bin_of(output, edges)


def place(output: int, *, size: int) -> list[float]:
    return one_hot(output, size)


def itself(output: int) -> int:
    return output


def place_and_value(output: tuple[int, float], *, size: int) -> list[float]:
    return [*one_hot(output[0], size), output[1]]


def place_and_bin(output: tuple[int, float], *, edges: Sequence[float]) -> int:
    return output[0] * (len(edges) + 1) + bin_of(output[1], edges)


def bits(output: tuple[int, ...]) -> list[float]:
    return [float(bit) for bit in output]


def number_of_bits(output: tuple[int, ...]) -> int:
    return sum(bit << i for i, bit in enumerate(output))


def halves_compared(output: tuple[int, ...]) -> int:
    half = len(output) // 2
    return sum(output[:half]) - sum(output[half:]) + half


def first_above(output: tuple[float | None, ...]) -> tuple[int, float]:
    """Return how many were below, and the value; as many as all if none was above."""
    if output[-1] is None:
        return len(output), 0.0
    return len(output) - 1, output[-1]


def released(output: tuple[float | None, ...], *, size: int) -> list[float]:
    return place_and_value(first_above(output), size=size)


def released_bin(output: tuple[float | None, ...], *, edges: Sequence[float]) -> int:
    return place_and_bin(first_above(output), edges=edges)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A faulty mechanism, a pair of neighbours that shows it, and how it is read.

    Attributes:
        name: The mechanism and the fault.
        function: The mechanism.
        x: An input.
        y: Its neighbour.
        claim: What it is claimed to satisfy.
        vector: An output as a vector.
        code: An output as a whole number, for histograms.
        codes: How many such numbers there are.
    """

    name: str
    function: Callable[..., Any]
    x: Any
    y: Any
    claim: Guarantee
    vector: Callable[[Any], list[float]]
    code: Callable[[Any], int]
    codes: int


def numeric(
    name: str,
    function: Callable[..., Any],
    y: float,
    claim: Guarantee,
    edges: Sequence[float],
) -> Fault:
    return Fault(
        name=name,
        function=function,
        x=0.0,
        y=y,
        claim=claim,
        vector=one_number,
        code=partial(in_bins, edges=edges),
        codes=len(edges) + 1,
    )


def laplace_faults() -> Iterator[Fault]:
    edges = np.linspace(-1, 2, 7).tolist()
    for too_small in (2.0, 1.3):
        function = partial(laplace, too_small=too_small)
        name = f"laplace: scale {too_small:g}x too small"
        yield numeric(name, function, 1.0, PURE, edges)
    yield numeric("laplace: low bits", laplace_low_bits, 1.0, PURE, edges)


def gaussian_faults() -> Iterator[Fault]:
    """Make the faults; the mixed-up scales have sensitivities at which noise shrinks.

    The root of the scale is too little noise if the scale is above 1, and the variance
    in place of the standard deviation if it is below 1.
    """
    scales = {
        "sigma halved": (1.0, SIGMA / 2),
        "root of the scale": (10.0, math.sqrt(10 * SIGMA)),
        "variance for deviation": (0.1, (0.1 * SIGMA) ** 2),
    }
    for name, (sensitivity, scale) in scales.items():
        function = partial(gaussian, scale=scale)
        edges = (sensitivity / 2 + scale * np.linspace(-3, 3, 13)).tolist()
        yield numeric(f"gaussian: {name}", function, sensitivity, APPROX, edges)


def max_faults() -> Iterator[Fault]:
    yield Fault(
        name="noisy max: half the noise",
        function=max_half_noise,
        x=[1, 0, 0, 0, 0],
        y=[0, 1, 1, 1, 1],
        claim=PURE,
        vector=partial(place, size=5),
        code=itself,
        codes=5,
    )
    edges = np.linspace(0, 4, 5).tolist()
    yield Fault(
        name="noisy max: value released",
        function=max_with_value,
        x=[0, 0, 0, 0, 0],
        y=[1, 1, 1, 1, 1],
        claim=PURE,
        vector=partial(place_and_value, size=5),
        code=partial(place_and_bin, edges=edges),
        codes=5 * (len(edges) + 1),
    )
    yield Fault(
        name="noisy max: noise-free gap",
        function=max_with_gap,
        x=[1, 0, 0, 0, 0],
        y=[0, 1, 1, 1, 1],
        claim=PURE,
        vector=partial(place_and_value, size=5),
        code=partial(place_and_bin, edges=(-0.5, 0.5)),
        codes=15,
    )


def svt_faults() -> Iterator[Fault]:
    yield Fault(
        name="svt: no noise on queries (Stoddard)",
        function=svt_stoddard,
        x=[0, 1],
        y=[1, 0],
        claim=PURE,
        vector=bits,
        code=number_of_bits,
        codes=4,
    )
    yield Fault(
        name="svt: no stop (Chen)",
        function=svt_chen,
        x=[0] * 5 + [1] * 5,
        y=[1] * 5 + [0] * 5,
        claim=PURE,
        vector=bits,
        code=halves_compared,
        codes=11,
    )
    edges = np.linspace(-2, 2, 5).tolist()
    yield Fault(
        name="svt: values released (Roth)",
        function=svt_roth,
        x=[-1] * 5 + [1],
        y=[0] * 5 + [0],
        claim=PURE,
        vector=partial(released, size=7),
        code=partial(released_bin, edges=edges),
        codes=7 * (len(edges) + 1),
    )


FAULTS: Final = (
    *laplace_faults(),
    *gaussian_faults(),
    *max_faults(),
    *svt_faults(),
)


# Tests


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is written down of one tester and fault; no calls if it is not found."""

    repeats: int
    calls_median: int | None
    calls_90: int | None
    found_share: float
    cpu_seconds: float
    note: str = ""


def seed(*parts: object) -> bytes:
    return sha256(repr(parts).encode()).digest()


def timed(test: Test, repeat: int, calls: int) -> tuple[bool, float]:
    start = time.process_time()
    found = test(repeat, calls)
    return found, time.process_time() - start


def climbed(test: Test, *, repeats: int, most_cpu: float = math.inf) -> Outcome:
    """Return the least number of calls with which enough repeats refute."""
    may_miss = repeats - math.ceil(SHARE * repeats)
    for calls in LADDER:
        found: list[bool] = []
        seconds: list[float] = []
        while len(found) < repeats and found.count(False) <= may_miss:
            refuted, spent = timed(test, len(found), calls)
            found.append(refuted)
            seconds.append(spent)
        enough = len(found) == repeats and found.count(False) <= may_miss
        slow = median(seconds) > most_cpu
        if enough or slow or calls == LADDER[-1]:
            break
    unfound = f"not found with {calls} calls, CPU cap" if slow else NEVER_FOUND
    return Outcome(
        repeats=len(found),
        calls_median=None,
        calls_90=calls if enough else None,
        found_share=found.count(True) / len(found),
        cpu_seconds=median(seconds),
        note="" if enough else unfound,
    )


def stopped(fault: Fault) -> Outcome:
    """Return the calls of sequential audits until they refuted."""
    calls: list[float] = []
    seconds: list[float] = []
    pair = Pair("given", OneValue(x=fault.x, y=fault.y))
    for repeat in range(REPEATS[OURS]):
        start = time.process_time()
        result = audit_sequentially(
            fault.function,
            pairs=[pair],
            claim=fault.claim,
            alpha=ALPHA,
            budget=Calls(calls=LADDER[-1]),
            key=Key(seed(fault.name, "sequential", repeat)),
        )
        calls.append(result.calls if result.refuted else math.inf)
        seconds.append(time.process_time() - start)
    calls.sort()
    within = calls[math.ceil(SHARE * len(calls)) - 1]
    middle = median(calls)
    return Outcome(
        repeats=len(calls),
        calls_median=round(middle) if middle < math.inf else None,
        calls_90=round(within) if within < math.inf else None,
        found_share=sum(each < math.inf for each in calls) / len(calls),
        cpu_seconds=median(seconds),
        note="" if within < math.inf else NEVER_FOUND,
    )


def function_test(fault: Fault, repeat: int, calls: int) -> bool:
    """Audit with so many calls in all, half or a third of which are learned from."""
    audited = calls // 2 if fault.claim is PURE else calls * 2 // 3
    try:
        result = audit_function(
            fault.function,
            neighbours=OneValue(x=fault.x, y=fault.y),
            claim=fault.claim,
            alpha=ALPHA,
            budget=Calls(calls=audited),
            key=Key(seed(fault.name, "function", repeat, calls)),
        )
    except InvalidRunError:  # so few calls cannot refute
        return False
    return result.refuted


def module(name: str) -> Any:  # noqa: ANN401 (there may be no such package)
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    return import_module(f"dp_auditorium.{name}")


def approximate(claim: Guarantee) -> Any:  # noqa: ANN401
    epsilons, deltas = claim.points()
    return module("configs.privacy_property").ApproximateDp(
        epsilon=float(epsilons[0]), delta=float(deltas[0])
    )


def hockey_stick(fault: Fault, *, epochs: int = 2) -> Any:  # noqa: ANN401
    tester, config = (
        module("testers.hockey_stick_tester"),
        module("configs.property_tester_config"),
    )
    training = tester.make_default_hs_training_config()
    training.training_epochs = epochs
    return tester.HockeyStickPropertyTester(
        config=config.HockeyStickPropertyTesterConfig(
            training_config=training, approximate_dp=approximate(fault.claim)
        ),
        base_model=tester.make_default_hs_base_model(),
    )


def renyi(fault: Fault) -> Any:  # noqa: ANN401
    tester, config, properties = (
        module("testers.renyi_tester"),
        module("configs.property_tester_config"),
        module("configs.privacy_property"),
    )
    epsilon = float(fault.claim.points()[0][0])
    return tester.RenyiPropertyTester(
        config.RenyiPropertyTesterConfig(
            alpha=2.0,
            training_config=config.TrainingConfig(
                training_epochs=5,
                batch_size=128,
                optimizer_learning_rate=0.001,
                model_output_coordinate_bound=1.0,
            ),
            privacy_property=properties.PrivacyProperty(
                pure_dp=properties.PureDp(epsilon=epsilon)
            ),
        ),
        base_model=tester.make_default_renyi_base_model(),
    )


def histogram(fault: Fault) -> Any:  # noqa: ANN401
    config = module("configs.property_tester_config")
    return module("testers.histogram_tester").HistogramTester(
        config.HistogramPropertyTesterConfig(
            test_discrete_mechanism=True,
            histogram_size=fault.codes,
            min_value=0.0,
            max_value=float(fault.codes),
            approximate_dp=approximate(fault.claim),
        )
    )


def mmd(fault: Fault) -> Any:  # noqa: ANN401
    config = module("configs.property_tester_config")
    return module("testers.mmd_tester").MMDPropertyTester(
        config.MMDPropertyTesterConfig(
            kernel=config.Kernel.KERNEL_LAPLACIAN,
            bandwidth=1.0,
            approximate_dp=approximate(fault.claim),
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tester:
    """A tester of DP-Auditorium and how it is used.

    Attributes:
        name: What it is called in the table.
        kind: Its name in the runner's configuration.
        make: Makes it for a fault.
        coded: Whether it reads whole numbers.
        pure_only: Whether it tests pure claims only.
        trains: Whether it trains a network.
    """

    name: str
    kind: str
    make: Callable[[Fault], Any]
    coded: bool = False
    pure_only: bool = False
    trains: bool = True

    def samples(self, fault: Fault, seeds: bytes) -> Callable[[Any, int], Array]:
        """Return the mechanism as the runner calls it."""
        rng = np.random.default_rng(list(seeds))
        read: Callable[[Any], Any] = fault.code if self.coded else fault.vector

        def mechanism(dataset: object, num_samples: int) -> Array:
            outputs = [
                read(fault.function(dataset, rng=rng)) for _ in range(num_samples)
            ]
            return np.array(outputs, dtype=int if self.coded else float)

        return mechanism

    def refutes(self, fault: Fault, repeat: int, calls: int) -> bool:
        """Return whether the runner reports a violation from so many calls."""
        config = module("configs.privacy_test_runner_config")
        seeds = seed(fault.name, self.name, repeat, calls)
        if self.trains:
            tensorflow().keras.utils.set_random_seed(int.from_bytes(seeds[:4], "big"))
        runner = module("privacy_test_runner").PrivacyTestRunner(
            config.PrivacyTestRunnerConfig(
                property_tester=config.PropertyTester[self.kind],
                max_num_trials=1,
                failure_probability=ALPHA,
                num_samples=calls // 2,
                post_processing=config.PostProcessing.NONE,
            ),
            module("generators.constant_dataset_generator").ConstantDatasetGenerator(
                (fault.x, fault.y)
            ),
            self.make(fault),
        )
        mechanism = self.samples(fault, seeds)
        # Keras prints how far it is.
        with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
            result = runner.test_privacy(mechanism, fault.name)
        return result.found_privacy_violation is not None


@cache
def tensorflow() -> Any:  # noqa: ANN401
    module("testers.hockey_stick_tester")
    found = import_module("tensorflow")
    found.config.threading.set_intra_op_parallelism_threads(1)
    found.config.threading.set_inter_op_parallelism_threads(1)
    return found


MMD: Final = Tester(name="MMD", kind="MMD_TESTER", make=mmd, trains=False)
TESTERS: Final = (
    Tester(name="hockey-stick", kind="HOCKEY_STICK_TESTER", make=hockey_stick),
    Tester(
        name="histogram",
        kind="HISTOGRAM_TESTER",
        make=histogram,
        coded=True,
        trains=False,
    ),
    Tester(name="Renyi", kind="RENYI_TESTER", make=renyi, pure_only=True),
    MMD,
    Tester(
        name="hockey-stick, 20 epochs",
        kind="HOCKEY_STICK_TESTER",
        make=partial(hockey_stick, epochs=20),
    ),
)


def revealed(x: float, rng: Generator) -> float:  # noqa: ARG001 (uses no noise)
    return x


@cache
def mmd_refutes_nothing(claim: Guarantee) -> bool:
    """Whether the MMD tester cannot refute the claim of a function without noise."""
    fault = numeric("no privacy", revealed, 1000.0, claim, (500.0,))
    return not MMD.refutes(fault, 0, LADDER[-1])


def peer_outcome(tester: Tester, fault: Fault) -> Outcome:
    if tester.pure_only and fault.claim is not PURE:
        return Outcome(0, None, None, 0.0, 0.0, "tests pure and Renyi claims only")
    if tester is MMD and mmd_refutes_nothing(fault.claim):
        note = "not run: does not refute a function that returns its input"
        return Outcome(0, None, None, 0.0, 0.0, note)
    return climbed(
        partial(tester.refutes, fault), repeats=REPEATS[PEER], most_cpu=MOST_CPU
    )


def runs(faults: Sequence[Fault]) -> Iterator[tuple[Fault, str, str, Any]]:
    """Yield fault, tool, tester and a function that returns the outcome."""
    for fault in faults:
        yield fault, OURS, "audit_sequentially", partial(stopped, fault)
    for fault in faults:
        test = partial(function_test, fault)
        climb = partial(climbed, test, repeats=REPEATS[OURS])
        yield fault, OURS, "audit_function", climb
    if find_spec("dp_auditorium") is not None:
        for tester in TESTERS:
            for fault in faults:
                yield fault, PEER, tester.name, partial(peer_outcome, tester, fault)


# The table


def rows() -> list[dict[str, str]]:
    if not RESULTS.exists():
        return []
    with RESULTS.open(newline="") as file:
        return list(csv.DictReader(file))


def shown(outcome: Outcome) -> dict[str, str]:
    return {
        "repeats": str(outcome.repeats),
        "calls_median": str(outcome.calls_median or ""),
        "calls_90": str(outcome.calls_90 or ""),
        "found_share": f"{outcome.found_share:.2f}" if outcome.repeats else "",
        "cpu_seconds": f"{outcome.cpu_seconds:.3g}" if outcome.repeats else "",
        "date": datetime.now(tz=UTC).date().isoformat(),
        "note": outcome.note,
    }


def append(row: dict[str, str]) -> None:
    new = not RESULTS.exists()
    with RESULTS.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


def fill(prefix: str) -> None:
    """Run what the table lacks."""
    done = {(row["tool"], row["tester"], row["fault"]) for row in rows()}
    faults = [fault for fault in FAULTS if fault.name.startswith(prefix)]
    for fault, tool, tester, run in runs(faults):
        if (tool, tester, fault.name) in done:
            continue
        row = {"tool": tool, "tester": tester, "fault": fault.name}
        row |= {"claim": str(fault.claim), **shown(run())}
        append(row)
        print(*row.values(), sep=" | ", flush=True)


def cell(row: dict[str, str]) -> str:
    if row["repeats"] == "0":
        return "n/a"
    if not row["calls_90"]:
        return f"no ({float(row['found_share']):.0%})"
    calls = int(row["calls_90"])
    middle = row["calls_median"]
    return f"{int(middle):,} / {calls:,}" if middle else f"{calls:,}"


def table() -> str:
    """Return calls within which 90 % refute, after the median if it is known."""
    found = rows()
    testers = list(dict.fromkeys((row["tool"], row["tester"]) for row in found))
    cells = {(r["tool"], r["tester"], r["fault"]): cell(r) for r in found}
    names = [fault.name for fault in FAULTS]
    body = [
        [name, *(cells.get((*tester, name), "") for tester in testers)]
        for name in names
    ]
    head = ["fault", *(f"{tool}: {tester}" for tool, tester in testers)]
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default="", help="faults whose name begins so")
    parser.add_argument("--table", action="store_true", help="print the table only")
    chosen = parser.parse_args()
    if not chosen.table:
        fill(chosen.only)
    print(table())


assert all(low < high for low, high in pairwise(LADDER))

if __name__ == "__main__":
    main()
