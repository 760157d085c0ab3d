"""What each method shows of the same scores, and its time."""
