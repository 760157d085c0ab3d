"""Mutants of every kind of file, a few of the many in lab/measure/fuzzing.

No false alarms: the same mutants in every run, and no clock but that of the processor.
"""

import json
import zlib
from base64 import b64decode
from pathlib import Path
from random import Random

import pytest
from fuzz_judging import judged
from fuzz_targets import TARGETS

EXTRAS = {
    "batches",
    "parquet",
    "public-key",
    "report",
    "tally",
}  # tested in files of their own
FEWER = {"command": 20, "state": 40, "evidence": 80, "reading": 80}
CORPUS = json.loads((Path(__file__).parent / "corpus.json").read_text("utf-8"))


@pytest.mark.parametrize("name", sorted(TARGETS.keys() - EXTRAS))
def test_samples_and_mutants_give_a_value_or_an_error_that_helps(name, tmp_path):
    target = TARGETS[name]
    if name != "command":  # those are tested by themselves, and take longer
        outcomes = {judged(target, sample, tmp_path) for sample in target.seeds}
        # Samples of evidence are what an envelope holds.
        valid = "InvalidInputError" if name == "evidence" else "value"
        assert (valid, None) in outcomes
        assert {flaw for _, flaw in outcomes} == {None}
    for number in range(FEWER.get(name, 150)):
        data = target.case(Random(f"{name}:tests:{number}"))
        assert judged(target, data, tmp_path)[1] is None, data


@pytest.mark.parametrize(
    "case",
    [case for case in CORPUS if case["target"] not in EXTRAS],
    ids=lambda case: f"{case['target']}, once {case['was']}",
)
def test_inputs_that_once_showed_a_flaw_no_longer_do(case, tmp_path):
    data = zlib.decompress(b64decode(case["input"]))
    assert judged(TARGETS[case["target"]], data, tmp_path)[1] is None
