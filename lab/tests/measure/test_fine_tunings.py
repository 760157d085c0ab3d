"""A small version of the studies of fine-tunings: they run, and honest ones pass."""

import sys

import pytest

pytestmark = [pytest.mark.nightly, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def scripts():
    yield
    for name in ("small_fine_tunings", "many_fine_tunings"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("number", [0, 37])  # Llama by hooks, GPT-2 by ghost clipping
def test_an_honest_fine_tuning_passes_both_audits(number):
    import small_fine_tunings  # noqa: PLC0415 (of a folder of scripts)

    row = small_fine_tunings.one_run(number)
    assert row["steps"][0] > 0.001
    assert row["final"][0] > 0.001
    assert row["faults"] == []


def test_a_run_of_many_gives_its_coin_and_a_score():
    import many_fine_tunings  # noqa: PLC0415
    import torch  # noqa: PLC0415

    torch.manual_seed(0)
    initial = many_fine_tunings.small_model("llama", head=True)
    # With noise as good as none the score follows the coin.
    runs = [many_fine_tunings.score(initial, seed, 1e-3) for seed in range(6)]
    ones = [value for bit, value in runs if bit]
    zeros = [value for bit, value in runs if not bit]
    assert min(ones) > max(zeros)
