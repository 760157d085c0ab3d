"""Faults and correct programs by authors who did not know the audit's checks."""
