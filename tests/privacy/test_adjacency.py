"""Adjacency is a word in a file and a value in the code."""

import json

import pytest

from dpaudit.privacy.guarantees import Adjacency, ApproxDP, GaussianDP, PureDP


@pytest.mark.parametrize("word", ["add-remove", "replace-one", "zero-out"])
def test_each_adjacency_is_written_as_its_own_word(word):
    assert json.dumps(Adjacency(word)) == f'"{word}"'


def test_a_guarantee_is_about_adding_or_removing_unless_it_says_otherwise():
    claims = [ApproxDP(epsilon=1.0, delta=0.0), PureDP(epsilon=1.0), GaussianDP(mu=1.0)]
    assert {claim.adjacency for claim in claims} == {Adjacency.ADD_REMOVE}


def test_the_same_numbers_under_another_adjacency_are_another_claim():
    here = PureDP(epsilon=1.0)
    there = PureDP(epsilon=1.0, adjacency=Adjacency.REPLACE_ONE)
    assert here != there
