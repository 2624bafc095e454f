"""Measurements and traces of tasks."""
