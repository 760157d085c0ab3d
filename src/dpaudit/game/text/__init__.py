"""Findings and results as text, made last: the one place where sentences are written.

``findings`` renders one finding, by the catalogues beside it; ``results`` renders a
result. Nothing outside this package reads what it returns.
"""
