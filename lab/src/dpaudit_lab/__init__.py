"""What studies auditing: figures, calibration, comparisons, bugs on purpose."""
