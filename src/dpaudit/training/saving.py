"""An audit's state in a file: plain arrays, without pickle and without the key.

The file holds what the guesser has seen so far and the commitment, which binds it to
its key and design; a state of another audit is refused. It says nothing about the coins
that the noisy sums do not say.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpaudit._files import whole_file
from dpaudit.errors import InvalidInputError, VoidAuditError
from dpaudit.game.design import Commitment
from dpaudit.tables.npy_files import array_names, read_arrays

__all__ = ["read_state", "write_state"]

_FORMAT = "dpaudit.training.1"


def write_state(
    path: str | Path, commitment: Commitment, state: Mapping[str, NDArray[Any]]
) -> None:
    """Write a state; the file is replaced as a whole or not at all."""
    with whole_file(path) as draft, draft.open("wb") as file:
        np.savez(
            file,
            allow_pickle=False,
            format=np.array(_FORMAT),
            commitment=np.array(commitment.sha256),
            **state,
        )


def read_state(path: str | Path, commitment: Commitment) -> dict[str, NDArray[Any]]:
    """Return the state that a file holds, if it is this audit's."""
    path = Path(path)
    if not path.is_file():
        raise InvalidInputError(f"there is no file {path}")
    try:
        state = read_arrays(path, array_names(path))
    except InvalidInputError as error:
        raise InvalidInputError(
            f"{path} holds no state of an audit, or not a whole one ({error}); go on "
            "from another checkpoint"
        ) from error
    if str(state.pop("format", "")) != _FORMAT:
        raise InvalidInputError(
            f"{path} holds no state of an audit that this version can read"
        )
    if str(state.pop("commitment", "")) != commitment.sha256:
        raise VoidAuditError(
            f"{path} belongs to another audit: key or design differ. Resume with the "
            "key that the audit began with (keep it with key.write(path)), the same "
            "design, and the same model and loader"
        )
    return state
