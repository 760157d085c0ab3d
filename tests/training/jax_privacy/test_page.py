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
    program, correlated = "one changes the sum by at most 1 C", "passed       noise "
    expected = (program, "sees every iterate. ", correlated, correlated)
    for block, line in zip(blocks, expected, strict=True):
        exec(compile(block, PAGE.name, "exec"), names)
        printed = capsys.readouterr().out
        assert "Claimed ε ≤ " in printed
        assert line in printed
