"""`examples/paper.py`, the paper's core by itself, and the library say the same."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from dpaudit import (
    AdaptiveCount,
    Design,
    OneRun,
    Pairs,
    PureDP,
    SeparateRuns,
    audit_adaptive,
    audit_classic,
    audit_one_run,
)
from dpaudit.bounds import Counts, CountsAsMade, PureBound
from dpaudit.bounds.exact import AsMadeBound
from dpaudit.dpsgd.sampling import Poisson
from dpaudit.dpsgd.sums import DiracSums
from dpaudit.game.guessers import AdaptiveMostLikely, Echo, Extremes
from dpaudit.mechanisms.exposure import AllOrNothing, NameAndShame
from dpaudit.mechanisms.local import LocalRandomisedResponse
from dpaudit.mechanisms.parity import Xor, XorInPairs
from dpaudit.testing import fixed_key

PATH = Path(__file__).parents[2] / "examples" / "paper.py"
N = 40


@pytest.fixture
def paper():
    spec = importlib.util.spec_from_file_location("paper_on_one_page", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.rng = np.random.default_rng(5)
    return module


def test_it_is_one_page_and_needs_no_library():
    text = PATH.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 80
    assert "import dpaudit" not in text
    assert "from dpaudit" not in text


def test_its_bound_is_the_library_s_at_the_number_made(paper):
    for r in (1, 2, 7, 40, 1000):
        for v in range(0, r + 1, max(1, r // 40)):
            counts = Counts(canaries=r, guesses=r, correct=v)
            pure = (
                PureBound().epsilon_lower(counts, delta=0.0, alpha=0.05).epsilon_lower
            )
            made = CountsAsMade(canaries=2 * r, guesses=r, correct=v)
            ours = (
                AsMadeBound().epsilon_lower(made, delta=0.0, alpha=0.05).epsilon_lower
            )
            assert paper.bound(v, r) == pytest.approx(pure, abs=1e-9)
            assert ours == pure


def test_algorithm_1_counts_as_the_library_s_audit(paper):
    """The same number of correct guesses in the mean, with the same bound."""
    epsilon, games = 1.0, 300
    shares = {"paper": [], "library": []}
    mechanism = LocalRandomisedResponse(epsilon=epsilon)
    claim = PureDP(epsilon=epsilon, adjacency=mechanism.guarantee.adjacency)
    design = Design(canaries=N, rules=OneRun(guesses=None), claim=claim)
    for game in range(games):
        v, r = paper.ora(paper.lrr(epsilon), lambda o: o, N)
        shares["paper"].append(v / r)
        rng = np.random.default_rng(game)
        result = audit_one_run(
            mechanism,
            Echo(),
            pairs=mechanism.pairs,
            design=design,
            rng=rng,
            key=fixed_key(rng.bytes(32)),
        )
        v, r = result.reading.correct_and_guesses()
        assert (r, result.bound.epsilon_lower) == (N, pytest.approx(paper.bound(v, r)))
        shares["library"].append(v / r)
    apart = abs(np.mean(shares["paper"]) - np.mean(shares["library"]))
    assert apart < 5 * np.sqrt(2 * 0.25 / (N * games))


def test_algorithm_2_counts_as_the_library_s_but_for_passes(paper):
    """The library fixes the guesses: those not made are wrong, and not left out."""
    runs, mechanism = 40, Xor(elements=3)
    claim = PureDP(epsilon=1.0, adjacency=mechanism.pairs.adjacency)
    for guess in lambda o: 2 * o - 1, lambda o: o:
        v, r = paper.classic(paper.xor, guess, [-1, -1, -1], 1, runs)
        result = audit_classic(
            mechanism,
            guess,
            base=np.zeros(3, int),
            place=1,
            pair=Pairs(x=0, y=1),
            design=Design(canaries=runs, rules=SeparateRuns(guesses=runs), claim=claim),
            rng=np.random.default_rng(1),
            key=fixed_key(bytes(range(32))),
        )
        correct, made = result.reading.correct_and_guesses()
        assert v == r
        assert correct + result.reading.abstained == made == runs
        assert (v < runs) == (correct < runs) == (guess(0) == 0)


def test_its_mechanisms_are_the_library_s(paper):
    rng = np.random.default_rng(2)
    shamed = NameAndShame(elements=N)
    for bits in rng.integers(0, 2, (20, N)):
        signs = 2 * bits - 1
        assert paper.xor(signs) == Xor(elements=N).run(bits, rng)
        ours = XorInPairs(elements=N).run(bits, rng)
        assert np.array_equal(paper.xor_in_pairs(signs), ours)
        for _ in range(5):  # an element of the library's names itself and its coin
            i, coin = paper.nas(signs)
            assert coin == signs[i]
            named = int(shamed.run(shamed.pairs.choose(bits), rng))
            assert np.sign(named) == signs[abs(named) - 1]


def test_who_is_named_and_how_often_all_is_published_are_the_library_s(paper):
    rng, bits = np.random.default_rng(7), np.ones(N, int)
    shamed = NameAndShame(elements=N)
    theirs = np.bincount([paper.nas(bits)[0] for _ in range(4000)], minlength=N)
    named = [shamed.run(shamed.pairs.choose(bits), rng) - 1 for _ in range(4000)]
    for counts in theirs, np.bincount(named, minlength=N):
        assert stats.chisquare(counts).pvalue > 1e-4
    mechanism = AllOrNothing(elements=N, probability=0.3)
    everything = sum(mechanism.run(bits, rng) is not None for _ in range(2000))
    assert stats.binomtest(everything, 2000, 0.3).pvalue > 1e-4
    everything = sum(bool(paper.aon(0.3)(bits).any()) for _ in range(2000))
    assert stats.binomtest(everything, 2000, 0.3).pvalue > 1e-4


def test_its_dp_sgd_is_the_library_s(paper):
    """Sums over all steps have the same distribution, coordinate by coordinate."""
    per_coordinate, coordinates, steps = 3, 400, 20
    bits = np.random.default_rng(3).integers(0, 2, per_coordinate * coordinates)
    drawn = paper.dp_sgd(per_coordinate, sigma=0.7, steps=steps, rate=0.2)(bits)
    library = DiracSums(
        coordinates=coordinates,
        per_coordinate=per_coordinate,
        sampling=Poisson(rate=0.2),
        sigma=0.7,
        steps=steps,
    )
    ours = library.run(bits, np.random.default_rng(4)).total
    theirs = drawn.reshape(-1, per_coordinate)[:, 0]
    here = bits.reshape(-1, per_coordinate).sum(axis=1)
    for count in range(per_coordinate + 1):
        assert stats.ks_2samp(ours[here == count], theirs[here == count]).pvalue > 1e-4


def test_its_sorting_guesser_is_the_library_s(paper):
    rng = np.random.default_rng(6)
    for _ in range(20):
        scores = rng.normal(size=200)
        theirs = paper.sorting_guesser(30)(scores)
        ours = Extremes(score=np.asarray, top=15, bottom=15).guess(scores)
        assert np.array_equal(np.sort(ours.index), np.flatnonzero(theirs))
        assert np.array_equal(theirs[ours.index], ours.guess)


def test_aora_counts_a_guess_that_is_not_made_as_wrong_and_so_does_the_library(paper):
    mechanism = XorInPairs(elements=N)
    claim = PureDP(epsilon=1.0, adjacency=mechanism.pairs.adjacency)
    for guesses, correct in (N // 2, N // 2), (5, 5), (N, N // 2):
        found = paper.aora(paper.xor_in_pairs, paper.pair_guesser, N, guesses)
        rules = AdaptiveCount(guesses=guesses)
        result = audit_adaptive(
            mechanism,
            AdaptiveMostLikely(mechanism=mechanism, threshold=np.inf, rules=rules),
            pairs=mechanism.pairs,
            design=Design(canaries=N, rules=rules, claim=claim),
            rng=np.random.default_rng(0),
            key=fixed_key(bytes(range(32))),
        )
        assert found == result.reading.correct_and_guesses() == (correct, guesses)


def test_aora_lets_no_element_be_guessed_again(paper):
    with pytest.raises(AssertionError):
        paper.aora(paper.xor_in_pairs, lambda o, seen: (0, seen.get(0, 0)), N, 1)


def test_its_guesser_of_pairs_is_the_library_s(paper):
    mechanism = XorInPairs(elements=N)
    for bits in np.random.default_rng(8).integers(0, 2, (20, N)):
        signs, o = 2 * bits - 1, mechanism.run(bits, np.random.default_rng(0))
        seen, theirs = {}, np.zeros(N)
        while len(seen) < N:
            i, theirs[i] = paper.pair_guesser(o, seen)
            seen[i] = signs[i]
        rules, ours = AdaptiveCount(guesses=N), np.zeros(N)
        guesser = AdaptiveMostLikely(mechanism=mechanism, threshold=np.inf, rules=rules)
        play = guesser.play(o)
        turn = next(play, None)
        while turn is not None:
            ours[turn.index] = turn.guess
            try:
                turn = play.send(signs[turn.index].astype(np.int8))
            except StopIteration:
                turn = None
        assert np.array_equal(theirs, ours)


@pytest.mark.nightly
def test_it_prints_what_the_paper_prints():
    """The paper's bounds are at delta = 1e-5, lower by the price of delta.

    The price was measured by `lab/measure/errata.py delta`; errors are those of both.
    """
    run = [sys.executable, str(PATH)]
    text = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    found = [
        (float(mean), float(error), float(printed))
        for mean, error, printed in re.findall(
            r"coordinate: ([\d.]+) ± ([\d.]+) at delta = 0, paper ([\d.]+)", text
        )
    ]
    assert [printed for *_, printed in found] == [0.49, 0.62]
    for (mean, error, printed), price in zip(found, (0.003, 0.023), strict=True):
        assert abs(mean - price - printed) < 4 * np.hypot(error, 0.01)
    assert "XOR by classic auditing: 100 of 100 correct" in text
    assert "XOR in pairs by AORA: 500 of 500 correct" in text
