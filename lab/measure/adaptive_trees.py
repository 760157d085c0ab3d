"""Does learning coins on the way help an (epsilon, delta)-DP mechanism and its guesser?

A plan says which canary to guess next, how, and with which weight, given the coins that
were revealed; a canary may be passed and is revealed as well. What counts of a plan is
the set of coins under which it wins: "so much weight is right, or more". For a plan and
a law ``g`` of coins given that the plan was chosen, what delta can add is linear,

    (g(wins) - beta g(all)) / sum over coins and flips of (g(S) - e^epsilon g(S^i))^+,

and its largest value W, a linear program, is what one delta of one canary is worth. By
symmetry the worst mechanism is that of the worst plan. For guesses made all at once W
is the price of the exact bound.

``python lab/measure/adaptive_trees.py all 5`` goes through every plan with up to so
many canaries, up to symmetry; with 5 counts only, which takes 20 minutes. ``search
6`` lets plan and mechanism answer each other with their best, from random beginnings.
"""

import math
import sys
from collections.abc import Iterator
from functools import cache
from itertools import permutations
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, sparse

Slots: TypeAlias = tuple[int, ...]
Law: TypeAlias = NDArray[np.float64]

EPSILONS = (0.0, 0.7)
WEIGHTED: tuple[Slots, ...] = (
    (1, 2),
    (1, 1, 2),
    (1, 2, 2),
    (1, 2, 3),
    (1, 1, 1, 2),
    (1, 1, 2, 2),
    (1, 1, 2, 3),
)


def worth(wins: Law, beta: float, m: int, epsilon: float) -> tuple[float, Law]:
    """Return W of a set of winning coins, and the law that attains it."""
    size = 1 << m
    flips = (np.arange(size)[:, np.newaxis] ^ (1 << np.arange(m))).ravel()
    one = sparse.kron(sparse.eye_array(size), np.ones((m, 1)))
    other = sparse.eye_array(size).tocsr()[flips]
    excess = sparse.eye_array(size * m)
    above = sparse.hstack([one - math.exp(epsilon) * other, -excess], format="csr")
    paid = np.append(np.zeros(size), np.ones(size * m))[np.newaxis]
    found = optimize.linprog(
        np.append(beta - wins, np.zeros(size * m)),
        A_ub=sparse.vstack([above, sparse.csr_array(paid)], format="csr"),
        b_ub=np.append(np.zeros(size * m), 1.0),
    )
    assert found.status == 0
    return -found.fun, found.x[:size]


def tail(slots: Slots, need: int, epsilon: float) -> float:
    """Return the chance of so much weight under coins of odds e^epsilon."""
    law, p = {0: 1.0}, 1 / (1 + math.exp(-epsilon))
    for weight in slots:
        after: dict[int, float] = {}
        for score, chance in law.items():
            after[score] = after.get(score, 0.0) + (1 - p) * chance
            after[score + weight] = after.get(score + weight, 0.0) + p * chance
        law = after
    return sum(chance for score, chance in law.items() if score >= need)


def at_once(slots: Slots, need: int, m: int) -> Law:
    """Return where guesses about the first canaries win that are all made at once."""
    bits = np.arange(1 << m)[:, np.newaxis] >> np.arange(len(slots)) & 1
    return np.asarray(bits @ slots >= need, np.float64)


# Every plan: sets of winning coins are the bits of a number


@cache
def win_sets(m: int, slots: Slots, need: int) -> frozenset[int]:
    """Return where plans with m canaries win, every one of them."""
    if need <= 0:
        return frozenset([(1 << (1 << m)) - 1])
    if sum(slots) < need:
        return frozenset([0])
    found = set()
    for weight, rest in _choices(slots, passing=m > len(slots)):
        for right in win_sets(m - 1, rest, need - weight):
            for wrong in win_sets(m - 1, rest, need):
                for i in range(m):
                    found.add(_spread(m, i, right) << (1 << i) | _spread(m, i, wrong))
                    found.add(_spread(m, i, wrong) << (1 << i) | _spread(m, i, right))
    return frozenset(found)


def _choices(slots: Slots, *, passing: bool) -> Iterator[tuple[int, Slots]]:
    """Yield the weight of the next guess, and the slots that are left."""
    for weight in dict.fromkeys(slots):
        place = slots.index(weight)
        yield weight, slots[:place] + slots[place + 1 :]
    if passing:
        yield 0, slots


@cache
def _spread(m: int, i: int, wins: int) -> int:
    """Return a set of coins without the i-th as one with it, where it is 0."""
    return sum(
        1 << (s >> i << i + 1 | s & (1 << i) - 1)
        for s in range(1 << m - 1)
        if wins >> s & 1
    )


def plans(m: int, slots: Slots, need: int) -> list[int]:
    """Return a set for every class of plans that begin with a guess of canary 0.

    Those that begin with a pass are two plans with fewer canaries, each at half of the
    coins, and worth no more than the better. Whatever symmetry brings the first of two
    parts to its class's form is applied to both.
    """
    if m == 1 or not 0 < need <= sum(slots):
        return _classes(win_sets(m, slots, need), m)
    return _classes(
        {
            right << 1 | wrong
            for weight, rest in _choices(slots, passing=False)
            for right in (
                _spread(m, 0, one)
                for one in _classes(win_sets(m - 1, rest, need - weight), m - 1)
            )
            for wrong in (_spread(m, 0, one) for one in win_sets(m - 1, rest, need))
        },
        m,
    )


def _classes(sets: "set[int] | frozenset[int]", m: int) -> list[int]:
    """Return one set of each class under flips and permutations of coins."""
    size = 1 << m
    listed = np.array(sorted(sets), np.uint64)
    bits = (listed[:, np.newaxis] >> np.arange(size, dtype=np.uint64)) & np.uint64(1)
    columns = np.asarray(bits, np.int64).T.copy()
    least = np.full(len(listed), np.iinfo(np.int64).max)
    points = np.arange(size)
    for order in permutations(range(m)):
        moved = sum((points >> i & 1) << j for i, j in enumerate(order))
        for flip in range(size):
            powers = 1 << (moved ^ flip)
            least = np.minimum(least, powers @ columns)
    return sorted(set(least.tolist()))


def go_through(most: int) -> None:
    """Print how much the best plan is worth beside guesses made at once."""
    for m in range(2, most + 1):
        weighted = [slots for slots in WEIGHTED if len(slots) <= m < 5]
        for slots in [*((1,) * r for r in range(2, m + 1)), *weighted]:
            for need in range(1, sum(slots) + 1):
                _print(m, slots, need)


def _print(m: int, slots: Slots, need: int) -> None:
    found = plans(m, slots, need)
    bits = [np.array([wins >> s & 1 for s in range(1 << m)], float) for wins in found]
    ratios = []
    for epsilon in EPSILONS:
        beta = tail(slots, need, epsilon)
        base, _ = worth(at_once(slots, need, m), beta, m, epsilon)
        most = max(worth(wins, beta, m, epsilon)[0] for wins in bits)
        ratios.append(f"{most / base:.9f}")
    said = (
        f"{len(found)} plans, worth at most {' and '.join(ratios)} of guesses at once"
    )
    print(f"{m} canaries, slots {slots}, weight {need} or more: {said}", flush=True)


# Best answers


Step: TypeAlias = tuple[int, int, int, Slots]  # canary, guess, weight, slots left


def best_plan(g: Law, m: int, slots: Slots, need: int) -> Law:
    """Return where the plan wins that is best against a law of coins."""
    parts = g.reshape((2,) * m)

    @cache
    def best(
        known: tuple[int | None, ...], left: Slots, lacking: int
    ) -> tuple[float, Step | None]:
        if lacking <= 0 or sum(left) < lacking:
            where = tuple(slice(None) if bit is None else bit for bit in known)
            return float(parts[where].sum()) * (lacking <= 0), None
        found: tuple[float, Step | None] = (-1.0, None)
        free = [i for i, bit in enumerate(known) if bit is None]
        for weight, rest in _choices(left, passing=len(free) > len(left)):
            for i in free:
                for guess in (0, 1) if weight else (0,):
                    value = sum(
                        best(
                            (*known[:i], bit, *known[i + 1 :]),
                            rest,
                            lacking - weight * (bit == guess),
                        )[0]
                        for bit in (0, 1)
                    )
                    if value > found[0] + 1e-13:
                        found = value, (i, guess, weight, rest)
        return found

    def wins(coins: tuple[int, ...]) -> bool:
        known: tuple[int | None, ...] = (None,) * m
        left, lacking = slots, need
        while (step := best(known, left, lacking)[1]) is not None:
            i, guess, weight, left = step
            lacking -= weight * (coins[i] == guess)
            known = (*known[:i], coins[i], *known[i + 1 :])
        return lacking <= 0

    return np.array([float(wins(coins)) for coins in np.ndindex(parts.shape)])


def search(most: int) -> None:
    """Print the most that answers to answers find, beside guesses made at once."""
    rng = np.random.default_rng(1)
    for m in range(5, most + 1):
        for r in range(2, m + 1):
            for need in range(1, r + 1):
                ratios = [_answers((1,) * r, need, m, e, rng) for e in EPSILONS]
                print(
                    f"{m} canaries, {r} guesses, {need} right: "
                    f"{' and '.join(f'{ratio:.9f}' for ratio in ratios)}",
                    flush=True,
                )


def _answers(
    slots: Slots, need: int, m: int, epsilon: float, rng: np.random.Generator
) -> float:
    beta, found = tail(slots, need, epsilon), 0.0
    for _ in range(5):
        g, last, value = rng.random(1 << m) ** rng.choice([1, 4, 12]), -1.0, 0.0
        while value > last * (1 + 1e-9):
            last = max(last, value)
            value, g = worth(best_plan(g, m, slots, need), beta, m, epsilon)
        found = max(found, last)
    return found / worth(at_once(slots, need, m), beta, m, epsilon)[0]


if __name__ == "__main__":
    {"all": go_through, "search": search}[sys.argv[1]](int(sys.argv[2]))
