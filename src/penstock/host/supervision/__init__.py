"""Restarts of applications, their shares of processor time, and their progress."""
