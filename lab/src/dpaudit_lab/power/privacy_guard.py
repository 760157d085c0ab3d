"""What PrivacyGuard's f-DP node shows of the same guesses.

``FDPAnalysisNode`` is Mahloujifar, Melis and Chaudhuri's bound for the Gaussian family:
it takes counts, scans a thousand noises from the smallest on, and turns the first that
is not rejected into an epsilon. It assumes that the mechanism is Gaussian, so it is a
bound on another thing than the others here (tier B). It is given the guesses that were
planned for Steinke, Nasr and Jagielski's bound.

PrivacyGuard's install brings torch, transformers and much else. The node needs none of
it: its one file is loaded, with empty classes in place of the two base classes that it
names. ``pip install --no-deps`` suffices, and nothing of it is kept here.

Reference: privacy_guard/analysis/mia/fdp_analysis_node.py of privacyguard-platform,
https://github.com/facebookresearch/PrivacyGuard; https://arxiv.org/abs/2410.22235.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final, final

from dpaudit.errors import InvalidInputError
from dpaudit_lab.power.methods import most_confident_right
from dpaudit_lab.power.task import Draw

__all__ = ["PrivacyGuardNode", "load"]

_FILE: Final = Path("analysis", "mia", "fdp_analysis_node.py")
_BASES: Final = {
    "privacy_guard.analysis.base_analysis_node": "BaseAnalysisNode",
    "privacy_guard.analysis.base_analysis_output": "BaseAnalysisOutput",
}


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyGuardNode:
    """PrivacyGuard's f-DP node on the surest guesses, their number planned.

    Attributes:
        guesses: How many guesses are counted.
        key: Its name in a store.
    """

    guesses: int
    key: str = "privacy_guard"

    def epsilon_lower(self, drawn: Draw) -> float:
        """Return what it reports at the task's delta and alpha."""
        task = drawn.task
        node = load()(
            m=task.canaries,
            c=int(most_confident_right(drawn, self.guesses).sum()),
            c_cap=self.guesses,
            threshold=task.alpha,
            delta=task.delta,
        )
        return float(node.run_analysis().eps)


@cache
def load() -> Any:  # noqa: ANN401 (a class that need not be there)
    """Return the node's class, from its file alone."""
    package = find_spec("privacy_guard")
    places = (package.submodule_search_locations if package else None) or []
    files = [Path(place) / _FILE for place in places]
    found = next((file for file in files if file.is_file()), None)
    spec = found and spec_from_file_location("_fdp_analysis_node", found)
    if not spec or not spec.loader:
        raise InvalidInputError(
            f"PrivacyGuard has no file {_FILE} in {[*map(str, places)]}; install the "
            "version that lab/measure/peers-requirements.txt names"
        )
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # where a dataclass looks itself up
    with _stand_ins():
        spec.loader.exec_module(module)
    return module.FDPAnalysisNode


@contextmanager
def _stand_ins() -> Iterator[None]:
    """Let empty classes stand for the base classes, and then what was there before."""
    before = {name: sys.modules.get(name) for name in _BASES}
    for name, base in _BASES.items():
        sys.modules[name] = ModuleType(name)
        setattr(sys.modules[name], base, type(base, (), {}))
    try:
        yield
    finally:
        for name, module in before.items():
            del sys.modules[name]
            if module is not None:
                sys.modules[name] = module
