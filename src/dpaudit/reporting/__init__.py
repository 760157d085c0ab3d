"""Reports and pictures of results for readers; they need the extra ``report``."""
