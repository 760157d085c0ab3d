"""DP-SGD with Dirac canaries: what an adversary can infer from noisy sums."""
