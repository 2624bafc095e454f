"""What crosses between driver, planner, workers and sink: rows, messages, the application description, placement,
pickles, errors."""
