"""``dpaudit bound`` judges the game that was played, and tests claims by it.

Counts and weights come from games of two kinds: all guesses at once, or coins revealed
in between. What delta costs is proved to be less in the first kind only. And whatever
method is printed, a claim is tested by that one.
"""

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from dpaudit import AdaptiveClasses, AdaptiveCount, ApproxDP, Coins, Design, Key
from dpaudit.bounds import Counts
from dpaudit.bounds.adaptive import AdaptiveBound
from dpaudit.bounds.methods import METHODS
from dpaudit.bounds.weighted import AdaptiveWeightedBound
from dpaudit.cli import app
from dpaudit.game import Referee

CLAIM = ApproxDP(epsilon=1.0, delta=1e-5)
KEY = Key(bytes(range(32)))
COUNTS = ["--canaries=100000", "--guesses=1510", "--correct=1439"]
FEW = ["--canaries=2000", "--guesses=200", "--correct=180", "--delta=1e-4"]


def run(*arguments, stdin=None):
    return CliRunner().invoke(app, ["bound", *arguments], input=stdin)


def played(rules, right, *, stakes=None, canaries=30_000):
    """Return the reading of an adaptive game in which so many guesses were right."""
    referee = Referee(Design(canaries=canaries, rules=rules, claim=CLAIM), KEY)
    truth = 2 * Coins(key=KEY, count=canaries).bits().astype(int) - 1
    guesses = np.where(right, truth[: len(right)], -truth[: len(right)])
    for turn in np.array_split(np.arange(len(right)), 10):
        referee.submit(turn, guesses[turn], None if stakes is None else stakes[turn])
    return referee.close().reading()


def test_adaptive_weights_from_a_file_are_bounded_by_what_is_proved_for_them(tmp_path):
    """The price for guesses made at once gave 1.600 here, as tier A."""
    rules = AdaptiveClasses(weights=(2.0, 1.0), guesses=(500, 500))
    right = np.r_[np.arange(500) < 450, np.arange(500) < 380]
    reading = played(rules, right, stakes=np.repeat([2.0, 1.0], 500))
    assert (sum(reading.correct), reading.guesses) == (830, (500, 500))
    file = tmp_path / "reading.json"
    file.write_text(reading.to_json())
    found = json.loads(run(f"--reading={file}", "--delta=1e-5", "--json").stdout)
    proved = AdaptiveWeightedBound().epsilon_lower(reading, delta=1e-5, alpha=0.05)
    assert found["epsilon_lower"] == proved.epsilon_lower == 0.0
    # Up to ln 5 delta alone costs more than alpha: 30,000 * 1e-5 / (1 + 5) = 0.05.
    assert found["bounds"][0]["method"] == "slots"


def test_adaptive_counts_from_a_file_are_bounded_and_tested_by_their_own_bound():
    reading = played(AdaptiveCount(guesses=1510), np.arange(1510) < 1439)
    text = reading.to_json()
    arguments = ["--reading=-", "--delta=1e-5", "--json"]
    found = json.loads(run(*arguments, stdin=text).stdout)
    proved = (
        AdaptiveBound().epsilon_lower(reading, delta=1e-5, alpha=0.05).epsilon_lower
    )
    assert found["epsilon_lower"] == proved
    above = run(*arguments, f"--epsilon={proved + 0.01}", stdin=text)
    below = run(*arguments, f"--epsilon={proved - 0.01}", stdin=text)
    assert (above.exit_code, below.exit_code) == (0, 1)


@pytest.mark.parametrize("method", ["exact", "pure", "steinke", "separate", "gdp"])
def test_adaptive_counts_are_refused_where_guesses_at_once_are_meant(method):
    reading = played(AdaptiveCount(guesses=100), np.ones(100, bool))
    done = run("--reading=-", f"--method={method}", stdin=reading.to_json())
    assert done.exit_code == 4
    assert f"the {method} bound is proved for guesses made all at once" in done.stderr
    assert done.stdout == ""


def test_of_adaptive_counts_only_what_is_proved_is_compared():
    reading = played(AdaptiveCount(guesses=100), np.ones(100, bool))
    done = run("--reading=-", "--compare", stdin=reading.to_json())
    head, row, foot = done.stdout.splitlines()
    assert head.startswith("method")
    assert row.startswith("adaptive  A ")
    assert "with every guess correct the adaptive bound would be" in foot


@pytest.mark.parametrize(
    ("method", "delta"),
    [
        ("exact", 1e-5),
        ("pure", 0.0),
        ("adaptive", 1e-5),
        ("steinke", 1e-5),
        ("separate", 1e-5),
        ("separate", 0.0),
        (None, 1e-5),
    ],
)
def test_a_claim_is_tested_by_the_method_that_gives_the_bound(method, delta):
    """From well below the bound to well above, in steps finer than methods differ."""
    chosen = [] if method is None else [f"--method={method}"]
    arguments = [*COUNTS, f"--delta={delta}", *chosen, "--json"]
    printed = json.loads(run(*arguments).stdout)
    bound = METHODS["exact" if method is None else method]
    lower = printed["epsilon_lower"]
    reading = _counts(printed["reading"])
    for epsilon in (lower - 0.1, lower - 1e-4, lower + 1e-4, lower + 0.02, lower + 0.1):
        done = run(*arguments, f"--epsilon={epsilon}")
        claim = json.loads(done.stdout)["claim"]
        p_value = math.exp(bound.log_p_value(reading, epsilon=epsilon, delta=delta))
        assert claim["p_value"] == pytest.approx(p_value, rel=1e-12)
        assert claim["refuted"] is (p_value <= 0.05) is (epsilon < lower)
        assert done.exit_code == int(claim["refuted"])


def _counts(plain):
    names = ("canaries", "guesses", "correct")
    given = {name: plain[name] for name in names}
    if plain.get("adaptive"):
        given["adaptive"] = True
    return Counts(**given)


def test_the_gaussian_family_tests_no_claim_of_epsilon():
    for more in ([], ["--compare"]):
        done = run(*FEW, "--method=gdp", "--epsilon=2", *more)
        assert done.exit_code == 2
        assert "tests no (epsilon, delta) claim; leave out --epsilon" in done.stderr
    assert run(*FEW, "--method=gdp").exit_code == 0


@pytest.mark.parametrize("method", ["exact", "adaptive", "steinke"])
def test_beside_others_it_is_said_which_method_tested_the_claim(method):
    done = run(*FEW, "--compare", f"--method={method}", "--epsilon=1.77")
    first = done.stdout.splitlines()[0]
    assert first.endswith(f", by the {method} method.")
    assert (" is refuted " in first) is (method == "exact")
    table = {line.split()[0] for line in done.stdout.splitlines()[2:-1]}
    assert table == set(METHODS) - {"pure"}


def test_counts_that_do_not_say_of_which_game_they_are_are_not_bounded():
    plain = json.loads(Counts(canaries=9, guesses=5, correct=4).to_json())
    del plain["adaptive"]
    done = run("--reading=-", stdin=json.dumps(plain))
    assert done.exit_code == 2
    assert "lacks the field 'adaptive'" in done.stderr
