"""Scores from files: tables of (id, bit, score), and lists for in and for out."""
