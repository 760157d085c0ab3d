"""Any guarantee; every member has the same verbs.

``delta_at(epsilon)``, ``epsilon_at(delta)``, ``complement_inverse(chance)``, the same
of many chances by ``complement_inverses()``, and ``points()``.
"""

from typing import TypeAlias

from dpaudit.privacy.curve import PrivacyCurve
from dpaudit.privacy.guarantees import ApproxDP, GaussianDP, PureDP

__all__ = ["Guarantee"]

Guarantee: TypeAlias = PureDP | ApproxDP | GaussianDP | PrivacyCurve
