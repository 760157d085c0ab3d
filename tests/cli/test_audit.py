"""``dpaudit audit`` and ``dpaudit register``, as a user runs them."""

import json
import math
import stat
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from dpaudit import Coins, Key, Result
from dpaudit.cli import _shared
from dpaudit.errors import Remedy
from dpaudit.evidence import Registration
from dpaudit.game import Commitment

CLAIM = ["--epsilon=1", "--delta=0"]


def by_hand(bits, scores, guesses):
    """Count right guesses: the highest half are said to be in, the lowest out."""
    ranked = [bit for _, bit in sorted(zip(scores, bits, strict=True))]
    half = guesses // 2
    return sum(ranked[-half:]) + half - sum(ranked[:half])


def tail(right, guesses, epsilon):
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    return sum(
        math.comb(guesses, k) * p**k * (1 - p) ** (guesses - k)
        for k in range(right, guesses + 1)
    )


@pytest.fixture
def table(tmp_path):
    """A table of 300 canaries, as a CSV file; returns bits and scores."""
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 2, 300)
    scores = rng.standard_normal(300) + 1.5 * bits
    rows = zip(range(300), bits.tolist(), scores.tolist(), strict=True)
    lines = [f"canary-{i},{bit},{score!r}" for i, bit, score in rows]
    (tmp_path / "scores.csv").write_text("\n".join(["id,bit,score", *lines]))
    return bits, scores


# The claim from options, the coins from the table.


def test_guesses_and_p_value_are_those_done_by_hand(dpaudit, schema, table):
    said = dpaudit("audit", "scores.csv", *CLAIM, "--guesses=40", "--json", code=1)
    found = schema(said.stdout, "audit")
    right = by_hand(*table, 40)
    assert (found["canaries"], found["guesses"], found["correct"]) == (300, 40, right)
    p_value = found["claim_test"]["p_value"]
    assert p_value == pytest.approx(tail(right, 40, 1.0), rel=1e-9)
    assert found["refuted"] is True
    # The largest epsilon that is rejected.
    assert tail(right, 40, found["epsilon_lower"] - 1e-6) < 0.05
    assert tail(right, 40, found["epsilon_lower"] + 1e-6) > 0.05
    assert (found["bound"]["method"], found["bound"]["tier"]) == ("exact", "A")


@pytest.mark.usefixtures("table")
def test_the_text_says_what_cannot_be_seen(dpaudit):
    said = dpaudit(
        "audit",
        "scores.csv",
        *CLAIM,
        "--observer=final-model",
        "--not-exercised=the sampler",
        "--not-exercised=clipping",
        code=1,
    ).stdout
    assert said.startswith("CLAIM REFUTED\nClaimed ε ≤ ")
    assert "Not exercised: the sampler, clipping." in said
    assert "sees only the final model" in said
    assert "only stated by" in said
    assert "chosen without knowledge of the coin flips" in " ".join(said.split())
    assert "score lower" not in said


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    ("epsilon", "code", "word"),
    [
        ("0.2", 1, "CLAIM REFUTED"),
        ("2.5", 0, "NO VIOLATION DETECTED"),
        ("6", 3, "INCONCLUSIVE"),
    ],
)
def test_the_exit_code_is_that_of_the_verdict(dpaudit, epsilon, code, word):
    claim = [f"--epsilon={epsilon}", "--delta=1e-5"]
    said = dpaudit("audit", "scores.csv", *claim, code=code).stdout
    assert said.startswith(word)


@pytest.mark.usefixtures("table")
def test_alpha_is_taken(dpaudit, schema):
    said = dpaudit("audit", "scores.csv", *CLAIM, "--alpha=0.2", "--json", code=1)
    assert schema(said.stdout, "audit")["claim_test"]["alpha"] == 0.2


@pytest.mark.usefixtures("table")
def test_scores_that_are_turned_round_are_noticed_and_not_turned_back(dpaudit):
    lines = Path("scores.csv").read_text().splitlines()
    turned = [lines[0]]
    for line in lines[1:]:
        name, bit, score = line.split(",")
        turned.append(f"{name},{bit},{-float(score)!r}")
    Path("scores.csv").write_text("\n".join(turned))
    said = dpaudit("audit", "scores.csv", *CLAIM, code=3).stdout
    assert said.startswith("INCONCLUSIVE\n")
    assert "No effect of any canary was detected" in said
    assert "included canaries score lower than excluded ones" in said
    assert "would double the false-positive rate" in said
    assert "Lower bound ε ≥ 0.00 " in said


# A registered design, the coins from its key.


def test_register_commits_to_design_and_key_and_shows_no_key(dpaudit):
    said = dpaudit(
        "register",
        "--canaries=50",
        "--epsilon=2",
        "--delta=1e-5",
        "--key=audit.key",
        "--coins=coins.csv",
        "--observer=all-iterates",
        "--alpha=0.01",
    ).stdout
    registration = Registration.from_json(Path("design.json").read_text())
    key, design = Key.read("audit.key"), registration.design
    assert registration.commitment == Commitment.to(key, design)
    assert registration.commitment.sha256 in said
    assert (design.canaries, design.claim.epsilon, design.alpha) == (50, 2.0, 0.01)
    assert design.threat_model.name == "ALL_ITERATES"
    assert key.secret.hex() not in said + Path("design.json").read_text()
    for secret in ("audit.key", "coins.csv"):
        assert stat.S_IMODE(Path(secret).stat().st_mode) == 0o600
    bits = Coins(key=key, count=50).bits().tolist()
    listed = Path("coins.csv").read_text().splitlines()
    assert listed == ["id,bit", *(f"{i},{bit}" for i, bit in enumerate(bits))]


def test_two_registrations_throw_different_coins(dpaudit, schema):
    options = ["--canaries=50", "--epsilon=2", "--delta=1e-5", "--json"]
    one, other = (
        schema(
            dpaudit(
                "register", *options, f"--key={i}.key", f"--design={i}.json"
            ).stdout,
            "registration",
        )
        for i in range(2)
    )
    assert one["design"] == other["design"]
    assert one["commitment"] != other["commitment"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--key=k", "--design=there.json"], "there.json is there already"),
        (["--key=there"], "name a new file with --key"),
        (["--key=k", "--coins=there.csv"], "name a new file with --coins"),
        (["--key=design.json"], "must be different files"),
        (["--key=k", "--alpha=0.95"], "for confidence 0.95 pass 0.05"),
        (["--key=k", "--guesses=51"], "cannot guess guesses=51 of canaries=50"),
        (["--key=there/k"], "there/k cannot be written"),
    ],
)
def test_register_overwrites_nothing_and_writes_nothing_if_it_fails(
    dpaudit, options, said
):
    there = [Path(f"there{suffix}") for suffix in ("", ".csv", ".json")]
    for path in there:
        path.write_text("precious")
    claim = ["--canaries=50", "--epsilon=2", "--delta=1e-5"]
    done = dpaudit("register", *claim, *options, code=2)
    assert said in done.stderr
    assert done.stderr.startswith("dpaudit register: ")
    assert sorted(Path().iterdir()) == there
    assert {path.read_text() for path in there} == {"precious"}


def test_register_binds_the_program_and_a_verifiers_nonce(dpaudit):
    Path("model.bin").write_bytes(b"weights")
    digest = sha256(b"weights").hexdigest()
    claim = ["--canaries=100", "--epsilon=1", "--delta=0", "--guesses=100"]
    options = ["--program=model.bin", "--nonce=from Ann", "--key=k"]
    said = dpaudit("register", *claim, *options).stdout
    assert f"Program: {digest}\nNonce: from Ann\n" in said
    plain = json.loads(Path("design.json").read_text())
    setting = plain["design"]["setting"]
    assert setting == {"program_sha256": digest, "nonce": "from Ann"}
    design = json.dumps(plain["design"], sort_keys=True, separators=(",", ":"))
    message = b"dpaudit commitment 1" + Key.read("k").secret + design.encode()
    assert plain["commitment"]["sha256"] == sha256(message).hexdigest()


@pytest.mark.parametrize("guesses", [["--guesses=20"], []])
def test_register_warns_of_a_design_that_cannot_refute_its_claim(dpaudit, guesses):
    """Of 20 guesses about (9, 0)-DP all are right with chance 0.998."""
    claim = ["--canaries=20", "--delta=0", *guesses]
    weak = dpaudit("register", *claim, "--epsilon=9", "--key=a", "--design=a.json")
    assert "Note: this design cannot refute its claim" in weak.stdout
    fine = dpaudit("register", *claim, "--epsilon=0.1", "--key=b", "--design=b.json")
    assert "cannot refute" not in fine.stdout


def test_with_design_and_key_coins_are_derived_by_id(dpaudit, schema, registered):
    _, bits, scores = registered
    said = dpaudit(
        "audit",
        "scores.npz",
        "--design=design.json",
        "--key=audit.key",
        "--json",
        "--save=result.json",
        "--evidence=evidence.json",
        code=1,
    )
    found = schema(said.stdout, "audit")
    assert found["correct"] == by_hand(bits, scores, 60)
    assert found["notes"] == []
    registration = Registration.from_json(Path("design.json").read_text())
    assert found["commitment"] == registration.commitment.sha256
    result = Result.from_json(Path("result.json").read_text())
    assert result.commitment == registration.commitment
    assert str(result) == found["text"]


def test_a_table_whose_bits_are_not_the_key_s_coins_is_void(dpaudit, registered):
    ids, bits, scores = registered
    good = np.array(bits)
    np.savez("scores.npz", id=ids, bit=good, score=scores)
    options = ["--design=design.json", "--key=audit.key"]
    dpaudit("audit", "scores.npz", *options, code=1)
    bad = good.copy()
    bad[[4, 9]] ^= 1
    np.savez("scores.npz", id=ids, bit=bad, score=scores)
    said = dpaudit("audit", "scores.npz", *options, code=4).stderr
    assert (
        f"2 of 400 bits are not the key's coins (the first in row 5, id {ids[4]}"
        in said
    )


def test_ties_are_decided_by_the_key(dpaudit, schema, registered):
    ids, _, scores = registered
    np.savez("ties.npz", id=ids, score=np.round(scores))
    options = ["--design=design.json", "--key=audit.key", "--json"]
    one, two = (
        schema(dpaudit("audit", "ties.npz", *options, code=1).stdout, "audit")
        for _ in range(2)
    )
    assert one == two


@pytest.mark.usefixtures("registered")
def test_another_key_is_refused(dpaudit):
    Key.generate().write("other.key")
    said = dpaudit(
        "audit", "scores.npz", "--design=design.json", "--key=other.key", code=4
    ).stderr
    assert "is not the key that the design was registered with" in said


def test_a_design_without_a_commitment_takes_the_bits_of_the_table(
    dpaudit, schema, registered
):
    ids, bits, scores = registered
    registration = Registration.from_json(Path("design.json").read_text())
    Path("bare.json").write_text(registration.design.to_json())
    np.savez("bits.npz", id=ids, bit=bits, score=scores)
    said = dpaudit("audit", "bits.npz", "--design=bare.json", "--json", code=1)
    found = schema(said.stdout, "audit")
    assert found["commitment"] is None
    assert found["correct"] == by_hand(bits, scores, 60)


# Lists.


def test_lists_in_two_files_or_in_one_say_the_same(dpaudit, schema, table):
    bits, scores = table
    np.save("in.npy", scores[bits == 1])
    Path("out.csv").write_text("\n".join(map(repr, scores[bits == 0].tolist())))
    np.savez("both.npz", in_scores=scores[bits == 1], out_scores=scores[bits == 0])
    options = [*CLAIM, "--guesses=40", "--json"]
    two = dpaudit("audit", "--in=in.npy", "--out=out.csv", *options, code=1).stdout
    one = dpaudit("audit", "both.npz", *options, code=1).stdout
    assert one == two
    found = schema(one, "audit")
    assert found["correct"] == by_hand(bits, scores, 40)
    assert "lists without ids cannot show" in found["notes"][0]


def test_lists_with_a_key_carry_its_commitment(dpaudit, schema, registered):
    _, bits, scores = registered
    np.savez("both.npz", in_scores=scores[bits == 1], out_scores=scores[bits == 0])
    options = ["--design=design.json", "--key=audit.key", "--json"]
    found = schema(dpaudit("audit", "both.npz", *options, code=1).stdout, "audit")
    assert found["commitment"] is not None
    assert len(found["notes"]) == 1
    np.savez("both.npz", in_scores=scores[bits == 0], out_scores=scores[bits == 1])
    said = dpaudit("audit", "both.npz", *options, code=4).stderr
    assert "not the scores of the run that was registered" in said


def test_lists_of_one_length_need_a_word(dpaudit):
    rng = np.random.default_rng(0)
    np.savez(
        "both.npz",
        in_scores=rng.standard_normal(50),
        out_scores=rng.standard_normal(50),
    )
    said = dpaudit("audit", "both.npz", *CLAIM, code=4).stderr
    assert "exactly half" in said
    assert "give --coins-were-independent" in said
    dpaudit("audit", "both.npz", *CLAIM, "--coins-were-independent", code=3)


# Misuse.


@pytest.mark.usefixtures("table")
@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["scores.csv"], "give --epsilon and --delta (0 for pure privacy)"),
        (["scores.csv", "--epsilon=1"], "give --epsilon and --delta"),
        ([*CLAIM], "give either a file of scores, or --in and --out"),
        (["scores.csv", "--in=a.npy", *CLAIM], "give either a file of scores"),
        (["--in=a.npy", *CLAIM], "give either a file of scores"),
        (["none.csv", *CLAIM], "there is no file none.csv"),
        (["scores.csv", "--key=k", *CLAIM], "--key needs the --design"),
        (["scores.csv", "--design=d.json", "--alpha=0.1"], "--alpha is fixed by the"),
        (["scores.csv", "--design=d.json", "--tie-seed=1"], "--tie-seed is fixed by"),
        (["scores.csv", "--design=d.json"], "cannot read d.json"),
        (["scores.csv", "--design=scores.csv"], "scores.csv: not JSON"),
        (["scores.csv", *CLAIM, "--alpha=0.95"], "for confidence 0.95 pass 0.05"),
        (["scores.csv", *CLAIM, "--guesses=999"], "cannot guess guesses=999"),
        (["scores.csv", *CLAIM, "--tie-seed=-1"], "--tie-seed must be a whole number"),
        (["scores.csv", *CLAIM, "--save=/dev/null/x.json"], "cannot be written"),
        (
            ["nobits.csv", *CLAIM],
            "has no column 'bit', so the coins must come from a k",
        ),
    ],
)
def test_misuse_exits_with_2_and_advice(dpaudit, arguments, advice):
    Path("nobits.csv").write_text("id,score\n1,0.5\n")
    done = dpaudit("audit", *arguments, code=2)
    assert done.stderr.startswith("dpaudit audit: ")
    assert advice in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("rows", "advice"),
    [("1,1,0.5\n1,1,0.25\n3,0,1\n4,1,7\n", "an id appears twice")],
)
def test_what_would_be_void_exits_with_4_and_advice(dpaudit, rows, advice):
    Path("scores.csv").write_text(f"id,bit,score\n{rows}")
    done = dpaudit("audit", "scores.csv", *CLAIM, code=4)
    assert done.stderr.startswith("dpaudit audit: invalid run: ")
    assert advice in done.stderr


def test_ties_without_a_seed_are_broken_against_the_auditor(dpaudit):
    rows = "1,1,0.5\n2,0,0.5\n3,0,1\n4,1,7\n5,1,0.1\n"
    Path("scores.csv").write_text(f"id,bit,score\n{rows}")
    claim = [*CLAIM, "--coins-were-independent"]
    said = dpaudit("audit", "scores.csv", *claim, "--verbose", code=3).stdout
    said = " ".join(said.split())
    assert "ties decided 2 of 5 guesses, all against the auditor; next" in said


def test_ties_are_decided_by_the_seed(dpaudit):
    lines = [f"{i},{int(i % 3 == 0)},{i % 2}" for i in range(40)]
    Path("ties.csv").write_text("\n".join(["id,bit,score", *lines]))
    options = ["ties.csv", *CLAIM, "--guesses=10", "--json"]
    audit = partial(dpaudit, "audit", code=3)
    seen = {
        json.loads(audit(*options, f"--tie-seed={seed}").stdout)["correct"]
        for seed in (1, 1, 2, 3, 4)
    }
    assert len(seen) > 1
    one, two = (audit(*options, "--tie-seed=1").stdout for _ in range(2))
    assert one == two


def test_every_advice_of_the_library_has_words_on_the_command_line():
    words = _shared._REMEDIES
    assert set(words) == set(Remedy)
    assert all("--" in said for said in words.values())


def test_columns_are_named_by_options_and_evidence_keeps_the_names(dpaudit):
    """A folder of .csv files, with ties that nothing decides."""
    rng = np.random.default_rng(2)
    bits = rng.integers(0, 2, 400)
    scores = (2 * bits + rng.normal(size=400)).round(2)
    rows = [f"r{i},{b},{s}" for i, (b, s) in enumerate(zip(bits, scores, strict=True))]
    Path("parts").mkdir()
    for i in (0, 1):
        text = "\n".join(["sample,member,signal", *rows[i::2]])
        Path(f"parts/{i}.csv").write_text(text)
    named = ["--id=sample", "--included=member", "--score=signal"]
    claim = ["--epsilon=8", "--delta=0"]
    options = [*named, *claim, "--evidence=e.json", "--save=r.json"]
    dpaudit("audit", "parts", *options, code=None)
    dpaudit("verify", "e.json", "--files=parts", code=None)
    said = dpaudit("verify", "e.json", "--files=parts", code=None).stdout
    assert "it is that of the score files and the coins stated in them" in said
    files = ["--scores=parts/0.csv", "--scores=parts/1.csv"]
    dpaudit("evidence", "r.json", *files, *named, "--output=again.json")
    first, again = (json.loads(Path(f).read_text()) for f in ("e.json", "again.json"))
    assert first == again
    said = dpaudit("audit", "parts", *claim, code=2).stderr
    assert "there is no column 'id'" in said


def test_a_random_half_is_audited_from_lists_and_tables_alike(dpaudit):
    """Said to be one; its evidence is verified; what is not a half is refused."""
    rng = np.random.default_rng(5)
    half = rng.permutation(np.arange(1000) % 2)
    scores = half * 2 + rng.normal(size=1000)
    np.savez("lists.npz", in_scores=scores[half == 1], out_scores=scores[half == 0])
    np.savez("table.npz", id=np.arange(1000), bit=half, score=scores)
    claim = ["--epsilon=0.5", "--delta=1e-5"]
    said = dpaudit("audit", "lists.npz", *claim, code=4).stderr
    assert "`dpaudit audit --random-half`" in said
    assert "Next time let a coin of its own decide on each canary" in said
    found = []
    for file in ("lists.npz", "table.npz"):
        done = dpaudit("audit", file, *claim, "--random-half", "--json", code=1)
        found.append(json.loads(done.stdout))
        assert "drawn uniformly at random" in found[-1]["notes"][0]
    assert found[0]["bound"] == found[1]["bound"]
    assert found[0]["bound"]["method"] == "hypergeometric"
    files = ["--evidence=e.json", "--save=r.json", "--report=r.html"]
    dpaudit("audit", "table.npz", *claim, "--random-half", *files, code=1)
    said = dpaudit("verify", "e.json", "--files=.", code=None).stdout
    assert "it is that of the score files and the coins stated in them" in said
    dpaudit("explain", "r.json", code=None)
    both = ["--random-half", "--coins-were-independent"]
    assert (
        "cannot be both" in dpaudit("audit", "lists.npz", *claim, *both, code=4).stderr
    )
    np.savez("odd.npz", in_scores=scores[:400], out_scores=scores[400:900])
    said = dpaudit("audit", "odd.npz", *claim, "--random-half", code=4).stderr
    assert "400 of 900 canaries were included, and a random half" in said
