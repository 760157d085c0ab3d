"""Many trials over many settings, kept in a store that survives any death."""
