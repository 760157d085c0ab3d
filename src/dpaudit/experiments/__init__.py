"""Experiments: how often each rule is wrong, and the paper's figures."""
