"""What is said of clients and users of federated training."""

from collections.abc import Mapping
from typing import Final

from dpaudit.game.text.terms import FaultText, Template, counted

__all__ = ["FAULTS", "SENTENCES"]

SENTENCES: Final[Mapping[str, Template]] = {
    "clients.rounds_lost": lambda v: (
        f"{counted(v.rounds, 'round')} gave no model, as "
        "clients failed; nothing was released there, and it is not counted"
    ),
    "clients.silent": lambda v: (
        f"{counted(v.answers, 'answer')} of canary clients did "
        "not come, and put nothing in, whatever the coin"
    ),
    "clients.more_answered": lambda v: (
        "more clients than num_sampled_clients answered "
        f"in {counted(v.rounds, 'round')}; noise is larger than it must be"
    ),
}
FAULTS: Final[Mapping[str, FaultText]] = {}
