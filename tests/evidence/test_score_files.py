"""Scores in files: tallies are made anew from the very files that were audited."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from evidence_samples import (
    CANARIES,
    KEY,
    OTHER_KEY,
    design_of,
    of_scores,
    write_scores,
)

from dpaudit import Coins, OneRun, Ranking, audit_scores
from dpaudit.errors import InvalidInputError, InvalidRunError
from dpaudit.evidence import (
    ScoreFile,
    ScoreFiles,
    evidence_of,
    score_files,
    seal,
    tie_rng,
    verify,
)
from dpaudit.evidence import (
    VerificationOutcome as Outcome,
)
from dpaudit.evidence.files import read_score_files
from dpaudit.game.setting import Setting
from dpaudit.game.text.findings import sentence


def tally(found):
    return next(check for check in found.checks if check.name == "tally")


def named_only(files):
    """Return score files as somebody else has them, who cannot look where they were."""
    return ScoreFiles.from_json(files.to_json())


@pytest.mark.parametrize("rules", [OneRun(guesses=40), Ranking(guesses=40)])
def test_with_the_files_everything_is_made_anew(tmp_path, rules):
    evidence = of_scores(tmp_path, rules=rules)
    found = verify(seal(evidence), files=tmp_path)
    assert found.sound, str(found)
    assert tally(found).outcome is Outcome.HOLDS
    assert "result.scores" not in found.stated


def test_without_the_files_tallies_are_not_checked_and_verify_says_so(tmp_path):
    text = seal(of_scores(tmp_path))
    found = verify(text)
    assert not found.sound
    assert found.exit_code == 6
    assert str(found).startswith("The counts were not checked.\n")
    established, _, rest = str(found).partition("What was not established:")
    assert "- bound:" not in established
    assert "epsilon >=" not in established
    assert "- bound: if the counts are as stated: " in rest
    assert tally(found).outcome is Outcome.NOT_CHECKED
    accepted = verify(text, accept_unchecked_counts=True)
    assert accepted.sound
    assert accepted.exit_code == 0
    assert str(accepted).startswith("The counts were not checked, as was accepted.\n")
    assert "- bound:" not in str(accepted).partition("What was not established:")[0]
    with pytest.raises(InvalidInputError, match="leave out one of them"):
        verify(text, required=("tally",), accept_unchecked_counts=True)
    assert {"guesses.files", "result.reading", "result.scores"} <= set(found.stated)


def test_the_right_guesses_are_those_that_counting_by_hand_gives(tmp_path):
    """Without ties, in plain Python: the highest and the lowest are guessed."""
    coins = Coins(key=KEY, count=CANARIES).bits().tolist()
    rng = np.random.default_rng(2)
    scores = (np.array(coins) + rng.normal(size=CANARIES)).tolist()
    path = tmp_path / "scores.csv"
    rows = [f"{i},{scores[i]!r}" for i in reversed(range(CANARIES))]
    path.write_text("\n".join(["id,score", *rows]) + "\n")
    ordered = sorted(range(CANARIES), key=scores.__getitem__)
    right = sum(coins[i] == 1 for i in ordered[-5:])
    right += sum(coins[i] == 0 for i in ordered[:5])
    design = design_of(OneRun(guesses=10))
    coins = Coins(key=KEY, count=CANARIES)
    result = audit_scores(np.arange(CANARIES), coins, scores, design=design)
    assert result.reading.correct == right
    evidence = evidence_of(result, key=KEY, files=score_files([path]))
    assert verify(seal(evidence), files=tmp_path).sound
    # One row's score changed, and its hash put right: the tally shows it.
    top = ordered[-1]
    text = path.read_text().replace(f"{top},{scores[top]!r}", f"{top},-99")
    path.write_text(text)
    with pytest.raises(InvalidInputError, match="another tally"):
        evidence_of(result, key=KEY, files=score_files([path]))
    changed = evidence_of(result, key=KEY, files=named_only(score_files([path])))
    found = verify(seal(changed), files=tmp_path)
    assert tally(found).outcome is Outcome.FAILS


def test_a_file_that_was_changed_or_is_missing_is_named(tmp_path):
    text = seal(of_scores(tmp_path))
    path = tmp_path / "scores-1.csv"
    original = path.read_text()
    path.write_text(original + "\n")
    assert (
        "scores-1.csv is not the file" in tally(verify(text, files=tmp_path)).sentence
    )
    path.unlink()
    found = verify(text, files=tmp_path)
    assert tally(found).outcome is Outcome.FAILS
    assert "scores-1.csv is not in the folder" in tally(found).sentence
    assert not found.sound


def test_a_picture_of_other_scores_is_found_out(tmp_path):
    evidence = of_scores(tmp_path)
    result = evidence.result
    first, *rest = result.scores.included
    scores = replace(result.scores, included=(first + 1, *rest))
    changed = replace(evidence, result=replace(result, scores=scores))
    found = verify(seal(changed), files=tmp_path)
    assert "scores.included" in tally(found).sentence


def test_ties_are_decided_by_the_key_and_by_nobody_else(tmp_path):
    """Whoever may choose the lots may choose the tally."""
    evidence = of_scores(tmp_path)
    table = read_score_files(evidence.guesses, tmp_path)
    assert len(np.unique(table.scores)) < CANARIES
    design, coins = evidence.registration.design, Coins(key=KEY, count=CANARIES)

    def audit(rng):
        return audit_scores(table.ids, coins, table.scores, design=design, tie_rng=rng)

    drawn = (audit(np.random.default_rng(seed)) for seed in range(30))
    other = next(r for r in drawn if r.to_json() != evidence.result.to_json())
    with pytest.raises(InvalidInputError, match="leave out tie_rng"):
        evidence_of(other, key=KEY, files=evidence.guesses)
    chosen = evidence_of(other, key=KEY, files=named_only(evidence.guesses))
    assert tally(verify(seal(chosen), files=tmp_path)).outcome is Outcome.FAILS
    for again in (audit(tie_rng(design, KEY)), audit(None)):
        assert again.to_json() == evidence.result.to_json()


def test_coins_in_the_files_must_be_the_keys(tmp_path):
    paths = write_scores(tmp_path, bits=True)
    files = score_files(paths)
    table = read_score_files(files, tmp_path)
    design = design_of(OneRun(guesses=20))

    def sealed(key):
        coins = Coins(key=key, count=CANARIES)
        tie_breaks = tie_rng(design, key)
        result = audit_scores(
            table.ids, coins, table.scores, design=design, tie_rng=tie_breaks
        )
        return seal(evidence_of(result, key=key, files=named_only(files)))

    assert verify(sealed(KEY), files=tmp_path).sound
    found = verify(sealed(OTHER_KEY), files=tmp_path)
    assert "not those of the key" in tally(found).sentence


def test_coins_that_come_from_no_key_are_the_auditors_word(tmp_path):
    paths = write_scores(tmp_path, bits=True)
    files = score_files(paths, coins_were_independent=True)
    table = read_score_files(files, tmp_path)
    design = design_of(OneRun(guesses=20))
    design = replace(design, setting=replace(design.setting, tie_seed=7))
    result = audit_scores(
        table.ids,
        table.bits,
        table.scores,
        design=design,
        tie_rng=tie_rng(design, None),
        coins_were_independent=True,
    )
    found = verify(seal(evidence_of(result, key=None, files=files)), files=tmp_path)
    assert found.sound, str(found)
    assert "the coins do not come from a key" in str(found)
    assert "the coins stated in them" in tally(found).sentence
    assert "registration" in found.stated


def test_ties_that_no_lots_decided_are_found_again(tmp_path):
    """Against the auditor, and what they decided is stated no smaller than it is."""
    files = score_files(write_scores(tmp_path, bits=True), coins_were_independent=True)
    table = read_score_files(files, tmp_path)
    result = audit_scores(
        table.ids,
        table.bits,
        table.scores,
        design=design_of(Ranking(guesses=CANARIES)),
        coins_were_independent=True,
    )
    evidence = evidence_of(result, key=None, files=files)
    found = verify(seal(evidence), files=tmp_path)
    assert found.sound, str(found)
    assert "result.sanity_checks" not in found.stated
    assert "result.sanity_checks" in verify(seal(evidence)).stated
    chance, ties = result.sanity_checks
    assert "guesses, all against the auditor" in sentence(ties)
    for controls in (
        (chance,),
        (chance, replace(ties, numbers={**ties.numbers, "decided": 0})),
    ):
        changed = replace(evidence, result=replace(result, sanity_checks=controls))
        found = verify(seal(changed), files=tmp_path)
        assert "of ties the score files give" in tally(found).sentence


def test_only_a_whole_number_is_a_seed():
    design = design_of(OneRun(guesses=20))
    assert tie_rng(replace(design, setting=Setting()), None) is None
    for seed in (True, -1, 0.5, "1"):
        with pytest.raises(InvalidInputError, match="tie_seed must be a whole number"):
            Setting(tie_seed=seed)


@pytest.mark.parametrize(
    "name",
    ["../x.csv", "a/b.csv", "a\\b.csv", "", ".", "..", 5, "a\n- bound: b", "\ud800"],
)
def test_a_name_that_leads_elsewhere_is_refused(name):
    with pytest.raises(InvalidInputError, match="without a folder"):
        ScoreFile(name=name, sha256=64 * "0", rows=1)


def test_odd_score_files_are_refused():
    file = ScoreFile(name="a.csv", sha256=64 * "0", rows=1)
    for files in ((), (file, file)):
        with pytest.raises(InvalidInputError, match="files must be"):
            ScoreFiles(files=files)
    other = replace(file, name="b.csv")
    assert ScoreFiles(files=(file, other))
    with pytest.raises(InvalidInputError, match="in the order"):
        ScoreFiles(files=(other, file))
    for odd in ({"rows": 0}, {"rows": 1.0}, {"rows": True}, {"sha256": 64 * "G"}):
        with pytest.raises(InvalidInputError):
            replace(file, **odd)
    plain = json.loads(ScoreFiles(files=(file,)).to_json())
    plain["files"][0]["folder"] = "/"
    with pytest.raises(InvalidInputError, match="folder"):
        ScoreFiles.from_json(json.dumps(plain))


def test_a_result_without_a_picture_of_its_scores_holds_too(tmp_path):
    """Results of the first format had none."""
    evidence = of_scores(tmp_path)
    bare = replace(evidence.result, scores=None)
    found = verify(seal(replace(evidence, result=bare)), files=tmp_path)
    assert found.sound, str(found)
    assert tally(found).outcome is Outcome.HOLDS


def test_files_may_come_from_several_folders(tmp_path):
    evidence = of_scores(tmp_path)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    paths = [tmp_path / "scores-0.csv", moved / "scores-1.csv"]
    (tmp_path / "scores-1.csv").rename(paths[1])
    again = evidence_of(evidence.result, key=KEY, files=score_files(paths))
    assert again == evidence


def test_a_file_that_only_the_verifier_cannot_read_is_not_held_against_the_auditor(
    tmp_path, monkeypatch
):
    evidence = of_scores(tmp_path)
    file = evidence.guesses.files[0]
    (tmp_path / "scores-0.parquet").write_bytes((tmp_path / file.name).read_bytes())
    named = ScoreFiles(files=(replace(file, name="scores-0.parquet"),))
    # As if the extra were not installed.
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "dpaudit.tables.parquet", raising=False)
    found = verify(seal(replace(evidence, guesses=named)), files=tmp_path)
    assert tally(found).outcome is Outcome.NOT_CHECKED
    assert "pip install '.[tables]'" in tally(found).sentence


def test_the_order_in_which_files_are_named_does_not_matter(tmp_path):
    paths = write_scores(tmp_path)
    assert score_files(paths) == score_files(paths[::-1])


def test_files_of_which_only_some_hold_coins_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("id,score\n0,1\n")
    (tmp_path / "b.csv").write_text("id,bit,score\n1,1,1\n")
    files = score_files([tmp_path / "a.csv", tmp_path / "b.csv"])
    with pytest.raises(InvalidRunError, match="some files hold coins"):
        read_score_files(files, tmp_path)
