"""What a one-run audit can show: privacy levels, efficacy, gaps, tightness, power."""
