"""Every figure of the paper, as sweeps that fill a store and charts drawn from it.

Reference: Keinan, Shenfeld and Ligett, https://arxiv.org/abs/2503.07199.
"""
