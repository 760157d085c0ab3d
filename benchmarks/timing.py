"""CPU time, and the ratio of two of them with its interval: for the other scripts."""

from dpaudit.experiments.power.timing import cpu, median_ratio

__all__ = ["cpu", "median_ratio"]
