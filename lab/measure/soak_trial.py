"""One audit of a sweep, in a file that its workers import quickly: for ``soak.py``."""

import numpy as np

from dpaudit import ApproxDP, Coins, Design, OneRun, Result, audit_scores
from dpaudit.game.rules import Rules
from dpaudit.testing import fixed_key
from dpaudit_lab.sweeps.store import Outcome, Setting

__all__ = ["CANARIES", "scored", "trial"]

CANARIES = 300


def scored(rng: np.random.Generator, rules: Rules) -> Result:
    """Return an audit of scores that leak some."""
    coins = Coins(key=fixed_key(rng.bytes(32)), count=CANARIES)
    scores = 1.5 * coins.bits() + rng.normal(size=CANARIES)
    claim = ApproxDP(epsilon=1.0, delta=1e-5)
    design = Design(canaries=CANARIES, rules=rules, claim=claim)
    return audit_scores(np.arange(CANARIES), coins, scores, design=design)


def trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Run in a worker."""
    result = scored(rng, OneRun(guesses=int(setting["guesses"] or 0)))
    return {"epsilon": result.bound.epsilon_lower}
