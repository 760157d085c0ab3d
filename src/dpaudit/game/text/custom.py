"""Findings of adapters that are not part of this package, in their own words.

A user's adapter has no entry in a catalogue: its findings have the code ``custom`` and
carry their text in ``numbers``.
"""

from collections.abc import Mapping
from typing import Final

from dpaudit.game.text.terms import FaultText, Template

__all__ = ["FAULTS", "SENTENCES"]

SENTENCES: Final[Mapping[str, Template]] = {"custom": "{text}"}
FAULTS: Final = {
    "custom.fault": FaultText(
        what="{what}", measured="{measured}", expected="{expected}", cause="{cause_is}"
    )
}
