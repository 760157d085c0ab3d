"""Scores from files: tables of (id, bit, score), and lists of scores in and out."""
