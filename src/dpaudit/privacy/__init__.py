"""Guarantees of privacy, as values."""
