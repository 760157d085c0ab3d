"""Where two JSON values differ, and what each says there.

Numbers that are computed are compared to a part in ten million: another machine, or
another version of numpy or scipy, may round the last digits otherwise. Everything else
must be the same.
"""

from math import isclose
from types import MappingProxyType
from typing import Any

__all__ = ["differences"]

_CLOSE = 1e-7
# Numbers that are computed, and how far apart they may be near 0: searches are closed
# in on to 1e-10, and a p-value may be as small as it likes.
_COMPUTED: MappingProxyType[str, float] = MappingProxyType(
    {
        "epsilon_lower": 1e-9,
        "ceiling": 1e-9,
        "p_value": 0.0,
        "accuracy_caught": 1e-9,
        "parameter_lower": 1e-9,
        "model_epsilon": 1e-9,
        "edges": 1e-9,
        "false_positive": 1e-9,
        "true_positive": 1e-9,
    }
)


def differences(stated: Any, found: Any, path: str = "") -> list[str]:  # noqa: ANN401 (parsed JSON)
    """Return where two JSON values differ, and what each says there."""
    if isinstance(stated, dict) and isinstance(found, dict):
        return [
            each
            for name in sorted(stated.keys() | found.keys())
            for each in differences(stated.get(name), found.get(name), f"{path}.{name}")
        ]
    if isinstance(stated, list) and isinstance(found, list):
        if len(stated) != len(found):
            return [f"{path[1:]} has {len(stated)} entries and not {len(found)}"]
        return [
            each
            for place, pair in enumerate(zip(stated, found, strict=True))
            for each in differences(*pair, f"{path}[{place}]")
        ]
    if _same(stated, found, path):
        return []
    return [f"{path[1:]} is stated as {stated!r:.60} and derives as {found!r:.60}"]


def _is_free(path: str) -> bool:
    """Return whether names at a path are the user's own."""
    return f"{path}.".find(".setting.") >= 0


def _same(stated: Any, found: Any, path: str) -> bool:  # noqa: ANN401 (parsed JSON)
    if type(stated) is not type(found):
        return False
    tiny = _COMPUTED.get(path.rpartition(".")[2].partition("[")[0])
    if tiny is None or not isinstance(stated, float) or _is_free(path):
        return bool(stated == found)
    return isclose(stated, found, rel_tol=_CLOSE, abs_tol=tiny)
