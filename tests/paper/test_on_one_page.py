"""`examples/paper.py`, the paper's core by itself, and the library say the same."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from dpaudit import Design, OneRun, PureDP, audit_one_run
from dpaudit.bounds import Counts, CountsAsMade, PureBound
from dpaudit.bounds.exact import AsMadeBound
from dpaudit.dpsgd.sampling import Poisson
from dpaudit.dpsgd.sums import DiracSums
from dpaudit.game.guessers import Echo, Extremes
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
    for r in (1, 7, 100, 1000):
        for v in range(0, r + 1, max(1, r // 9)):
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
    drawn = paper.dp_sgd(per_coordinate, sigma=0.7, steps=steps, q=0.2)(bits)
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


def test_aora_passes_and_counts_guesses_that_are_not_made_as_wrong(paper):
    assert paper.aora(paper.xor_in_pairs, paper.pair_guesser, N, N // 2) == (20, 20)
    assert paper.aora(paper.xor_in_pairs, paper.pair_guesser, N, 5) == (5, 5)
    assert paper.aora(paper.xor_in_pairs, paper.pair_guesser, N, N) == (20, N)


def test_it_prints_what_the_paper_prints():
    run = [sys.executable, str(PATH)]
    text = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    found = [
        (float(mean), float(error), float(printed))
        for mean, error, printed in re.findall(
            r"mean bound ([\d.]+) ± ([\d.]+), paper ([\d.]+)", text
        )
    ]
    assert [printed for *_, printed in found] == [0.49, 0.62]
    for mean, error, printed in found:
        assert abs(mean - printed) < 4 * error
    assert "XOR by classic auditing: 100 of 100 correct" in text
    assert "XOR in pairs by AORA: 500 of 500 correct" in text
