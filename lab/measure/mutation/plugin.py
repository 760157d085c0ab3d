"""Inside pytest: which lines each test executes, and every mutant in its own child.

``--reach FILE`` runs the tests once under coverage, one context for each test, and
writes how long each took and which lines of the package it executed. What a fixture
shared by several tests executes counts for every test that asks for it.

``--mutants FILE`` collects the tests, runs none in this process, and forks once for
each mutant listed: the child switches the mutant on, runs the tests listed for it,
the quickest and so far most successful first, and ends at the first that fails. Nothing
is imported or collected twice, so that a mutant costs milliseconds beside its tests. A
test may take some times as long as it took without a mutant; then the child is ended: a
timeout. A line is written for each mutant as soon as it is known.
"""

import collections
import gc
import importlib.util
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Generator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from _pytest.runner import runtestprotocol

_EXAMPLES = 12  # of a property; the same in every run
_MEMORY = 4 << 30
_SLACK_SECONDS, _TIMES = 5.0, 4.0  # a test may take so much longer, of CPU time


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the two ways to run, and where results go."""
    parser.addoption("--reach", help="write here what each test executes")
    parser.addoption("--known", help="a list of tests that need not be run again")
    parser.addoption("--mutants", help="modules with mutants, and their tests")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Start what was asked for, before anything of the package is imported."""
    asked = early_config.known_args_namespace
    if asked.reach:
        known = set(json.loads(Path(asked.known).read_text()))
        early_config.pluginmanager.register(Reach(Path(asked.reach), known))
    if asked.mutants:
        task = json.loads(Path(asked.mutants).read_text())
        if early := task["modules"].keys() & sys.modules.keys():
            pytest.exit(f"imported before their mutants: {early}", 1)
        sys.meta_path.insert(0, Overlay(task["modules"]))
        early_config.pluginmanager.register(Mutants(task))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Try few examples of each property, and do not look for the simplest failure."""
    few: dict[str, Any] = {
        "database": None,
        "phases": [hypothesis.Phase.explicit, hypothesis.Phase.generate],
        "suppress_health_check": list(hypothesis.HealthCheck),
    }
    hypothesis.settings.register_profile(
        "mutation", hypothesis.settings(max_examples=_EXAMPLES, **few)
    )
    hypothesis.settings.load_profile("mutation")
    for function in {getattr(item, "obj", None) for item in items}:
        own = getattr(function, "_hypothesis_internal_use_settings", None)
        if own is not None:
            function._hypothesis_internal_use_settings = hypothesis.settings(
                own, max_examples=min(own.max_examples, _EXAMPLES), **few
            )


class Overlay:
    """Imports modules of the package with all their mutants in them."""

    def __init__(self, modules: dict[str, str]) -> None:
        self.modules = modules

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        """Find those modules, and leave all others to others."""
        if name not in self.modules:
            return None
        return importlib.util.spec_from_file_location(name, self.modules[name])


class Reach:
    """Records the lines that each test executes, and its CPU time."""

    def __init__(self, path: Path, known: set[str]) -> None:
        import coverage  # noqa: PLC0415

        self.path, self.known, self.now = path, known, "import"
        self.seconds: dict[str, float] = {}
        self.fixtures: dict[str, list[str]] = {}
        self.shared: dict[str, float] = {}  # CPU time of fixtures set up once
        self.failed: set[str] = set()
        self.cover = coverage.Coverage(data_file=None, include=["*/src/dpaudit/*"])
        self.cover.start()
        self.cover.switch_context(self.now)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out what is known."""
        items[:] = [item for item in items if item.nodeid not in self.known]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Put what runs from here on down to this test."""
        self.now = f"test {item.nodeid}"
        self.fixtures[item.nodeid] = getattr(item, "fixturenames", [])
        self.cover.switch_context(self.now)
        start = time.process_time()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = time.process_time() - start

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any]
    ) -> Generator[None, Any, Any]:
        """Put what a shared fixture runs down to the fixture."""
        if fixturedef.scope == "function":
            return (yield)
        outer, self.now = self.now, f"fixture {fixturedef.argname}"
        self.cover.switch_context(self.now)
        start = time.process_time()
        try:
            return (yield)
        finally:
            self.shared[fixturedef.argname] = time.process_time() - start
            self.now = outer
            self.cover.switch_context(outer)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note tests that fail; they are not used."""
        if report.failed:
            self.failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write for each test what it executed, with its fixtures."""
        self.cover.stop()
        data = self.cover.get_data()
        lines: dict[str, dict[str, set[int]]] = {}
        for file in data.measured_files():
            name = file[file.rindex("src/dpaudit/") :]
            for line, contexts in data.contexts_by_lineno(file).items():
                for context in contexts:
                    lines.setdefault(context, {}).setdefault(name, set()).add(line)
        tests = {}
        for test, seconds in self.seconds.items():
            if test in self.failed:
                continue
            reached: dict[str, set[int]] = {}
            for source in [
                f"test {test}",
                *(f"fixture {n}" for n in self.fixtures[test]),
            ]:
                for file, numbers in lines.get(source, {}).items():
                    reached.setdefault(file, set()).update(numbers)
            shared = sum(self.shared.get(name, 0.0) for name in self.fixtures[test])
            tests[test] = {
                "seconds": round(seconds, 4),
                "alone": round(seconds + shared, 4),
                "lines": {file: sorted(found) for file, found in reached.items()},
            }
        self.path.write_text(json.dumps(tests))


class Mutants:
    """Runs the listed tests for every mutant, each mutant in a child."""

    def __init__(self, task: dict[str, Any]) -> None:
        self.mutants = task["mutants"]
        self.seconds: dict[str, float] = task["seconds"]
        self.alone: dict[str, float] = task["alone"]  # with the fixtures it needs
        self.kills: collections.Counter[tuple[str, str]] = collections.Counter()
        self.fit: set[str] = set()  # tests that pass without a mutant
        self.unfit: set[str] = set()  # and that do not, behind mutmut's switches

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try every mutant instead of running the tests."""
        from mutmut.mutation import trampoline  # noqa: PLC0415

        # The switch as a plain variable; mutmut's own looks into the environment.
        trampoline.get_mutant_under_test = lambda: trampoline._mutant_under_test or ""
        items = {item.nodeid: item for item in session.items}
        gc.collect()
        gc.freeze()

        def tried(name: str, tests: list[str]) -> str:
            trampoline._mutant_under_test = name
            return self._first_failure(items, tests)

        for one in self.mutants:
            line = {"key": one["key"], **self._verdict(one, tried)}
            with Path(one["store"]).open("a") as store:
                print(json.dumps(line), file=store)
        return True

    def _verdict(
        self, one: dict[str, Any], tried: Callable[[str, list[str]], str]
    ) -> dict[str, Any]:
        """Return what became of a mutant."""
        function = one["name"].partition("__mutmut_")[0]

        def price(test: str) -> float:
            return (0.02 + self.seconds[test]) / (0.2 + self.kills[function, test])

        while tests := sorted(set(one["tests"]) - self.unfit, key=price):
            status, test, seconds = _child(lambda: tried(one["name"], tests))
            if not self._fit(test, tried):
                continue
            self.kills[function, test] += 1
            return {"status": status, "test": test, "seconds": round(seconds, 3)}
        return {"status": "survived", "test": "none executes it", "seconds": 0.0}

    def _fit(self, test: str, tried: Callable[[str, list[str]], str]) -> bool:
        """Return whether a test that noticed a mutant passes without one."""
        if test and test not in self.fit:
            passed = _child(lambda: tried("none", [test]))[0] == "survived"
            (self.fit if passed else self.unfit).add(test)
        return test not in self.unfit

    def _first_failure(self, items: dict[str, pytest.Item], tests: list[str]) -> str:
        """Return the first test that fails, or nothing."""
        chosen = [items[test] for test in tests if test in items]
        for item, after in zip(chosen, [*chosen[1:], None], strict=True):
            limit = _SLACK_SECONDS + _TIMES * self.alone[item.nodeid]
            signal.setitimer(signal.ITIMER_PROF, limit)
            signal.alarm(int(20 * limit) + 120)  # for what waits instead of working
            for report in runtestprotocol(item, log=False, nextitem=after):
                if report.failed:
                    return item.nodeid
        return ""


def _child(work: Callable[[], str]) -> tuple[str, str, float]:
    """Run the work in a child; return how it ended, by which test, and its CPU time."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        code = 3
        try:
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
            silent = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            test = work()
            os.write(writing, test.encode()[:4000])
            code = 1 if test else 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        test = pipe.read().decode()
    _, status, used = os.wait4(child, 0)
    code, seconds = os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime
    if code in {-signal.SIGPROF, -signal.SIGALRM}:
        return "timeout", "", seconds
    return ("survived" if code == 0 else "killed"), test, seconds
