"""Calls of functions outside of tasks: the loop that makes them, and the writer of their answers."""
