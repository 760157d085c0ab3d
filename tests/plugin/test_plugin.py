"""The pytest plugin, run by pytest on small suites of its own.

Suites audit randomised response at twice and at exactly what it claims, with a fixed
seed, so that nothing here is left to chance.
"""

import json
import shlex
import subprocess
import sys

import pytest
import scipy.optimize  # noqa: F401 (once; each inner run forgets what it imported)
from typer.testing import CliRunner

import dpaudit.testing.functions  # noqa: F401
from dpaudit import Result
from dpaudit.cli import app

pytest_plugins = ["pytester"]

SEED = "--dp-audit-seed=0123456789abcdef"
MECHANISMS = """
    import math, random
    import pytest

    def honest(bit):
        return bit if random.random() < math.e / (1 + math.e) else 1 - bit

    def leaky(bit):
        return bit if random.random() < 0.9 else 1 - bit
"""


@pytest.fixture
def suite(pytester):
    def run(tests, *options, seed=SEED):
        pytester.makepyfile(test_suite=MECHANISMS + tests)
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", seed, *options)

    return run


def results(pytester):
    return {
        path.stem: Result.from_json(path.read_text("utf-8"))
        for path in sorted((pytester.path / "out").glob("*.json"))
    }


def test_a_leak_fails_with_one_sentence_and_what_is_honest_passes(suite):
    done = suite("""
    def test_honest(dp_audit):
        dp_audit(honest, pairs=(0, 1), epsilon=1.0, calls=500)

    def test_leaky(dp_audit):
        dp_audit(leaky, pairs=(0, 1), epsilon=1.0, calls=500)
    """)
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(
        [
            "dp_audit: 2 audits share alpha = 0.001; seed 0123456789abcdef",
            "leaky: Claim refuted. Epsilon is at least *; 1 is claimed. Against *",
            "Of * guesses about 500 calls * correct, made from how often each output*",
            "A planted leak of epsilon = * would be detected with probability 0.9*",
            "To repeat: pytest test_suite.py::test_leaky "
            "--dp-audit-seed=0123456789abcdef-500-2",
        ]
    )


FOUR = """
    @pytest.mark.parametrize("value", [1, 2])
    def test_two_of_them(dp_audit, value):
        dp_audit(honest, pairs=(0, 1), epsilon=1.0, calls=300)

    @pytest.mark.dp_audits(2)
    def test_twice(dp_audit):
        for _ in range(2):
            dp_audit(honest, pairs=(0, 1), epsilon=1.0, calls=300)

    def test_of_something_else():
        pass
"""


def test_alpha_is_shared_among_all_audits_to_be_run(suite, pytester):
    suite(FOUR, "--dp-audit-report=out", "--dp-audit-alpha=0.02").assert_outcomes(
        passed=4
    )
    found = results(pytester)
    assert len(found) == 4
    assert {result.design.alpha for result in found.values()} == {0.02 / 4}
    assert (
        len({result.commitment for result in found.values()}) == 4
    )  # and as many keys


def test_tests_that_are_deselected_take_no_share(suite, pytester):
    suite(FOUR, "--dp-audit-report=out", "-k", "twice").assert_outcomes(
        passed=1, deselected=3
    )
    assert {r.design.alpha for r in results(pytester).values()} == {0.001 / 2}


@pytest.fixture
def only_what_is_needed(monkeypatch):
    """Let each worker import less."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return "-p", "xdist", "-p", "_dpaudit_pytest", "-n2", "--dp-audit-report=out"


@pytest.mark.nightly
def test_workers_of_xdist_share_one_alpha_and_one_seed(
    suite, pytester, only_what_is_needed
):
    def found():
        return {name: result.to_json() for name, result in results(pytester).items()}

    suite(FOUR, "--dp-audit-report=out", *only_what_is_needed[:4]).assert_outcomes(
        passed=4
    )
    alone = found()
    done = suite(FOUR, *only_what_is_needed)
    done.assert_outcomes(passed=4)
    assert found() == alone
    done.stdout.fnmatch_lines(
        ["dp_audit: 4 audits share alpha = 0.001; seed 0123456789abcdef"]
    )


@pytest.mark.nightly
def test_a_test_that_every_worker_runs_counts_for_each(
    suite, pytester, only_what_is_needed
):
    done = suite(FOUR, *only_what_is_needed, "--dist=each", "-k", "twice")
    done.assert_outcomes(passed=2)
    assert {r.design.alpha for r in results(pytester).values()} == {0.001 / 4}
    done.stdout.fnmatch_lines(["dp_audit: 4 audits share*"])


LEAK = """
    def test_leaky(dp_audit):
        dp_audit(lambda bit: bit, pairs=(0, 1), epsilon=1.0, seconds=0.01)

    def test_honest(dp_audit):
        dp_audit(honest, pairs=(0, 1), epsilon=1.0, calls=100)
"""


def test_the_seed_that_is_printed_repeats_an_audit_alone(suite, pytester):
    """Though the time allowed another number of calls, and no other audit shares."""
    first = suite(LEAK, "--dp-audit-report=out")
    seed = next(line for line in first.outlines if line.startswith("To repeat: "))
    (before,) = [r for n, r in results(pytester).items() if "leaky" in n]
    again = suite(LEAK, "--dp-audit-report=out", "-k", "leaky", seed=seed.split()[-1])
    again.assert_outcomes(failed=1, deselected=1)
    (after,) = [r for n, r in results(pytester).items() if "leaky" in n]
    assert after.to_json() == before.to_json()


@pytest.mark.parametrize("nested", [True, False])
def test_what_is_printed_repeats_an_audit_from_where_pytest_was_started(
    pytester, monkeypatch, nested
):
    """The root is above, as was said, or another is below: a test's name depends."""
    folder = pytester.mkdir("sub") / "deeper"
    folder.mkdir()
    if nested:
        pytester.makeini("[pytest]")
        (folder / "setup.cfg").write_text("[tool:pytest]\n")
    else:
        monkeypatch.chdir(folder.parent)
    (folder / "test_below.py").write_text(
        "def test_it(dp_audit):\n"
        "    dp_audit(lambda bit: bit, pairs=(0, 1), epsilon=1.0, seconds=0.01)\n"
    )
    more = ["-p", "no:cacheprovider", f"--dp-audit-report={pytester.path / 'out'}"]
    arguments = [f"--rootdir={pytester.path}", "--dp-audit-alpha=0.004"]
    first = pytester.runpytest_inprocess(*arguments, *more)
    (before,) = results(pytester).values()
    command = next(line for line in first.outlines if line.startswith("To repeat: "))
    words = shlex.split(command.removeprefix("To repeat: "))
    assert words[0] == "pytest"
    pytester.runpytest_inprocess(*words[1:], *more).assert_outcomes(failed=1)
    (after,) = results(pytester).values()
    assert after.to_json() == before.to_json()
    assert after.design.alpha == 0.004


def test_a_test_with_a_long_name_is_reported_too(suite, pytester):
    suite(
        """
    @pytest.mark.parametrize("name", ["a" * 300, "a" * 299 + "b"], ids=str)
    def test_it(dp_audit, name):
        dp_audit(honest, pairs=(0, 1), epsilon=1.0, calls=100)
    """,
        "--dp-audit-report=out",
    ).assert_outcomes(passed=2)
    assert len(results(pytester)) == 2


def test_a_seed_of_one_audit_gives_a_whole_run_no_more_alpha(suite, pytester):
    suite(FOUR, "--dp-audit-report=out", seed=SEED + "-300-1")
    assert {r.design.alpha for r in results(pytester).values()} == {0.001 / 4}


def test_tests_that_are_named_twice_count_twice(suite, pytester):
    names = ["test_suite.py", "test_suite.py"]
    done = suite(LEAK, "--dp-audit-report=out", "--keep-duplicates", *names)
    done.assert_outcomes(passed=2, failed=2)
    assert {r.design.alpha for r in results(pytester).values()} == {0.001 / 4}


def test_another_seed_throws_other_coins(suite, pytester):
    suite(FOUR, "--dp-audit-report=out")
    before = results(pytester)
    suite(FOUR, "--dp-audit-report=out", seed="--dp-audit-seed=" + 16 * "f")
    after = results(pytester)
    assert all(after[name].commitment != before[name].commitment for name in before)


def test_without_a_seed_every_run_has_a_new_one(suite):
    said = [suite(FOUR, "--co", seed="-v").stdout.str() for _ in range(2)]
    seeds = [text.partition("; seed ")[2][:16] for text in said]
    assert seeds[0] != seeds[1]


@pytest.mark.parametrize(
    ("body", "advice"),
    [
        (
            "dp_audit(honest, pairs=(0, 1), epsilon=1.0, calls=100)\n        " * 2,
            "*@pytest.mark.dp_audits(2)",
        ),
        (
            "dp_audit(honest, pairs=(0, 1), epsilon=1.0, calls=12)",
            "dp_audit: 12 calls cannot refute*could not fail; allow about * calls*",
        ),
        (
            "dp_audit(honest, pairs=(0, 1), epsilon=1.0, calls=200, must_catch=1.1)",
            "dp_audit: 200 calls are too few to detect a leak of epsilon = 1.1*",
        ),
        (
            "dp_audit(honest, pairs=(0, 1), epsilon=1.0, data=[0])",
            "dp_audit: data and index go together*",
        ),
        (
            "dp_audit(lambda bit: iter([bit]), pairs=(0, 1), epsilon=1.0)",
            "dp_audit: the mechanism returned *list_iterator*return what it yields*",
        ),
        ("dp_audit(honest, pairs=[0, 1], epsilon=1.0)", "dp_audit: pairs must be two*"),
    ],
)
def test_a_call_that_shows_nothing_fails_and_says_what_to_do(suite, body, advice):
    done = suite(f"""
    def test_it(dp_audit):
        {body}
    """)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines([advice])


# Where nobody looked: each of these passed, and said what it would have caught.

SECRET = """
    import numpy as np

    def secret(places, at):
        def tell(value):
            values = np.random.normal(size=places)
            values[at] = 10.0 * value  # as it is, without any noise
            return values
        return tell
"""


@pytest.mark.parametrize("call", [
    "secret(2000, 511), pairs=(0, 1), epsilon=1.0",
    "secret(2000, 512), pairs=(0, 1), epsilon=1.0",
    "lambda x: secret(600, 512)(x).tolist(), pairs=(0, 1), epsilon=1.0",
    "secret(2000, 512), pairs=(0, 1), epsilon=1.0, must_catch=4.0",
    "secret(20_000, 19_999), pairs=(0, 1), epsilon=1.0, calls=150",
    "lambda x: [str(v) for v in secret(600, 512)(x)], pairs=(0, 1), epsilon=1.0",
    "lambda x: dict.fromkeys('ab' if x else 'ba', 0), pairs=(0, 1), epsilon=1.0",
])  # fmt: skip
def test_a_secret_is_found_at_whichever_place_it_stands(suite, call):
    done = suite(f"""{SECRET}
    def test_it(dp_audit):
        dp_audit({call}, seconds=0.2)
    """)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*Claim refuted. Epsilon is at least *"])


@pytest.mark.parametrize("call", [
    "lambda x: x, pairs=(1, 1), must_catch=4.0",
    "lambda x: x, pairs=(1, 1)",
    "lambda x: x, pairs=(float('nan'), float('nan'))",
    "lambda x: x[0], pairs=(np.zeros(3), np.zeros(3))",
    "len, data=[1, 2], index=0, pairs=([1], [1])",
    "lambda x: x[0], data=np.arange(3), index=0, pairs=(1, True)",
])  # fmt: skip
def test_a_pair_of_equal_inputs_is_refused(suite, call):
    done = suite(f"""{SECRET}
    def test_it(dp_audit):
        dp_audit({call}, epsilon=1.0, seconds=0.1)
    """)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["dp_audit: x and y must differ, got *"])


HIDDEN = """
    import numpy as np

    class Model:
        def __init__(self, secret):
            self.secret = secret
        def __repr__(self):
            return "Model()"

    def wide(x):
        return np.append(np.zeros(70_000), x)

    def long(x):
        return f"{random.random()} {x}"
"""


@pytest.mark.parametrize(
    ("mechanism", "named"),
    [
        ("wide", "4465 places of the output beyond the first 65536"),
        ("Model", "what the repr of *Model does not show"),
        ("long", "what stands inside texts that hardly ever come again, at 1 place"),
    ],
)
def test_what_is_not_looked_at_is_named_and_nothing_is_promised_of_it(
    suite, mechanism, named
):
    """That the whole is compared gives the first away; it is noise that hides it."""
    done = suite(
        f"""{HIDDEN}
    def test_it(dp_audit):
        dp_audit(
            {mechanism}, pairs=(0, 1), epsilon=1.0, calls=60, allow_unseen=True
        )

    def test_must(dp_audit):
        dp_audit(
            {mechanism}, pairs=(0, 1), epsilon=1.0, calls=60, allow_unseen=True,
            must_catch=4.0,
        )
    """,
        "-rA",
    )
    done.stdout.fnmatch_lines_random(
        [
            f"Not checked: other pairs of values than (0, 1); {named}.",
            "A planted leak * in one place of the output that was checked:*",
            f"dp_audit: a leak of epsilon = 4 must be caught, and could*: {named};*",
        ]
    )


def test_an_output_with_too_many_places_is_refused_unless_that_is_allowed(suite):
    done = suite(f"""{HIDDEN}
    def test_it(dp_audit):
        dp_audit(wide, pairs=(0, 1), epsilon=1.0)
    """)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        ["dp_audit: the output has 70001 places and 65536 are read*allow_unseen*"]
    )


def test_an_audit_that_was_not_counted_is_refused(suite):
    done = suite("""
    def test_it(request):
        request.getfixturevalue("dp_audit")
    """)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["dp_audit must be an argument of the test*"])


def test_an_audit_through_another_fixture_is_counted(suite, pytester):
    done = suite(
        """
    @pytest.fixture
    def one_percent(dp_audit):
        return lambda mechanism: dp_audit(
            mechanism, pairs=(0, 1), epsilon=1.0, calls=300
        )

    def test_it(one_percent):
        one_percent(honest)
    """,
        "--dp-audit-report=out",
    )
    done.assert_outcomes(passed=1)
    assert {r.design.alpha for r in results(pytester).values()} == {0.001}


def test_an_exception_is_an_error_with_a_note(suite):
    done = suite("""
    def fragile(bit):
        if bit:
            raise RuntimeError("no such bit")
        return honest(bit)

    def test_error(dp_audit):
        dp_audit(fragile, pairs=(0, 1), epsilon=1.0, calls=300)

    def test_output(dp_audit):
        dp_audit(
            fragile, pairs=(0, 1), epsilon=1.0, calls=300, raising=[RuntimeError]
        )
    """)
    done.assert_outcomes(failed=2)
    done.stdout.fnmatch_lines(
        [
            "E * RuntimeError: no such bit",
            "E * dp_audit called the mechanism with 1; *raising=(RuntimeError,)",
            "fragile: Claim refuted. Epsilon is at least *",
        ]
    )


def test_a_record_of_a_data_set_is_audited_classically(suite, pytester):
    done = suite(
        """
    def total(records):
        return sum(honest(record) for record in records)

    def test_it(dp_audit):
        dp_audit(
            total, data=[1, 0, 1], index=1, pairs=(0, 1), epsilon=1.0, calls=300
        )
    """,
        "--dp-audit-report=out",
        "-v",
    )
    done.assert_outcomes(passed=1)
    (result,) = results(pytester).values()
    assert result.bound.method == "separate"
    assert result.not_exercised == (
        "other data, places and pairs of records than (0, 1) at 1",
    )
    done.stdout.fnmatch_lines(
        ["*audits of differential privacy*", "test_suite.py::test_it: *. Epsilon is*"]
    )


def test_the_configuration_file_sets_alpha_and_time(suite, pytester):
    pytester.makeini("[pytest]\ndp_audit_alpha = 0.04\ndp_audit_seconds = 0.01")
    done = suite(
        """
    def test_it(dp_audit):
        result = dp_audit(honest, pairs=(0, 1), epsilon=2.0)
        assert result.calls < 20_000
    """,
        "--dp-audit-report=out",
    )
    done.assert_outcomes(passed=1)
    assert {r.design.alpha for r in results(pytester).values()} == {0.04}


@pytest.mark.parametrize(
    "option",
    ["--dp-audit-alpha=0.95", "--dp-audit-seconds=0", "--dp-audit-seed=12"],
)
def test_an_option_without_meaning_is_a_usage_error(suite, option):
    done = suite("", option, seed="-v")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["ERROR: *dp?audit?*"])


def test_the_marker_must_be_a_number(suite):
    done = suite("""
    @pytest.mark.dp_audits("many")
    def test_it(dp_audit):
        pass
    """)
    assert done.ret == pytest.ExitCode.USAGE_ERROR


def test_loading_the_plugin_imports_nothing_heavy():
    code = "import sys, _dpaudit_pytest; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", f"import json; {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert not {"numpy", "scipy", "dpaudit"} & set(json.loads(done.stdout))


def test_claims_of_every_kind(suite):
    done = suite("""
    import numpy as np
    from dpaudit import Adjacency, RenyiDP

    def noisy(value, rng):
        return round(64 * (value + rng.normal() * 0.5))

    def test_rho(dp_audit):
        dp_audit(noisy, pairs=(0, 1), rho=0.5, calls=2000)

    def test_mu(dp_audit):
        dp_audit(noisy, pairs=(0, 1), mu=1.0, calls=2000)

    def test_delta(dp_audit):
        dp_audit(noisy, pairs=(0, 1), epsilon=1.0, delta=0.13, calls=2000)

    def test_renyi(dp_audit):
        claim = RenyiDP(
            orders=np.array([2.0, 4.0]),
            epsilons=np.array([4.0, 8.0]),
            adjacency=Adjacency.REPLACE_ONE,
        )
        dp_audit(noisy, pairs=(0, 1), claim=claim, calls=2000)
    """)
    done.assert_outcomes(passed=1, failed=3)
    done.stdout.fnmatch_lines(["*(method whole claim)*"])


@pytest.mark.parametrize(
    "claim", ["", "epsilon=1.0, rho=1.0", "delta=0.1", "mu=1.0, delta=0.1"]
)
def test_one_claim_is_asked_for(suite, claim):
    done = suite(f"""
    def test_it(dp_audit):
        dp_audit(honest, pairs=(0, 1), {claim})
    """)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*pass one claim: epsilon=*"])


def test_described_inputs_need_no_pair(suite):
    done = suite("""
    from dpaudit.testing import Integers, Rows

    def total(values, rng):
        kept = [1000 if v == 9 else min(v, 1) for v in values]
        return sum(kept) + int(rng.geometric(0.64)) - int(rng.geometric(0.64))

    def test_it(dp_audit):
        inputs = Rows(columns=Integers(low=0, high=9), max_length=8)
        dp_audit(total, pairs=inputs, epsilon=1.03, calls=40_000)
    """)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        ["total: Claim refuted*", "E-value *", "*The inputs:*", "x = *9*", "y = *"]
    )


NIGHTLY = """
    def small(bit):
        return bit if random.random() < 1 / (1 + math.exp(-2.0)) else 1 - bit

    def test_small(dp_audit):
        dp_audit(small, pairs=(0, 1), epsilon=1.0, calls=100)

    def test_other(dp_audit):
        dp_audit(honest, pairs=(0, 1), epsilon=1.0, calls=100)
"""


def test_evidence_is_kept_from_run_to_run(suite):
    """The coins are new in every run; 100 calls are learned from, the next are bet."""
    outcomes = []
    for _ in range(20):
        done = suite(NIGHTLY, "--dp-audit-state=kept", seed="-q")
        outcomes.append(done.parseoutcomes())
        if "failed" in outcomes[-1]:
            break
    assert outcomes[0] == {"passed": 2}
    assert outcomes[-1] == {"passed": 1, "failed": 1}
    done.stdout.fnmatch_lines(
        [
            "dp_audit: evidence is kept in *kept; alpha = 0.001 for each test over *",
            "small: Claim refuted*",
            "Evidence of * runs and * calls in epoch 1, at level 0.000608 of 0.001 *",
        ]
    )
    shown = command("nightly", "kept")
    assert shown.exit_code == 1
    assert "REFUTED" in shown.stdout
    assert "not refuted" in shown.stdout
    name = next(n for n in shown.stdout.splitlines() if "test_small" in n).strip()
    again = command("nightly", "kept", "--reset", name, "--why", "1.2")
    assert again.exit_code == 0
    assert "it was reset: 1.2" in again.stdout
    after = json.loads(command("nightly", "kept", "--json").stdout)
    assert [each["refuted"] for each in after["tests"][name]] == [True, False]
    repeated = suite(NIGHTLY, "--dp-audit-state=kept")
    repeated.stderr.fnmatch_lines(["*needs new coins in every run*"])


def command(*words):
    return CliRunner().invoke(app, list(words))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nightly", "nowhere"], "there is no folder"),
        (["nightly", "."], "no evidence of nightly tests"),
        (["nightly", ".", "--reset", "it"], "takes the name of a test"),
    ],
)
def test_a_folder_without_evidence_is_refused(tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    done = command(*words)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())
