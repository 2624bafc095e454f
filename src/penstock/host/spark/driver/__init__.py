"""The driver, in the user's program: checks before the start, one query after another, supervision."""
