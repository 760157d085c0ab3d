"""DP-SGD with Dirac canaries: what a guesser can infer from noisy sums."""
