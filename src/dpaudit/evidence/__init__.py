"""The record of an audit, and how others check it."""
