"""Privacy guarantees as immutable values."""
