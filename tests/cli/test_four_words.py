"""One word for how an audit ended: first, and the same, wherever a result is shown.

The table is four words by every format, and four words by every command that judges.
``verdicts.txt`` beside this file lists the sentences themselves, as users read them.
"""

import json
import os
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from dpaudit import ApproxDP, Design, GaussianDP, Key, OneRun, PureDP, explain
from dpaudit.bounds import Counts, HalfCounts, judge_claim
from dpaudit.explanation import verdict
from dpaudit.game.combining import combine_runs
from dpaudit.game.coverage import Coverage, accepted_stages
from dpaudit.game.design import Commitment
from dpaudit.game.findings import Stage, canary_tested, fault, invalid
from dpaudit.game.result import TrainingRecord, effect_seen, judge
from dpaudit.game.text.findings import sentence
from dpaudit.game.transcript import Transcript
from dpaudit.reporting.model_card import model_card_section
from dpaudit.reporting.report import report_html
from dpaudit.testing.functions import FunctionResult

CODES = {
    "no violation detected": 0,
    "claim refuted": 1,
    "inconclusive": 3,
    "invalid run": 4,
}
TRAINED = {**CODES, "fault found": 5}  # only a training has coverage
FAULT = fault(
    Stage.NOISE_SCALE,
    "custom.fault",
    what="no noise is added in 'fc'",
    measured="0 times the noise stated",
    expected="1",
    cause_is="a parameter that is left out",
)
CLAIMED = PureDP(epsilon=1.0)
LOST = invalid("custom", text="no canary arrived")
# Right guesses of 100, and whether the run was spoilt. Of a claim of epsilon = 1, 95
# refute it, 70 do not, 50 show nothing; what is void would have been refuted.
RUNS = {
    "invalid run": (95, True),
    "claim refuted": (95, False),
    "inconclusive": (50, False),
    "no violation detected": (70, False),
    "fault found": (70, False),
}
GOLDEN = Path(__file__).with_name("verdicts.txt")


def audited(word, *, guesses=100, key=0, claim=CLAIMED):
    right, lost = RUNS[word]
    design = Design(canaries=200, rules=OneRun(guesses=guesses), claim=claim)
    counts = Counts(canaries=200, guesses=guesses, correct=min(right, guesses))
    seen = effect_seen(counts, design=design)
    return judge(
        counts,
        design=design,
        commitment=Commitment.to(Key(bytes([key] * 32)), design),
        sanity_checks=(LOST,) if lost else (seen,),
    )


def transcript(audit):
    n, right = audit.reading.guesses, audit.reading.correct
    return Transcript(
        design=audit.design,
        index=np.arange(n),
        guess=np.ones(n, np.int8),
        truth=np.where(np.arange(n) < right, 1, -1).astype(np.int8),
        stake=np.ones(n),
        turn=np.zeros(n, np.int64),
        uniforms=np.zeros(0),
    )


def trained(word):
    audit = audited(word, claim=ApproxDP(epsilon=1.0, delta=1e-5))
    training = TrainingRecord(
        accountant=judge_claim(GaussianDP(mu=0.5), audit.reading, alpha=0.05),
        family=None,
        transcript=transcript(audit),
        steps=10,
        evidence_share=1.0,
        coverage=Coverage.of(
            [canary_tested(Stage.NOISE_SCALE, "custom", text="as noise is")],
            [FAULT] if word == "fault found" else (),
            accepted=accepted_stages(
                ("sampling", "gradients", "clipping", "interference")
            ),
        ),
    )
    return replace(audit, training=training)


def combined(word):
    return combine_runs([audited(word, key=1), audited(word, key=2)])


def called(word):
    audit = audited(word)
    return FunctionResult(
        audit=audit,
        transcript=transcript(audit),
        guesser="values",
        calls=300,
        detectable_epsilon=1.5,
    )


WORDS = [
    *((kind, word) for kind in ("audit", "training") for word in CODES),
    ("training", "fault found"),
]
KINDS = {
    "audit": audited,
    "training": trained,
    "combination": combined,
    "function": called,
}


def text_of(html):
    plain = re.sub(r"<style>.*?</style>|<[^>]*>", " ", html, flags=re.DOTALL)
    return re.sub(r"\s+([.:])", r"\1", " ".join(unescape(plain).split()))


def verdict_box(result):
    page = report_html(result)
    title = re.search(r"<title>Privacy audit: (.*)</title>", page)[1]
    box = text_of(re.search(r'<div class="verdict">.*?</div>', page, re.DOTALL)[0])
    assert box.lower().startswith(title)
    return box


def model_card(result):
    section = model_card_section(result)
    row = re.search(r"\| Verdict \| (.*) \|", section)[1]
    first = section.splitlines()[2].replace("*", "")
    assert row[:4] == first[:4].lower()
    return first


SHOWN = {  # all that shows a result in words
    "print": str,
    "notebook": lambda result: text_of(result._repr_html_()),
    "explain": lambda result: str(explain(result)),
    "sentence": verdict,
    "report": verdict_box,
    "model card": model_card,
}


def check_first(said, word):
    """Check that a text begins with the word, and gives no other as the verdict."""
    assert said.lower().startswith(word), said[:80]
    assert said[0].isupper(), said[:80]
    for other in set(TRAINED) - {word, "claim refuted"}:
        assert other not in said.lower()
    if word != "claim refuted":
        assert " is refuted" not in said


@pytest.mark.parametrize(("kind", "word"), WORDS)
@pytest.mark.parametrize("shown", SHOWN)
def test_every_text_begins_with_the_word(kind, shown, word):
    check_first(SHOWN[shown](KINDS[kind](word)), word)


WHOLE = {**SHOWN, "model card": model_card_section}


@pytest.mark.parametrize("word", TRAINED)
@pytest.mark.parametrize("shown", sorted({*WHOLE} - {"sentence"}))
def test_a_training_begins_with_claim_bound_meaning_and_checks(shown, word):
    said = " ".join(WHOLE[shown](trained(word)).replace("\\", "").split())
    said = said.replace("\N{NO-BREAK SPACE}", " ")
    statuses = {
        "claim refuted": "suspect",
        "fault found": "failed",
        "invalid run": "not checked",
    }
    parts = (
        word,
        "claimed ε ≤ 1.993",
        {
            "claim refuted": "the claim does not hold (p",
            "fault found": "0 times the noise stated; expected: 1). likely cause: a",
            "no violation detected": "this does not prove the claim.",
            "inconclusive": "no effect of any canary was detected",
            "invalid run": "nothing follows about the claim.",
        }[word],
        "batch sampling",
        "noise",
        statuses.get(word, "not checked"),
    )
    places = [said.lower().find(part) for part in parts[:4]]
    assert -1 not in places
    assert places == sorted(places)
    rows = said.lower()[places[3] - 20 :]
    assert parts[5] in rows
    assert ("lower bound" in said.lower()) is (word != "invalid run")


@pytest.mark.parametrize(
    ("kind", "word"),
    [*((kind, word) for kind in KINDS for word in CODES), ("training", "fault found")],
)
def test_every_result_has_the_word_and_its_exit_code(kind, word):
    result = KINDS[kind](word)
    assert result.verdict == word
    assert result.verdict.exit_code == TRAINED[word]
    assert bool(result.reason) == (
        word in ("invalid run", "inconclusive", "fault found")
    )
    check_first(str(result), word)


@pytest.mark.parametrize(("kind", "word"), WORDS)
def test_every_document_has_the_word(kind, word):
    result = KINDS[kind](word)
    metrics = result.metrics()
    assert metrics["dpaudit/verdict"] == word
    assert metrics.get("dpaudit/refuted", False) is (word == "claim refuted")
    plain = json.loads(result.to_json())
    assert plain["verdict"] == word
    assert explain(result).outcome == word


def test_a_void_audit_shows_nothing_of_the_claim():
    result = audited("invalid run")
    bound = f"{result.bound.epsilon_lower:.3f}"[:-1]
    for said in (
        str(result),
        result._repr_html_(),
        str(explain(result)),
        report_html(result),
        model_card_section(result),
        str(combined("invalid run")),
    ):
        assert bound not in said
        assert "p = " not in said
        assert "p-value" not in said
    about = {"epsilon_lower", "p_value", "refuted", "ceiling"}
    assert not {f"dpaudit/{name}" for name in about} & set(result.metrics())


def test_what_was_looked_at_is_told_wherever_there_is_room():
    result = audited("no violation detected")
    (check,) = result.sanity_checks
    assert sentence(check).startswith("guesses are better than chance (p = ")
    for said in (
        text_of(result._repr_html_()),
        str(explain(result)),
        model_card_section(result),
        text_of(report_html(result)).replace("\N{NO-BREAK SPACE}", " "),
    ):
        assert "uesses are better than chance (p " in said


def test_the_five_look_different():
    boxes = {trained(word)._repr_html_().partition(">")[0] for word in TRAINED}
    pages = {re.search(r"<body class=.*", report_html(trained(w)))[0] for w in TRAINED}
    assert len(boxes) == len(pages) == 5


def test_one_void_run_makes_all_void_and_one_blind_run_does_not():
    seen, blind, invalid = (
        audited(word, key=number)
        for number, word in enumerate(
            ("no violation detected", "inconclusive", "invalid run")
        )
    )
    assert combine_runs([seen, blind]).verdict == "no violation detected"
    assert combine_runs([seen, invalid]).verdict == "invalid run"
    assert combine_runs([seen, invalid]).reason == "run 2: no canary arrived"


def test_runs_that_could_refute_nothing_alone_may_do_so_together():
    # 5 right of 5 have p = (e / (1 + e))^5 = 0.21 of epsilon = 1; Fisher's product of
    # four such p-values is 0.129, of ten 0.0510, of twelve 0.038.
    alone = [audited("claim refuted", guesses=5, key=number) for number in range(12)]
    assert {run.could_refute for run in alone} == {False}
    assert [combine_runs(alone[:n]).could_refute for n in (4, 10, 12)] == [
        False,
        False,
        True,
    ]


# Commands


CLAIM = ["--epsilon=2", "--delta=0"]
SHIFTS = {
    "claim refuted": 4.0,
    "no violation detected": 1.0,
    "inconclusive": 0.0,
    "invalid run": 1.0,
}


def write_scores(word, *, seed=0):
    """Write scores of a run that ends in a word; a void one scores a canary twice."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2, 400)
    names = np.arange(400)
    if word == "invalid run":
        names[7] = 6
    scores = rng.standard_normal(400) + SHIFTS[word] * bits
    table = {"id": names, "bit": bits, "score": scores}
    Path("scores").mkdir(exist_ok=True)
    parquet.write_table(pa.table(table), "scores/a.parquet")
    np.savez("scores.npz", **table)


def judged(dpaudit, command, word, *options):
    """Let a command judge a run; return what it says."""
    if command == "audit":
        write_scores(word)
        arguments = ["audit", "scores.npz", *CLAIM, "--guesses=100"]
    elif command == "merge":
        write_scores("no violation detected" if word == "invalid run" else word)
        design = Design(
            canaries=400, rules=OneRun(guesses=100), claim=PureDP(epsilon=2.0)
        )
        Path("design.json").write_text(design.to_json())
        dpaudit("tally", "scores", "--design=design.json", "--save=t.json")
        arguments = ["merge", "t.json", *(["t.json"] if word == "invalid run" else [])]
    elif command == "combine":
        for number in (1, 2):
            Path(f"{number}.json").write_text(audited(word, key=number).to_json())
        arguments = ["combine", "1.json", "2.json"]
    else:
        arguments = ["bound", *of_counts(word)]
    done = dpaudit(*arguments, *options, code=CODES[word])
    prefix = f"dpaudit {command}: "
    if done.stderr:
        assert done.stderr.startswith(prefix)
    return done.stdout or done.stderr.removeprefix(prefix)


def of_counts(word):
    if word == "invalid run":  # a swap tests another adjacency than the claim's
        counts = HalfCounts(canaries=200, guesses=100, correct=95, records_per_swap=1)
        Path("reading.json").write_text(counts.to_json())
        return ["--reading=reading.json", "--epsilon=1"]
    return [
        "--canaries=200",
        "--guesses=100",
        f"--correct={RUNS[word][0]}",
        "--epsilon=1",
    ]


@pytest.mark.parametrize("word", CODES)
@pytest.mark.parametrize("command", ["audit", "merge", "combine", "bound"])
def test_every_command_that_judges_says_the_word_and_exits_with_its_code(
    command, word, dpaudit
):
    said = judged(dpaudit, command, word)
    check_first(said[0].upper() + said[1:].splitlines()[0], word)


@pytest.mark.parametrize(
    "word", ["claim refuted", "inconclusive", "no violation detected"]
)
@pytest.mark.parametrize(
    ("command", "schema_name"),
    [
        ("audit", "audit"),
        ("merge", "audit"),
        ("combine", "combination"),
        ("bound", "bound"),
    ],
)
def test_every_json_of_a_command_has_the_word(
    command, schema_name, word, dpaudit, schema
):
    found = schema(judged(dpaudit, command, word, "--json"), schema_name)
    assert found["verdict"] == word
    assert bool(found["reason"]) == (word == "inconclusive")
    refuted = found["claim"] if command == "bound" else found
    assert refuted["refuted"] is (word == "claim refuted")


def test_the_json_of_void_runs_does_not_say_that_the_claim_is_refuted(dpaudit, schema):
    found = schema(judged(dpaudit, "combine", "invalid run", "--json"), "combination")
    assert (found["verdict"], found["refuted"]) == ("invalid run", False)
    assert {run["verdict"] for run in found["runs"]} == {"invalid run"}
    assert {each["status"] for each in found["sanity_checks"]} == {"invalid run"}


@pytest.mark.parametrize("word", CODES)
def test_what_only_shows_a_result_exits_with_0(word, dpaudit, schema):
    Path("result.json").write_text(audited(word).to_json())
    check_first(dpaudit("explain", "result.json").stdout, word)
    found = schema(dpaudit("explain", "result.json", "--json").stdout, "explanation")
    assert found["outcome"] == word
    check_first(found["verdict"], word)
    assert (found["steps"] == []) == (word == "invalid run")
    dpaudit("report", "result.json")
    assert f"<title>Privacy audit: {word}<" in Path("audit.html").read_text("utf-8")


def test_a_bound_without_a_claim_has_no_verdict(dpaudit, schema):
    counts = of_counts("inconclusive")[:3]
    found = schema(dpaudit("bound", *counts, "--json").stdout, "bound")
    assert (found["verdict"], found["reason"], found["claim"]) == (None, None, None)


def test_guesses_that_could_not_have_refuted_the_claim_are_inconclusive(dpaudit):
    few = ["--canaries=200", "--guesses=8", "--correct=8", "--epsilon=4"]
    said = dpaudit("bound", *few, code=3).stdout
    assert said.startswith("Inconclusive: the audit had no power")


# The sentences


def test_the_sentences_are_these(dpaudit):
    lines = []
    for kind, made in KINDS.items():
        for word in CODES:
            first = str(made(word)).splitlines()
            lines.append(f"{kind}: {' / '.join(first)}")
    few = str(audited("claim refuted", guesses=5)).splitlines()
    lines.append(f"audit: {' / '.join(few)}")
    lines += [f"explain: {verdict(audited(word))}" for word in CODES]
    for word in CODES:
        lines.append(f"bound: {judged(dpaudit, 'bound', word).splitlines()[0]}")
    if os.environ.get("DPAUDIT_WRITE_GOLDEN"):
        GOLDEN.write_text("\n".join([*lines, ""]), "utf-8")
    kept = GOLDEN.read_text("utf-8").splitlines()
    for was, now in zip(kept, lines, strict=True):
        assert now == was
