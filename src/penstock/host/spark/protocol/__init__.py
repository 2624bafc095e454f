"""The data exchanged by driver, planner, workers and sink.

Rows, messages, the application description, placement, pickles, and errors.
"""
