"""How often limited rounds refute a true claim, in a game of the size of DP-SGD's.

    python lab/measure/rounds_validity.py --store rounds.sqlite --workers 2  # or resume
    python lab/measure/rounds_validity.py --audits 200                       # a look

12,000 canaries in 12 rounds, jump 0.35, noise 0.01, alpha 0.05, tested at the boundary
of the claim (0.8, 1e-5), 20,000 games through the referee for each row. Mechanisms:
randomised response, exactly 0.8-DP; leaky randomised response, which shows each coin
outright with chance 1e-5, exactly (0.8, 1e-5)-DP; and the one that spends its whole
delta where the count of right guesses decides. Guessers: one that states more than it
knows, and one that stops when ahead and stakes more when behind. Exits with 1 if the
lower limit of a rate (99.9 %, Bonferroni) exceeds alpha.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from scipy import special
from sweeping import filled

from dpaudit import AdaptiveRounds, ApproxDP, Coins, Design
from dpaudit.bounds.rounds import RoundsBound
from dpaudit.game import Referee
from dpaudit.stats.binomial import rate_limits
from dpaudit.testing import fixed_key
from dpaudit_lab.calibration.nulls import Attaining
from dpaudit_lab.sweeps.store import Outcome, Setting
from dpaudit_lab.sweeps.sweep import Sweep

N, ROUNDS, EACH = 12_000, 12, 60
CLAIM = ApproxDP(epsilon=0.8, delta=1e-5)
ALPHA, PER_TRIAL, FALSE_ALARM = 0.05, 100, 0.001
RULES = AdaptiveRounds(
    round_weights=tuple(np.linspace(0.5, 1.5, ROUNDS).tolist()),
    max_jump=0.35,
    randomness_share=0.01,
)
DESIGN = Design(canaries=N, rules=RULES, claim=CLAIM, alpha=ALPHA)
CRITICAL = 518  # of 720: the least count that the exact bound rejects
SPENDS = Attaining(claim=CLAIM, canaries=N, guesses=ROUNDS * EACH, correct=CRITICAL)
LAW = SPENDS.law() / SPENDS.law().sum()


def output(name: str, bits: np.ndarray, rng: np.random.Generator) -> tuple:
    """Return a guess for every canary, and how far beyond epsilon it is stated."""
    signs = 2 * bits.astype(np.int8) - 1
    if name == "spends delta at one count":
        place = rng.permutation(N)
        right = place < rng.choice(len(LAW), p=LAW)
        beyond = np.where(place < ROUNDS * EACH, 0.5, 0.0)
        return np.where(right, signs, -signs).astype(np.int8), beyond
    right = rng.random(N) < special.expit(CLAIM.epsilon)
    guess = np.where(right, signs, -signs).astype(np.int8)
    beyond = np.where(np.arange(N) // ROUNDS < EACH, rng.choice([0.3, 0.6], N), 0.0)
    if name == "leaky randomised response":
        shown = rng.random(N) < CLAIM.delta
        guess, beyond = np.where(shown, signs, guess), np.where(shown, 2.0, beyond)
    return guess, beyond


def one_game(mechanism: str, guesser: str, rng: np.random.Generator) -> bool:
    """Play a game and say whether the claim, which is true, was refuted."""
    key = fixed_key(rng.bytes(32))
    guess, beyond = output(mechanism, Coins(key=key, count=N).bits(), rng)
    referee, ahead, made = Referee(DESIGN, key), 0.0, 0
    p = float(special.expit(CLAIM.epsilon))
    for r in range(ROUNDS):
        index = np.arange(r, N, ROUNDS)
        what, stated = guess[index], beyond[index]
        if guesser == "stops when ahead":
            lead = ahead / np.sqrt(max(made, 1) * p * (1 - p))
            if lead > 1.5:
                break
            few = np.cumsum(stated > 0) <= (EACH if lead < 0 else EACH // 6)
            stated = np.where((stated > 0) & few, 2.0 if lead < 0 else 0.2, 0.0)
        what = np.where(stated > 0, what, 0)
        truth = referee.submit(index, what, CLAIM.epsilon + stated)
        ahead += np.sum((what == truth)[what != 0]) - p * np.count_nonzero(what)
        made += np.count_nonzero(what)
    reading = referee.close().reading()
    how = {"epsilon": CLAIM.epsilon, "delta": CLAIM.delta}
    return RoundsBound().log_p_value(reading, **how) <= np.log(ALPHA)


def trial(setting: Setting, rng: np.random.Generator) -> Outcome:
    """Play some games."""
    who = str(setting["mechanism"]), str(setting["guesser"])
    return {"refuted": sum(int(one_game(*who, rng)) for _ in range(PER_TRIAL))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--audits", type=int, default=20_000)
    parser.add_argument("--store", type=Path, default=Path("rounds_validity.sqlite"))
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    planned = Sweep(
        name="rounds validity",
        revision=1,
        function=trial,
        settings=[
            {"mechanism": mechanism, "guesser": guesser}
            for mechanism in (
                "randomised response",
                "leaky randomised response",
                "spends delta at one count",
            )
            for guesser in ("states too much", "stops when ahead")
        ],
        trials=args.audits // PER_TRIAL,
    )
    fails = False
    with filled(planned, args.store, workers=args.workers, doing="playing") as store:
        for setting in planned.settings:
            rows = list(store.outcomes(planned.cell(setting), planned.trials))
            refuted, games = sum(int(r["refuted"]) for r in rows), PER_TRIAL * len(rows)
            level = 2 * FALSE_ALARM / len(planned.settings)
            low, high = rate_limits(refuted, games, alpha=level)
            fails |= low > ALPHA
            print(
                f"{setting['mechanism']}, {setting['guesser']}: {refuted} of {games}, "
                f"{refuted / games:.4f} [{low:.4f}, {high:.4f}]"
                f"{' FAILS' if low > ALPHA else ''}"
            )
    sys.exit(fails)


if __name__ == "__main__":
    main()
