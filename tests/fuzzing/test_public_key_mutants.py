"""Mutants of public keys; needs the extra ``sign``."""

from random import Random

from fuzz_judging import judged
from fuzz_targets import TARGETS


def test_mutants_give_a_key_or_an_error_that_helps(tmp_path):
    target = TARGETS["public-key"]
    for number in range(300):
        data = target.case(Random(f"public-key:tests:{number}"))
        assert judged(target, data, tmp_path)[1] is None, data
