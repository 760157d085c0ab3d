"""Run many independent tasks, and keep what they found."""
