"""The page of instructions runs as it stands."""

import re
from pathlib import Path

import jax
import pytest

jax.config.update("jax_disable_most_optimizations", True)  # compiles sooner
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "audit-jax-privacy.md"


@pytest.mark.nightly
@pytest.mark.filterwarnings(
    "ignore:optax.global_norm is deprecated:DeprecationWarning"  # used by JAX Privacy
)
def test_the_programs_of_the_page_print_results(capsys):
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    claim, probe = "Claimed ε ≤ ", "one changes the sum by at most 1 C"
    size = "Fault: 0.bias, 0.weights depends on records past the noise"
    for block, said in zip(blocks, (claim, probe, size, claim), strict=True):
        exec(compile(block, PAGE.name, "exec"), names)
        printed = capsys.readouterr().out
        assert said in printed
    assert "not exercised" not in printed
