"""The pytest plugin of dpaudit: the fixture ``dp_audit``.

    def test_laplace(dp_audit):
        dp_audit(laplace, pairs=(0, 1), epsilon=1.0)

It stands beside the package so that pytest, which loads every plugin when it starts,
does not import numpy in suites that audit nothing.

The probability of a false positive is shared: when the tests to be run are known, and
before any of them runs, the audits among them are counted, and each gets ``alpha``
divided by their number. By Bonferroni's inequality a whole run refutes a true claim
with probability at most ``alpha``. Under xdist every worker collects the same tests, so
all of them divide by the same number; with ``--dist=each`` that number is multiplied by
the workers. A test that is run again because it failed (pytest-rerunfailures) fails
only if every one of its runs does, so false positives are no more frequent. They need
not be rarer: the run gets the same key again, and a function that is seeded by it
repeats itself.

With ``--dp-audit-state=DIR`` evidence is kept from run to run instead, for each test in
a folder of its own. Then alpha is not shared: each test ever refutes a true claim with
probability at most ``alpha``, over all runs.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpaudit.game.coins import Key
    from dpaudit.privacy.guarantees import Guarantee
    from dpaudit.testing.calling import Neighbours
    from dpaudit.testing.functions import FunctionResult
    from dpaudit.testing.guesser_selection import Budget
    from dpaudit.testing.neighbours import Schema
    from dpaudit.testing.sequential import Pair, SequentialResult

_ALPHA = 0.001  # of a whole run: a suite runs at every commit, and cries wolf seldom
_SECONDS = 2.0
_PROPERTY = "dp_audit"
_LONGEST = 120  # characters of a test's name in that of a file
# Where pytest finds its root, if it is given a path below; --rootdir overrules them.
_ROOTS = (
    *("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "pyproject.toml"),
    *("tox.ini", "setup.cfg", "setup.py"),
)
_SEED = re.compile(r"([0-9a-f]{16})(?:-(\d+)-(\d+))?")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _Seed:
    """From what the coins of a run are derived, and how to repeat one of its audits.

    Attributes:
        text: What the keys of all audits are derived from.
        calls: Calls of the audit to be repeated; None for a new run.
        audits: How many audits shared alpha in the run that is repeated.
    """

    text: str
    calls: int | None = None
    audits: int | None = None

    def __str__(self) -> str:
        again = "" if self.calls is None else f"-{self.calls}-{self.audits}"
        return self.text + again


@final
@dataclass(slots=True, kw_only=True)
class _Run:
    """What all audits of one run share."""

    seed: _Seed
    alpha: float
    seconds: float
    folder: Path | None
    state: Path | None
    copies: int
    declared: dict[str, int]  # how often each test may call the fixture
    counted: int  # how often all tests to be run may

    @property
    def audits(self) -> int:
        """Among how many audits alpha is shared; a seed cannot make them fewer."""
        return max(self.counted * self.copies, self.seed.audits or 1)


_RUN = pytest.StashKey[_Run]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, and the same for the configuration file."""
    group = parser.getgroup("dpaudit", "audits of differential privacy")
    group.addoption(
        "--dp-audit-alpha",
        type=float,
        help="probability that the whole run refutes a true claim "
        f"(default {_ALPHA}, or dp_audit_alpha of the configuration)",
    )
    group.addoption(
        "--dp-audit-seconds",
        type=float,
        help="about how long one audit may take "
        f"(default {_SECONDS}, or dp_audit_seconds of the configuration)",
    )
    group.addoption(
        "--dp-audit-seed",
        help="seed of all coins, as it was printed, to repeat an audit",
    )
    group.addoption(
        "--dp-audit-report",
        metavar="DIR",
        help="folder to which the result of every audit is written as JSON",
    )
    group.addoption(
        "--dp-audit-state",
        metavar="DIR",
        help="folder in which evidence is kept from run to run "
        "(or dp_audit_state of the configuration)",
    )
    parser.addini("dp_audit_state", "folder in which evidence is kept")
    parser.addini("dp_audit_alpha", "false-positive rate of a whole run")
    parser.addini("dp_audit_seconds", "about how long one audit may take")


def pytest_configure(config: pytest.Config) -> None:
    """Read the options."""
    config.addinivalue_line(
        "markers",
        "dp_audits(count): how many times a test calls dp_audit, if more than once",
    )
    given = getattr(config, "workerinput", {})
    config.stash[_RUN] = _Run(
        seed=_seed(given.get("dp_audit_seed") or config.getoption("dp_audit_seed")),
        alpha=_number(config, "dp_audit_alpha", _ALPHA, most=0.5),
        seconds=_number(config, "dp_audit_seconds", _SECONDS, most=float("inf")),
        folder=_folder(config),
        state=_state(config),
        copies=given.get("dp_audit_copies", 1),
        declared={},
        counted=0,
    )


def _seed(text: str | None) -> _Seed:
    if text is None:
        return _Seed(text=secrets.token_hex(8))
    found = _SEED.fullmatch(text)
    if found is None:
        raise pytest.UsageError(
            f"--dp-audit-seed must be a seed as it was printed, got {text!r}"
        )
    if found[2] is None:
        return _Seed(text=found[1])
    return _Seed(text=found[1], calls=int(found[2]), audits=int(found[3]))


def _number(config: pytest.Config, name: str, default: float, *, most: float) -> float:
    value = config.getoption(name)
    try:
        if value is None:
            value = float(config.getini(name) or default)
    except ValueError as error:
        raise pytest.UsageError(f"{name} must be a number: {error}") from error
    if not 0 < value < most:
        raise pytest.UsageError(f"{name} must be in (0, {most}), got {value}")
    return float(value)


def _folder(config: pytest.Config) -> Path | None:
    given = config.getoption("dp_audit_report")
    return None if given is None else config.invocation_params.dir / given


def _state(config: pytest.Config) -> Path | None:
    """Return the folder of evidence; it is refused with a seed.

    Coins that come again would count the same evidence again.
    """
    given = config.getoption("dp_audit_state")
    if config.getoption("dp_audit_seed") is not None:
        if given is not None:
            raise pytest.UsageError(
                "evidence that is kept needs new coins in every run: leave out "
                "--dp-audit-seed, or --dp-audit-state to repeat one run"
            )
        return None
    if given is not None:
        return config.invocation_params.dir.joinpath(given)
    written = str(config.getini("dp_audit_state"))
    return config.rootpath.joinpath(written) if written else None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:  # noqa: ANN401 (xdist has no types)
    """Tell each worker of xdist the seed, and how many run every test."""
    node.workerinput["dp_audit_seed"] = str(node.config.stash[_RUN].seed)
    each = node.config.getoption("dist") == "each"
    node.workerinput["dp_audit_copies"] = len(node.nodemanager.specs) if each else 1


@pytest.hookimpl(tryfirst=True)  # before the terminal prints how many there are
def pytest_collection_finish(session: pytest.Session) -> None:
    """Count the audits of the tests that will be run: now, before any is."""
    run = session.config.stash[_RUN]
    audits = [i for i in session.items if "dp_audit" in getattr(i, "fixturenames", ())]
    run.declared = {item.nodeid: _declared(item) for item in audits}
    run.counted = sum(run.declared[item.nodeid] for item in audits)
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[_PROPERTY] = run.counted


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:  # noqa: ANN401 (xdist has no types)
    """Hear from a worker of xdist how many audits it counted."""
    run = node.config.stash[_RUN]
    run.counted = max(run.counted, getattr(node, "workeroutput", {}).get(_PROPERTY, 0))
    run.copies = max(run.copies, node.workerinput["dp_audit_copies"])


def _declared(item: pytest.Item) -> int:
    marker = item.get_closest_marker("dp_audits")
    if marker is None:
        return 1
    count = marker.args[0] if len(marker.args) == 1 and not marker.kwargs else None
    if not isinstance(count, int) or count < 1:
        raise pytest.UsageError(
            f"{item.nodeid}: the marker takes the number of calls of dp_audit, as in "
            "@pytest.mark.dp_audits(3)"
        )
    return count


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """Print how alpha is shared, if there is anything to share it."""
    run = config.stash[_RUN]
    return [_shared(run)] if run.declared else []


def _shared(run: _Run) -> str:
    if run.state is not None:
        return (
            f"dp_audit: evidence is kept in {run.state}; alpha = {run.alpha:g} for "
            "each test over all runs"
        )
    return f"dp_audit: {run.audits} audits share alpha = {run.alpha:g}; seed {run.seed}"


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """With -v, print what each audit showed; the reports come from all workers."""
    run = config.stash[_RUN]
    if run.counted and not run.declared:  # by workers: they have no terminal
        terminalreporter.line(_shared(run))
    if terminalreporter.verbosity < 1:
        return
    lines = [
        f"{report.nodeid}: {text}"
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, text in getattr(report, "user_properties", ())
        if name == _PROPERTY and getattr(report, "when", "") == "call"
    ]
    if lines:
        terminalreporter.section("audits of differential privacy")
        for line in lines:
            terminalreporter.line(line)


@pytest.fixture
def dp_audit(request: pytest.FixtureRequest) -> Auditor:
    """Audit a function: the test fails if it leaks more than it claims.

    Each test may call it once; if marked ``@pytest.mark.dp_audits(count)``, ``count``
    times.
    """
    run = request.config.stash[_RUN]
    if request.node.nodeid not in run.declared:
        pytest.fail(
            "dp_audit must be an argument of the test, or of a fixture it uses: audits "
            "are counted before the first of them runs, and one that is fetched by "
            "getfixturevalue was not",
            pytrace=False,
        )
    return Auditor(request.node, run)


@final
class Auditor:
    """What the fixture ``dp_audit`` gives to a test: call it."""

    def __init__(self, item: pytest.Item, run: _Run) -> None:
        self._item, self._run, self._made = item, run, 0

    def __call__(  # noqa: PLR0913 (each is one thing that a test may fix)
        self,
        mechanism: Callable[..., object],
        *,
        pairs: tuple[object, object] | Schema | Iterable[Pair],
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        mu: float | None = None,
        claim: Guarantee | None = None,
        data: object = None,
        index: int | None = None,
        seconds: float | None = None,
        calls: int | None = None,
        must_catch: float | None = None,
        raising: Iterable[type[Exception]] = (),
        allow_unseen: bool = False,
    ) -> FunctionResult | SequentialResult:
        """Audit a function and fail the test if its claim is refuted.

        Give one claim: ``epsilon``, perhaps with ``delta``, or ``rho``, ``mu``, or any
        ``claim``.

        Args:
            mechanism: Called with one value, or with ``data``; if it has a parameter
                ``rng``, it is given a numpy generator.
            pairs: The two values x and y, or with ``data`` the two records, that are
                claimed to be hard to distinguish; they must differ. Or a description of
                the inputs (``dpaudit.testing.Rows`` and others), or many pairs.
            epsilon: The claim (epsilon, delta)-DP.
            delta: The claim (epsilon, delta)-DP; 0 if left out.
            rho: The claim rho-zCDP.
            mu: The claim mu-GDP.
            claim: Any other guarantee, such as ``PrivacyCurve`` or ``RenyiDP``.
            data: A data set, for a function of one: list, tuple or array.
            index: Which of its records is x or y.
            seconds: About how long the audit may take.
            calls: How many calls to audit, instead of a time: with a fixed seed the
                audit then is the same every time.
            must_catch: Fail unless a planted leak of this epsilon, in any one place of
                the output, would be detected with probability 0.9.
            raising: Exceptions that are outputs, as users see them.
            allow_unseen: Go on though an output has more places than are read;
                the message names them.
        """
        from dpaudit.errors import DpAuditError  # noqa: PLC0415 (only if needed)
        from dpaudit.testing.sequential import Pair  # noqa: PLC0415

        __tracebackhide__ = True
        self._count()
        options: dict[str, Any] = {
            "budget": self._budget(seconds, calls),
            "raising": tuple(raising),
            "allow_unseen": allow_unseen,
            "key": self._key(),
        }
        try:
            options["claim"] = _claim(
                claim, epsilon=epsilon, delta=delta, rho=rho, mu=mu
            )
            found: FunctionResult | SequentialResult
            one = isinstance(pairs, tuple) and not any(
                isinstance(each, Pair) for each in pairs
            )
            if isinstance(pairs, tuple) and one and self._run.state is None:
                neighbours = _neighbours(pairs, data, index)
                found = self._fixed(mechanism, neighbours, must_catch, options)
            else:
                many = _pairs(pairs, data, index)
                found = self._sequential(mechanism, many, must_catch, options)
        except DpAuditError as error:
            raise pytest.fail.Exception(f"dp_audit: {error}", pytrace=False) from None
        self._keep(found)
        if found.refuted:
            inner = getattr(mechanism, "func", mechanism)  # of a functools.partial
            name = getattr(inner, "__name__", type(mechanism).__name__)
            pytest.fail(f"{name}: {self._summary(found)}", pytrace=False)
        return found

    def _fixed(
        self,
        mechanism: Callable[..., object],
        neighbours: Neighbours,
        must_catch: float | None,
        options: dict[str, Any],
    ) -> FunctionResult:
        """Audit with a fixed number of calls."""
        from dpaudit.testing.functions import audit_function  # noqa: PLC0415

        __tracebackhide__ = True
        return audit_function(
            mechanism,
            neighbours=neighbours,
            # Bonferroni's inequality: the shares add up to the run's alpha.
            alpha=self._run.alpha / self._run.audits,
            must_catch=must_catch,
            **options,
        )

    def _sequential(
        self,
        mechanism: Callable[..., object],
        pairs: list[Pair],
        must_catch: float | None,
        options: dict[str, Any],
    ) -> SequentialResult:
        """Audit until the claim is refuted, over all runs if evidence is kept."""
        from dpaudit.errors import InvalidInputError  # noqa: PLC0415
        from dpaudit.testing.sequential import audit_sequentially  # noqa: PLC0415

        __tracebackhide__ = True
        if must_catch is not None:
            raise InvalidInputError(
                "must_catch is for one pair of inputs without --dp-audit-state; leave "
                "it out"
            )
        run, state = self._run, None
        if run.state is not None:
            state = run.state / self._file_name()
            if run.copies > 1:
                raise InvalidInputError(
                    "evidence is kept by one worker for each test: leave out "
                    "--dist=each, or --dp-audit-state"
                )
        return audit_sequentially(
            mechanism,
            pairs=pairs,
            alpha=run.alpha if state is not None else run.alpha / run.audits,
            state=state,
            **options,
        )

    def _file_name(self) -> str:
        """Return a name for files of this audit."""
        plain = re.sub(r"[^\w.-]+", "_", self._item.nodeid, flags=re.ASCII)
        digest = hashlib.sha256(self._item.nodeid.encode()).hexdigest()[:8]
        return f"{plain[:_LONGEST]}-{digest}-{self._made}"

    def _count(self) -> None:
        allowed = self._run.declared[self._item.nodeid]
        self._made += 1
        if self._made > allowed:
            pytest.fail(
                f"dp_audit was called more often than was declared ({allowed}); alpha "
                "was shared before the tests ran, so declare how often this one calls "
                f"it: @pytest.mark.dp_audits({self._made})",
                pytrace=False,
            )

    def _key(self) -> Key:
        from dpaudit.game.coins import Key  # noqa: PLC0415

        name = f"{self._run.seed.text} {self._made} {self._item.nodeid}"
        return Key(hashlib.sha256(name.encode()).digest())

    def _budget(self, seconds: float | None, calls: int | None) -> Budget:
        from dpaudit.testing.functions import Calls, Seconds  # noqa: PLC0415

        fixed = calls if self._run.seed.calls is None else self._run.seed.calls
        if fixed is not None:
            return Calls(calls=fixed)
        return Seconds(seconds=self._run.seconds if seconds is None else seconds)

    def _keep(self, found: FunctionResult | SequentialResult) -> None:
        """Keep the result where -v, junitxml and people find it."""
        summary = self._summary(found)
        self._item.user_properties.append((_PROPERTY, summary.replace("\n", " ")))
        if not found.refuted:
            self._item.add_report_section("call", "dp_audit", summary)
        folder = self._run.folder
        audit = getattr(found, "audit", None)
        if folder is not None and audit is not None:
            from dpaudit import _files  # noqa: PLC0415 (as light as pytest without it)

            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{self._file_name()}.json"
            _files.write(path, audit.to_json() + "\n")

    def _summary(self, found: FunctionResult | SequentialResult) -> str:
        seed = _Seed(
            text=self._run.seed.text, calls=found.calls, audits=self._run.audits
        )
        if self._run.state is not None:  # evidence of earlier runs has no seed
            return "\n".join([*found.sentences(), *_code_of(found)])
        again = f"{_command(self._item, self._run)} --dp-audit-seed={seed}"
        return "\n".join([*found.sentences(), *_code_of(found), f"To repeat: {again}"])


def _code_of(found: FunctionResult | SequentialResult) -> list[str]:
    """Return the code of the inputs that refuted a claim, if it is known."""
    code = getattr(found, "code", "")
    return [f"The inputs:\n{code}"] if found.refuted and code else []


def _command(item: pytest.Item, run: _Run) -> str:
    """Return the command that runs a test alone, from where pytest was started."""
    here, root = item.config.invocation_params.dir, item.config.rootpath
    path = os.path.relpath(item.path, here)
    words = ["pytest", path + item.nodeid[len(item.nodeid.partition("::")[0]) :]]
    between = [f for f in item.path.parents if f != root and f.is_relative_to(root)]
    nested = any((folder / name).exists() for folder in between for name in _ROOTS)
    if root != here or nested:  # the name of a test, and so its key, depend on the root
        words.append(f"--rootdir={os.path.relpath(root, here)}")
    if run.alpha != _ALPHA:
        words.append(f"--dp-audit-alpha={run.alpha!r}")
    return shlex.join(words)


def _neighbours(
    pairs: tuple[object, object], data: object, index: int | None
) -> Neighbours:
    from dpaudit.errors import InvalidInputError  # noqa: PLC0415
    from dpaudit.testing.functions import OneRecord, OneValue  # noqa: PLC0415

    if not isinstance(pairs, tuple) or len(pairs) != 2:
        raise InvalidInputError(f"pairs must be two inputs (x, y), got pairs={pairs!r}")
    if (data is None) != (index is None):
        raise InvalidInputError(
            "data and index go together: index gives the position in data of x or y"
        )
    if index is None:
        return OneValue(x=pairs[0], y=pairs[1])
    return OneRecord(data=data, index=index, x=pairs[0], y=pairs[1])


def _pairs(
    pairs: tuple[object, object] | Schema | Iterable[Pair],
    data: object,
    index: int | None,
) -> list[Pair]:
    from dpaudit.errors import InvalidInputError  # noqa: PLC0415
    from dpaudit.testing.neighbours import Schema, neighbouring_pairs  # noqa: PLC0415
    from dpaudit.testing.sequential import Pair  # noqa: PLC0415

    if isinstance(pairs, tuple) and not any(isinstance(p, Pair) for p in pairs):
        neighbours = _neighbours(pairs, data, index)
        return [Pair(f"the pair {pairs!r}"[:_LONGEST], neighbours)]
    if not isinstance(pairs, Schema):
        pairs = list[Any](pairs)
        if not all(isinstance(pair, Pair) for pair in pairs):
            raise InvalidInputError(
                "pairs must be two inputs (x, y), a description of inputs such as "
                f"Rows(...), or a list of Pair, got pairs={pairs!r}"
            )
    return neighbouring_pairs(pairs)


def _claim(
    claim: Guarantee | None,
    *,
    epsilon: float | None,
    delta: float | None,
    rho: float | None,
    mu: float | None,
) -> Guarantee:
    from dpaudit.errors import InvalidInputError  # noqa: PLC0415
    from dpaudit.privacy.guarantees import (  # noqa: PLC0415
        Adjacency,
        ApproxDP,
        GaussianDP,
        PureDP,
        ZeroConcentratedDP,
    )

    named = {"epsilon": epsilon, "rho": rho, "mu": mu, "claim": claim}
    given = [name for name, value in named.items() if value is not None]
    if len(given) != 1 or (delta is not None and epsilon is None):
        raise InvalidInputError(
            "pass one claim: epsilon=... (perhaps with delta=...), rho=..., mu=... or "
            f"claim=...; got {', '.join(given) or 'none'}"
        )
    # An input is replaced by another, whatever that does to a data set in it.
    replaced = Adjacency.REPLACE_ONE
    if rho is not None:
        return ZeroConcentratedDP(rho=rho, adjacency=replaced)
    if mu is not None:
        return GaussianDP(mu=mu, adjacency=replaced)
    if claim is not None:
        return claim
    assert epsilon is not None  # one of them was given
    if not delta:
        return PureDP(epsilon=epsilon, adjacency=replaced)
    return ApproxDP(epsilon=epsilon, delta=delta, adjacency=replaced)
