"""Audits that ride on real training runs."""
