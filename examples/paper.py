"""The core of "How Well Can Differential Privacy Be Audited in One Run?", by itself.

Keinan, Shenfeld and Ligett, https://arxiv.org/abs/2503.07199, in numpy and scipy and in
the paper's letters: M algorithm, G guesser, S coins, D data, o output, T guesses, of
which r are taken and v are correct. `python examples/paper.py` prints its numbers.
"""
import numpy as np
from scipy.special import expit as p, logit as p_inv  # p(x) = e^x / (e^x + 1)
from scipy.stats import beta as beta_law

rng = np.random.default_rng(0)
def coins(n):  # uniform on {-1, 1}^n
    return rng.choice([-1, 1], n)
def bound(v, r, beta=0.05):  # eps'_beta(v, r), Section 2: p_inv of Clopper-Pearson's
    return max(0.0, p_inv(beta_law.ppf(beta, v, r - v + 1))) if v else 0.0

def ora(M, G, n, x=-1, y=1):  # Algorithm 1, one-run auditor; Z = (x, y, ..., x, y)
    S = coins(n)
    T = G(M(np.where(S == 1, y, x)))
    return np.sum(T == S), np.sum(T != 0)
def classic(M, G, D_base, j, c, x=-1, y=1):  # Algorithm 2, classic auditor; c runs
    S, T, D = coins(c), np.zeros(c), np.array(D_base)
    for i in range(c):
        D[j] = y if S[i] == 1 else x
        T[i] = G(M(D))
    return np.sum(T == S), np.sum(T != 0)
def aora(M, G, n, r, x=-1, y=1):  # Definition E.3; r, the most guesses, is fixed
    S, v, taken, seen = coins(n), 0, 0, {}
    o = M(np.where(S == 1, y, x))
    while len(seen) < n and taken < r:
        I, T_I = G(o, seen)  # an index; 1, -1, or 0 for a pass
        assert I not in seen  # "that it still has not guessed": its coin is known
        v, taken, seen[I] = v + (T_I == S[I]), taken + (T_I != 0), S[I]
    return v, r  # a guess not made counts as wrong: see docs/explanation/errata.md

def lrr(eps):  # Definition 4.2, local randomized response: eps(M) = eps
    return lambda D: np.where(rng.random(len(D)) < p(eps), D, -D)
def nas(D):  # gap 1, name and shame (with the index); from here eps(M) = infinity
    return (i := rng.integers(len(D))), D[i]
def aon(q):  # gap 2, all or nothing; the paper's p is q here, and its null is zeros
    return lambda D: D if rng.random() < q else np.zeros(len(D))
def xor(D):  # gap 3, XOR: every element interferes with every other
    return np.sum(D == 1) % 2
def xor_in_pairs(D):  # Definition E.6
    return np.sum(D.reshape(-1, 2) == 1, axis=1) % 2
def pair_guesser(o, seen):  # Proposition E.7: pass on the first of a pair, then know
    i = len(seen)
    return i, 2 * ((seen[i - 1] == 1) ^ o[i // 2]) - 1 if i % 2 else 0

def dp_sgd(s, sigma=2.4224014, steps=100, rate=0.1):  # Algorithm 3; (2, 1e-5)-DP by RDP
    def M(D):  # s elements at each coordinate, whose Dirac gradients are 0 or 1
        B = (D * (rng.random(len(D)) < rate) for _ in range(steps))  # batches
        g = sum(B_t.reshape(-1, s).sum(1) for B_t in B)  # over steps: G uses no more
        noise = rng.normal(0, sigma * steps**0.5, len(g))  # the sum of all steps' noise
        return np.repeat(g + noise, s)  # for each element the sum at its coordinate
    return M
def sorting_guesser(k):  # Section 6.2: 1 for the k/2 highest, -1 for the lowest
    def G(o):
        rank = np.argsort(np.argsort(o, kind="stable"))
        return 1 * (rank >= len(o) - k // 2) - 1 * (rank < k // 2)
    return G
def efficacy(M, G, n=1000, games=400):  # Definition 3.2, E[V / R]
    return np.mean([v / r for v, r in (ora(M, G, n) for _ in range(games))])

if __name__ == "__main__":
    n = 1000
    print(f"LRR, eps 1: efficacy {efficacy(lrr(1), lambda o: o):.3f}, p(1) {p(1):.3f}")
    named = efficacy(nas, lambda o: np.where(np.arange(n) == o[0], o[1], coins(n)))
    print(f"NAS: efficacy {named:.4f} ± 0.0008, 1/2 + 1/2n = 0.5005, paper → 1/2")
    nulls = efficacy(aon(0.1), lambda o: np.where(o == 0, coins(n), o))
    print(f"AON, p = 0.1: efficacy {nulls:.3f}, paper 1/2 + p/2 = 0.55")
    print(f"XOR: efficacy {efficacy(xor, lambda o: np.full(n, 2*o-1)):.3f}, paper 1/2")
    v, r = classic(xor, lambda o: 2 * o - 1, -np.ones(n), 0, 100)
    print(f"XOR by classic auditing: {v} of {r} correct, bound {bound(v, r):.2f}")
    v, r = aora(xor_in_pairs, pair_guesser, n, n // 2)
    print(f"XOR in pairs by AORA: {v} of {r} correct, bound {bound(v, r):.2f}")
    for s, printed in ((1, 0.49), (8, 0.62)):  # by a bound at delta = 1e-5, ours at 0
        b = [bound(*ora(dp_sgd(s), sorting_guesser(100), n * s, 0)) for _ in range(200)]
        mean = f"{np.mean(b):.3f} ± {np.std(b) / 200**0.5:.3f} at delta = 0"
        print(f"DP-SGD, {s} per coordinate: {mean}, paper {printed} ± 0.01 at 1e-5")
