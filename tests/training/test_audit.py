"""One audit of training: the wall between its halves, its states, and its ranks."""

import numpy as np
import pytest

from dpaudit import ApproxDP, Coins, Design, Key, OneRun, ThreatModel
from dpaudit.errors import InvalidInputError
from dpaudit.game.setting import Setting
from dpaudit.testing import fixed_key
from dpaudit.training.arrival import Arrivals
from dpaudit.training.audit import TrainingAudit, coordinates_needed
from dpaudit.training.participation_draws import ParticipationDraws

KEY = fixed_key(bytes(range(32)))
CLAIM = ApproxDP(epsilon=1.0, delta=1e-5)
DESIGN = Design(
    canaries=600,
    rules=OneRun(guesses=60),
    claim=CLAIM,
    setting=Setting(per_coordinate=2, notes={"plan": "ours"}),
)


def opened(design=DESIGN, **options):
    read = Setting(framework="none", rate=0.3)
    told = {"sample_rate": 0.3, "observed_setting": read, "knows_real_sums": False}
    return TrainingAudit(design=design, key=KEY, **told | options)


def trained(audit, steps=10):
    """Show the audit noisy sums of steps that always have the same noise."""
    for _ in range(steps):
        joined = audit.contributions()
        rng = np.random.default_rng(audit.likelihood.steps)
        audit.observe(joined + 0.5 * rng.normal(size=len(joined)), joined)
    return audit


def finished(audit, **options):
    return audit.finish(**options)


@pytest.mark.parametrize("knows_real_sums", [True, False])
def test_the_design_says_what_was_read_and_who_looks(knows_real_sums):
    audit = opened(knows_real_sums=knows_real_sums)
    assert audit.design.setting == Setting(
        per_coordinate=2, framework="none", rate=0.3, notes={"plan": "ours"}
    )
    known = ThreatModel.KNOWN_RECORDS if knows_real_sums else ThreatModel.ALL_ITERATES
    assert audit.design.threat_model is known
    assert audit.commitment.holds_for(KEY, audit.design)
    assert coordinates_needed(audit.design) == 300


def test_no_coin_can_be_reached_from_what_the_guesser_keeps(reached):
    found = reached(trained(opened()).likelihood)
    secret = Key | Coins | ParticipationDraws | Arrivals | TrainingAudit
    assert not any(isinstance(each, secret) for each in found)
    assert len(found) > 10


def test_what_a_holder_saves_comes_back_beside_the_state(tmp_path):
    path = tmp_path / "state.npz"
    first = trained(opened(), steps=6)
    first.save(path, {"rank": np.array([3])})
    second = opened()
    state = second.read_state(path)
    assert state["rank"].tolist() == [3]
    assert second.likelihood.steps == 0  # nothing was taken over yet
    second.resume(state)
    one, other = trained(opened(), steps=10), trained(second, steps=4)
    assert finished(one) == finished(other)


@pytest.mark.parametrize(
    "name", ["seen number", "format", "commitment", "arrival", "file", "allow_pickle"]
)
def test_a_holder_is_told_which_names_are_taken(name, tmp_path):
    path = tmp_path / "state.npz"
    with pytest.raises(InvalidInputError, match=f"the names {name} in more are taken"):
        opened().save(path, {name: np.zeros(1), "rank": np.zeros(1)})
    assert not path.exists()


def test_a_state_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InvalidInputError, match="there is no file"):
        opened().read_state(tmp_path / "state.npz")


def test_a_rank_that_reads_everything_guesses_as_it_would_without_ranks():
    alone = finished(trained(opened()), gather=lambda own: own)
    plain = finished(trained(opened()))
    assert alone.transcript == plain.transcript
    assert alone.training.signal == plain.training.signal
    assert alone.scores == plain.scores


def test_guesses_are_about_the_coordinates_that_are_read():
    own = np.arange(100, 300)
    audit = opened(local_coordinates=own)
    for step in range(10):
        joined = audit.draws.contributions(step)[own]
        rng = np.random.default_rng(step)
        audit.observe(joined + 0.05 * rng.normal(size=200), joined)
    transcript = finished(audit, gather=lambda part: part).transcript
    made = transcript.index[transcript.guess != 0]
    assert len(made) == 60
    assert made.min() >= 200
    assert np.mean(transcript.guess == transcript.truth) > 0.9
