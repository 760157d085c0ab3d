"""Charts of the studies, drawn by matplotlib."""
