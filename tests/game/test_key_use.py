"""A key is used for one output; what is one output is judged, and the rest refused."""

from dataclasses import replace

import numpy as np
import pytest

from dpaudit import ApproxDP, Design, Key, MostLikely, OneRun, PureDP, audit_one_run
from dpaudit.errors import InvalidRunError
from dpaudit.game import Commitment, key_use
from dpaudit.game.design import ThreatModel
from dpaudit.game.key_use import judge_once
from dpaudit.mechanisms.local import LocalRandomisedResponse
from dpaudit.privacy.guarantees import Adjacency
from dpaudit.testing import fixed_key
from dpaudit.training.any_loop import SumsAudit

KEY = Key(bytes(range(32)))
CANARIES = 64
DESIGN = Design(
    canaries=CANARIES,
    rules=OneRun(guesses=20),
    claim=ApproxDP(epsilon=1.0, delta=1e-5),
)
RESPONSE = LocalRandomisedResponse(epsilon=1.0)
USED = "this key was used for another"


def opened(design=DESIGN, key=KEY, **options):
    return SumsAudit(design=design, key=key, dimension=80, **options)


def trained(audit, *, seed=0, steps=3):
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        audit.observe(audit.contributions() + rng.normal(size=CANARIES))
    return audit


def game(seed, key=KEY):
    claim = PureDP(epsilon=1.0, adjacency=Adjacency.REPLACE_ONE)
    return audit_one_run(
        RESPONSE,
        MostLikely(mechanism=RESPONSE, guesses=20),
        pairs=RESPONSE.pairs,
        design=Design(canaries=CANARIES, rules=OneRun(guesses=20), claim=claim),
        rng=np.random.default_rng(seed),
        key=key,
    )


# What is refused


@pytest.mark.parametrize("ended", [lambda audit: audit.finish(), lambda audit: None])
def test_a_second_training_run_with_one_key_is_refused_when_it_is_opened(ended):
    ended(trained(opened()))
    with pytest.raises(InvalidRunError, match=f"{USED} run.*Key.generate"):
        opened()
    opened(key=Key(bytes(32)))  # with another key it is opened


def test_neither_another_design_nor_other_real_sums_make_it_another_key():
    trained(opened()).finish()
    for other in (
        lambda: opened(replace(DESIGN, alpha=0.01)),
        lambda: opened(knows_real_sums=True),
    ):
        with pytest.raises(InvalidRunError, match=USED):
            other()


def test_of_two_runs_that_were_opened_at_once_one_is_judged():
    one, other = opened(), opened()
    trained(one), trained(other, seed=1)
    one.finish()
    with pytest.raises(InvalidRunError, match="two outputs with the same coins"):
        other.finish()


def test_a_run_that_was_saved_is_resumed_and_not_begun_anew(tmp_path):
    trained(opened()).save(tmp_path / "state.npz")
    with pytest.raises(InvalidRunError, match="was not resumed from it"):
        trained(opened(), seed=1).finish()


def test_a_run_that_was_judged_is_not_resumed_for_a_second_output(tmp_path):
    audit = trained(opened())
    audit.save(tmp_path / "state.npz")
    audit.finish()
    with pytest.raises(InvalidRunError, match=USED):
        opened()


def test_two_games_with_one_key_are_refused():
    game(seed=0)
    with pytest.raises(InvalidRunError, match=f"{USED} output"):
        game(seed=1)
    with pytest.raises(InvalidRunError, match=f"{USED} run"):
        opened()


# What is one output


def test_a_run_that_is_resumed_in_the_same_process_is_the_same_run(tmp_path):
    trained(opened()).save(tmp_path / "state.npz")
    again = opened()
    again.resume(tmp_path / "state.npz")
    trained(again, seed=1).finish()


def test_an_opening_without_any_step_uses_no_key():
    for _ in range(3):
        opened()
    trained(opened()).finish()


def test_a_game_that_repeats_itself_is_one_output():
    assert game(seed=0).to_json() == game(seed=0).to_json()


def test_an_audit_that_is_finished_twice_is_one_output():
    commitment = Commitment.to(KEY, DESIGN)
    for _ in range(2):
        judge_once(KEY, commitment, DESIGN, "the same")


def test_who_sees_the_final_model_is_a_second_observer_of_the_run():
    trained(opened()).finish()
    final = replace(DESIGN, threat_model=ThreatModel.FINAL_MODEL)
    commitment = Commitment.to(KEY, final)
    judge_once(KEY, commitment, final, "one model")
    with pytest.raises(InvalidRunError, match=f"{USED} output"):
        judge_once(KEY, commitment, final, "another model")


# What is remembered


def test_the_key_itself_is_not_remembered():
    trained(opened()).finish()
    assert KEY.secret.hex() not in repr(key_use._USES)
    assert repr(KEY.secret) not in repr(key_use._USES)
    assert Commitment.to(KEY, DESIGN).run_digest in repr(key_use._USES)


def test_as_many_keys_are_remembered_as_fit(monkeypatch):
    monkeypatch.setattr(key_use, "_MOST", 3)
    for number in range(9):
        game(0, Key(number.to_bytes(32, "big")))
    assert len(key_use._USES) == 3


def test_a_fixed_key_is_used_again_and_has_the_same_coins():
    key = fixed_key(KEY.secret)
    assert key == KEY
    for seed in range(2):
        trained(opened(key=key), seed=seed).finish()
        game(seed, key)
    assert not key_use._USES
