"""What was found, for people: pictures; they need the extra ``report``."""
