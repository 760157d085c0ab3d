"""Which audit can you believe: how often every rule and whole audit is wrong."""
