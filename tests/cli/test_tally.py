"""``dpaudit audit DIRECTORY``, ``tally`` and ``merge``; needs the extra ``tables``."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from dpaudit import Coins, Design, Key, OneRun, PureDP, Result
from dpaudit.cli import app
from dpaudit.cli.tally import _check_key
from dpaudit.errors import InvalidRunError
from dpaudit.evidence import Registration
from dpaudit.reporting import live
from dpaudit.tables import tally as tally_module
from dpaudit.tables.tally import Shard, tally_scores
from dpaudit.tables.tally_json import tally_from_json

N = 900
CLAIM = ["--epsilon=1", "--delta=0"]
KEYED = ["--design=design.json", "--key=audit.key"]


def write(path, **columns):
    Path(path).parent.mkdir(exist_ok=True)
    parquet.write_table(pa.table(columns), path)


@pytest.fixture
def table(dpaudit):  # noqa: ARG001 (in an empty folder)
    """Three files of a run that leaked, ids in no order; returns bits and scores."""
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 2, N)
    scores = rng.standard_normal(N) + 1.5 * bits
    for i, rows in enumerate(np.split(rng.permutation(N), 3)):
        write(f"scores/{i}.parquet", id=rows, bit=bits[rows], score=scores[rows])
    return bits, scores


@pytest.fixture
def keyed(dpaudit, fixed_keys):  # noqa: ARG001 (so that nothing is left to chance)
    """A registered audit of a run that leaked, in three files of id and score."""
    dpaudit(
        "register",
        f"--canaries={N}",
        "--epsilon=1",
        "--delta=1e-5",
        "--key=audit.key",
    )
    rng = np.random.default_rng(6)
    bits = Coins(key=Key.read("audit.key"), count=N).bits()
    scores = (rng.standard_normal(N) + 2 * bits).round(2)  # some are equal
    for i, rows in enumerate(np.split(rng.permutation(N), [200, 201])):
        write(f"scores/{i}.parquet", id=rows, score=scores[rows])
    return bits, scores


def by_hand(bits, scores, guesses):
    ranked = bits[np.argsort(scores)]
    high, low = (guesses + 1) // 2, guesses // 2
    return int(ranked[-high:].sum() + low - ranked[:low].sum())


# A directory, judged at once.


def test_a_directory_is_audited_as_one_table(dpaudit, schema, table):
    options = [*CLAIM, "--guesses=101", "--json"]
    said = dpaudit("audit", "scores", *options, code=1)
    found = schema(said.stdout, "audit")
    assert (found["canaries"], found["guesses"]) == (N, 101)
    assert found["correct"] == by_hand(*table, 101)
    assert found["refuted"] is True
    bits, scores = table
    write("one.parquet", id=np.arange(N), bit=bits, score=scores)
    whole = json.loads(dpaudit("audit", "one.parquet", *options, code=1).stdout)
    assert whole == found


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    ("epsilon", "code", "word"),
    [("3", 0, "NO VIOLATION DETECTED"), ("9", 3, "INCONCLUSIVE")],
)
def test_the_exit_code_is_that_of_the_verdict(dpaudit, epsilon, code, word):
    said = dpaudit("audit", "scores", f"--epsilon={epsilon}", "--delta=0", code=code)
    assert said.stdout.startswith(word)
    assert "only stated by" in said.stdout
    assert "chosen without knowledge of the coin flips" in said.stdout


@pytest.mark.usefixtures("table")
def test_unchecked_ids_are_said_to_be(dpaudit):
    for path in Path("scores").iterdir():
        rows = parquet.read_table(path)
        names = pa.array([f"canary {i}" for i in rows["id"].to_pylist()])
        parquet.write_table(rows.set_column(0, "id", names), path)
    said = dpaudit("audit", "scores", *CLAIM, code=2).stderr
    assert "it holds string; ids are checked where they are whole numbers" in said
    said = dpaudit("audit", "scores", *CLAIM, "--skip-id-checks", code=1).stdout
    assert "ids were not checked" in said


def test_the_result_of_a_directory_is_written(dpaudit, table):
    dpaudit("audit", "scores", *CLAIM, "--save=result.json", code=1)
    result = Result.from_json(Path("result.json").read_text())
    assert result.design.canaries == N
    assert result.reading.right.sum() == by_hand(*table, N)


# Part by part.


@pytest.mark.usefixtures("keyed")
def test_tallies_of_all_parts_give_the_result_of_one_pass(dpaudit, schema):
    whole = dpaudit("audit", "scores", *KEYED, "--json", code=1).stdout
    for i in range(3):
        name = f"scores/{i}.parquet"
        said = dpaudit("tally", name, *KEYED, f"--save={i}.json", "--json").stdout
        assert said == Path(f"{i}.json").read_text()
        found = schema(said, "tally")
        assert found["rows"] == parquet.read_metadata(name).num_rows
        assert Key.read("audit.key").secret.hex() not in said
    names = ["2.json", "0.json", "1.json"]
    assert dpaudit("merge", *names, "--json", code=1).stdout == whole
    schema(whole, "audit")
    # And a tally of two of them.
    dpaudit("tally", "scores/1.parquet", "scores/0.parquet", *KEYED, "--save=01.json")
    said = dpaudit("merge", "01.json", "2.json", "--save=r.json", code=1)
    assert json.loads(whole)["text"] in said.stdout
    assert "Result: r.json" in said.stdout
    registered = Registration.from_json(Path("design.json").read_text())
    result = Result.from_json(Path("r.json").read_text())
    assert result.commitment == registered.commitment


def test_what_a_tally_says_of_itself(dpaudit, keyed):
    said = dpaudit("tally", "scores", *KEYED, "--save=all.json").stdout
    assert said == f"900 of 900 canaries, {keyed[0].sum()} of them included: all.json\n"


@pytest.mark.usefixtures("keyed")
def test_a_part_that_is_missing_or_there_twice_is_refused(dpaudit):
    for i in range(3):
        dpaudit("tally", f"scores/{i}.parquet", *KEYED, f"--save={i}.json")
    said = dpaudit("merge", "0.json", "2.json", code=4).stderr
    assert "899 rows for canaries=900" in said
    said = dpaudit("merge", "0.json", "1.json", "2.json", "0.json", code=4).stderr
    assert "1100 rows are more than canaries=900" in said
    # As many rows as there should be, and not the same canaries.
    rows = parquet.read_table("scores/1.parquet")
    other = pa.array(parquet.read_table("scores/0.parquet")["id"].to_pylist()[:1])
    parquet.write_table(rows.set_column(0, "id", other), "scores/1.parquet")
    dpaudit("tally", "scores/1.parquet", *KEYED, "--save=1.json")
    said = dpaudit("merge", "0.json", "1.json", "2.json", code=4).stderr
    assert "a canary is in two shards, and another in none" in said


@pytest.mark.usefixtures("keyed")
def test_tallies_of_two_audits_are_told_apart(dpaudit):
    dpaudit("tally", "scores", *KEYED, "--save=one.json")
    again = ["--design=other.json", "--key=other.key"]
    dpaudit("register", f"--canaries={N}", "--epsilon=1", "--delta=1e-5", *again)
    dpaudit("tally", "scores", *again, "--save=other-tally.json")
    said = dpaudit("merge", "one.json", "other-tally.json", code=4).stderr
    assert "the tallies belong to different audits" in said
    said = dpaudit(
        "tally", "scores", KEYED[0], again[1], "--save=x.json", code=4
    ).stderr
    assert "is not the key that the design was registered with" in said
    assert not Path("x.json").exists()


@pytest.mark.usefixtures("keyed")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["audit", "empty", *CLAIM], "empty holds no .parquet file"),
        (["audit", "nowhere", *CLAIM], "nowhere"),
        (["audit", "bare", *CLAIM], "there is no row in any file of bare"),
        (["tally", "bare", *KEYED, "--save=t.json"], "there is no row in any file"),
        (["merge", "bare/a.parquet"], "merge: cannot read bare/a.parquet: it is not"),
        (["audit", "scores", *CLAIM], "there is no column 'bit'"),
        (["audit", "scores", *KEYED, "--evidence=e.json"], "keep the tallies"),
        (["audit", "one.csv", *CLAIM, "--skip-id-checks"], "is for a directory"),
        (["tally", "scores", KEYED[0], "--save=t.json"], "give it with --key"),
        (["tally", "one.csv", *KEYED, "--save=t.json"], "expected .parquet files"),
        (["tally", "scores", "scores", *KEYED, "--save=t.json"], "is named twice"),
        (["tally", "scores", *KEYED, "--save=one.csv/t.json"], "cannot be written"),
        (["merge", "nowhere.json"], "cannot read nowhere.json"),
        (["merge", "one.csv"], "one.csv: not JSON"),
        (["merge", "design.json"], "this is a registration, where a tally is wanted"),
        (["merge"], "Missing argument"),
    ],
)
def test_what_is_misused_is_exit_code_2(dpaudit, arguments, message):
    Path("empty").mkdir()
    Path("one.csv").write_text("id,bit,score\n0,1,1\n")
    write("bare/a.parquet", id=np.arange(0), bit=np.arange(0), score=np.zeros(0))
    said = dpaudit(*arguments, code=2).stderr
    assert any(part in said for part in message.split("|")), said
    assert "Traceback" not in said
    assert not Path("t.json").exists()


def test_ties_are_broken_against_the_auditor_and_counted(dpaudit, table):
    bits, _ = table
    write("tied/a.parquet", id=np.arange(N), bit=bits, score=np.zeros(N))
    told = "all against the auditor; next time"
    done = dpaudit("audit", "tied", *CLAIM, "--verbose", code=3)
    assert told in " ".join(done.stdout.split())
    said = dpaudit("audit", "tied", *CLAIM, "--tie-seed=3", code=None).stdout
    assert "against the auditor" not in said
    design = Design(canaries=N, rules=OneRun(guesses=9), claim=PureDP(epsilon=1.0))
    Path("bare.json").write_text(design.to_json())
    dpaudit("tally", "tied", "--design=bare.json", "--save=t.json")
    said = " ".join(dpaudit("merge", "t.json", "--verbose", code=3).stdout.split())
    assert told in said


def test_exactly_half_is_taken_if_it_is_said_to_be_chance(dpaudit):
    halves = np.arange(N) % 2
    write("half/a.parquet", id=np.arange(N), bit=halves, score=np.arange(N) * 1.0)
    said = dpaudit("audit", "half", *CLAIM, code=4).stderr
    assert "give --coins-were-independent" in said
    dpaudit("audit", "half", *CLAIM, "--coins-were-independent", code=3)
    design = Design(canaries=N, rules=OneRun(guesses=9), claim=PureDP(epsilon=1.0))
    Path("bare.json").write_text(design.to_json())
    dpaudit("tally", "half", "--design=bare.json", "--save=t.json")
    assert "give --coins-were-independent" in dpaudit("merge", "t.json", code=4).stderr
    dpaudit("merge", "t.json", "--coins-were-independent", code=3)


@pytest.mark.usefixtures("keyed")
def test_a_tally_that_was_changed_is_refused_with_its_name(dpaudit):
    dpaudit("tally", "scores", *KEYED, "--save=t.json")
    plain = json.loads(Path("t.json").read_text())
    plain["ones"] += 1000
    Path("t.json").write_text(json.dumps(plain))
    said = dpaudit("merge", "t.json", code=2).stderr
    assert "t.json: " in said
    assert "ones among 900 rows" in said


# While it goes.


@pytest.mark.usefixtures("keyed")
def test_rows_are_counted_while_files_are_read(monkeypatch):
    monkeypatch.setattr(live, "LINE_SECONDS", 0.0)
    done = CliRunner().invoke(app, ["tally", "scores", *KEYED, "--save=t.json"])
    assert done.exit_code == 0
    lines = done.stderr.splitlines()
    assert lines[0].startswith("reading: 0 of 900 rows")
    assert lines[-1].startswith("reading: 900 of 900 rows")
    assert "settings" not in done.stderr


@pytest.mark.usefixtures("keyed")
@pytest.mark.parametrize("command", ["tally", "audit"])
def test_an_interrupt_leaves_nothing_behind(monkeypatch, command):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(tally_module, "_bits", interrupted)
    done = CliRunner().invoke(app, [command, "scores", *KEYED, "--save=t.json"])
    assert done.exit_code == 130
    assert "stopped" in done.stderr
    assert not Path("t.json").exists()


def test_workers_that_read_another_key_are_found_out(tmp_path):
    """As may happen where machines keep other files under the same name."""
    write(tmp_path / "a.parquet", id=np.arange(9), score=np.arange(9) * 1.0)
    design = Design(canaries=9, rules=OneRun(guesses=3), claim=PureDP(epsilon=1.0))
    keys = Key(bytes(32)), Key(bytes(range(32)))
    files = (tmp_path / "a.parquet",)
    found = tally_scores(Shard(files=files, design=design, key=keys[0]))
    _check_key(found, keys[0])
    with pytest.raises(InvalidRunError, match="the workers read another key"):
        _check_key(found, keys[1])


def test_a_saved_tally_is_read_in_python(dpaudit, keyed):
    dpaudit("tally", "scores", *KEYED, "--save=t.json")
    found = tally_from_json(Path("t.json").read_text())
    assert (found.rows, found.ones) == (N, keyed[0].sum())


@pytest.mark.usefixtures("keyed")
def test_tallies_are_held_against_what_was_registered(dpaudit):
    dpaudit("tally", "scores", *KEYED, "--save=all.json")
    dpaudit("merge", "all.json", "--design=design.json", code=1)
    another = ["--epsilon=2", "--delta=1e-5", "--key=other.key", "--design=other.json"]
    dpaudit("register", f"--canaries={N}", *another)
    done = dpaudit("merge", "all.json", "--design=other.json", code=4)
    assert "not of what other.json registered" in done.stderr


def test_a_tally_reads_columns_of_other_names(dpaudit, table):
    bits, scores = table
    write("named/a.parquet", sample=np.arange(N), member=bits, signal=scores)
    write("usual/a.parquet", id=np.arange(N), bit=bits, score=scores)
    design = Design(canaries=N, rules=OneRun(guesses=9), claim=PureDP(epsilon=1.0))
    Path("bare.json").write_text(design.to_json())
    named = ["--id=sample", "--included=member", "--score=signal"]
    dpaudit("tally", "named", "--design=bare.json", *named, "--save=one.json")
    dpaudit("tally", "usual", "--design=bare.json", "--save=two.json")
    assert Path("one.json").read_text() == Path("two.json").read_text()
