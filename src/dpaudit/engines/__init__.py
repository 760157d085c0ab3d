"""Engines that run many independent tasks and yield their results."""
