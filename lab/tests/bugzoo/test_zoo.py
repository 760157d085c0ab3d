"""The zoo is complete and consistent, and its audits catch what they should."""

from dataclasses import replace

import pytest
import torch

from dpaudit_lab.bugzoo import BUGS, audit_bug
from dpaudit_lab.bugzoo.auditing import audit_result
from dpaudit_lab.bugzoo.bug import Records, Sums, insertion_name
from dpaudit_lab.bugzoo.honest import private_run
from dpaudit_lab.bugzoo.newcomers import NEWCOMERS
from dpaudit_lab.bugzoo.truth import AtLeast, epsilon_of, few_records, nearly_noiseless

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore:Secure RNG turned off:UserWarning")


def test_there_are_38_bugs_each_with_a_story():
    assert len(BUGS) == 38
    assert sum(bug.insertion is not None for bug in BUGS.values()) == 18
    for name, bug in BUGS.items():
        assert bug.name == name
        assert "https://" in bug.story or "known kind" in bug.story
        assert bug.truth.how
        assert bug.seen_by
        assert bug.guesses <= bug.canaries <= 20_000
        assert bool(insertion_name(bug.insertion)) == bool(bug.canaries)


@pytest.mark.nightly
def test_newcomers_spend_more_than_they_claim():
    for bug in NEWCOMERS:
        assert bug.truth.epsilon > 1.4 * epsilon_of(bug.truth.claimed)


@pytest.mark.nightly
def test_a_record_that_counts_twice_halves_the_noise():
    for name in ("mixup", "mean-told-as-sum"):
        ((noise, rate, steps),) = BUGS[name].truth.claimed
        halved = epsilon_of(((noise / 2, rate, steps),))
        assert halved - 0.001 < BUGS[name].truth.epsilon <= halved


def test_bounds_of_the_truth_are_for_the_runs_as_they_are():
    for name in ("noise-divided-twice", "batch-clipped"):
        bug = BUGS[name]
        run = private_run(bug.setting, canaries=bug.canaries)
        size = run.optimizer.expected_batch_size
        expected = nearly_noiseless(bug.setting.noise / size, 0.1, 100)
        assert isinstance(bug.truth, AtLeast)
        assert bug.truth.epsilon == pytest.approx(expected)
    bug = BUGS["realised-batch-size"]
    run = private_run(bug.setting)
    d = sum(p.numel() for p in run.optimizer.params)
    assert bug.truth.epsilon == few_records(dimension=d, rate=0.1, steps=100)
    layers = private_run(BUGS["per-layer-as-flat"].setting).optimizer.params
    assert len(layers) == 17


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name",
    [
        "noise-without-clip",
        "per-layer-as-flat",
        "noise-repeated",
        "ghost-norm-missing-layer",
    ],
)
def test_a_bug_is_caught_in_one_run(name):
    """Fixed seed; over seeds these are caught in all of 20 runs."""
    assert audit_bug(BUGS[name], seed=7).caught


@pytest.mark.nightly
def test_a_bug_on_two_ranks_is_caught_in_one_run():
    assert audit_bug(BUGS["noise-same-in-shards"], seed=7).caught


@pytest.mark.nightly
def test_without_its_bug_the_audit_by_examples_catches_nothing():
    """Fixed seed; an honest run is refuted at 0.05 at most once in 20 seeds."""
    honest = replace(BUGS["ghost-norm-missing-layer"], plant=lambda run: None)
    assert audit_result(honest, seed=7).p_value > 0.05


@pytest.mark.nightly
def test_a_bug_behind_the_clipping_does_not_show_in_sums():
    """Fixed seed; the claim that is tested is then true of what is seen."""
    bug = BUGS["clipped-before-unscaling"]
    assert isinstance(bug.insertion, Records)
    in_sums = replace(bug, insertion=Sums())
    assert not audit_bug(in_sums, seed=7).caught
