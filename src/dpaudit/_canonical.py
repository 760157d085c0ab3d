"""One text for one value: the JSON that is hashed, stored and compared.

Keys are sorted, nothing is padded, text is ASCII, and NaN or infinity is refused, so
equal values give equal bytes on every machine. Floats are written by ``repr``, which
reads back to the same float.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

Scalar: TypeAlias = str | int | float | bool | None
Json: TypeAlias = "Scalar | Sequence[Json] | Mapping[str, Json]"


def text(value: Json) -> str:
    """Return the canonical JSON of a value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
