"""What a one-run audit can find: privacy levels, efficacy, gaps, tightness, power."""
