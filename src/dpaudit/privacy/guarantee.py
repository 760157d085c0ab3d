"""Any guarantee; every member has the same four verbs.

``delta_at(epsilon)``, ``epsilon_at(delta)``, ``complement_inverse(chance)`` and
``points()``.
"""

from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from dpaudit import _canonical
from dpaudit.errors import InvalidInputError
from dpaudit.privacy.adjacency import Adjacency
from dpaudit.privacy.curve import PrivacyCurve
from dpaudit.privacy.guarantees import ApproxDP, GaussianDP, PureDP

__all__ = ["Guarantee", "guarantee_from_plain", "guarantee_to_plain"]

Guarantee: TypeAlias = PureDP | ApproxDP | GaussianDP | PrivacyCurve

_KINDS: MappingProxyType[str, type[Guarantee]] = MappingProxyType(
    {"pure": PureDP, "approx": ApproxDP, "gaussian": GaussianDP, "curve": PrivacyCurve}
)


def guarantee_to_plain(guarantee: Guarantee) -> dict[str, _canonical.Json]:
    """Return a guarantee as plain JSON values.

    Example:
        >>> guarantee_to_plain(PureDP(epsilon=1.0))
        {'kind': 'pure', 'epsilon': 1.0, 'adjacency': 'add-remove'}
    """
    kind = next(name for name, cls in _KINDS.items() if type(guarantee) is cls)
    # As floats throughout: equal guarantees, equal texts.
    plain: dict[str, _canonical.Json] = {
        name: value.tolist() if isinstance(value, np.ndarray) else float(value)
        for name, value in asdict(guarantee).items()
        if name != "adjacency"
    }
    return {"kind": kind, **plain, "adjacency": str(guarantee.adjacency)}


def guarantee_from_plain(plain: Mapping[str, Any]) -> Guarantee:
    """Return the guarantee that plain JSON values describe."""
    if not isinstance(plain, Mapping):
        raise InvalidInputError(f"a claim must be an object, got {plain!r}")
    values = dict(plain)
    kind = values.pop("kind", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise InvalidInputError(
            f"a claim must have a kind, one of {', '.join(_KINDS)}, got {kind!r}"
        )
    values["adjacency"] = _canonical.member(Adjacency, values.get("adjacency"))
    try:
        whole = {n: float(v) for n, v in values.items() if type(v) is int}
        return _KINDS[kind](**{**values, **whole})
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"a claim of kind {kind!r}: {error}") from error
