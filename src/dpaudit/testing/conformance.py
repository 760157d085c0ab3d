"""What a conformance check says: all it checked, or the first thing that fails.

The checks are for people who add a bound, a guesser or an adapter of their own. A check
that passes returns what it looked at. One that fails raises, and names the case: a
counterexample is worth more than a verdict.
"""

from dataclasses import dataclass
from typing import final

__all__ = ["Conformance"]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Conformance:
    """What a check that found nothing wrong has looked at.

    Attributes:
        subject: What was checked.
        checked: What was found to hold, one sentence each.

    Example:
        >>> print(Conformance(subject="a bound", checked=("it is silent at chance",)))
        a bound conforms:
        - it is silent at chance
    """

    subject: str
    checked: tuple[str, ...]

    def __str__(self) -> str:
        return "\n- ".join([f"{self.subject} conforms:", *self.checked])
