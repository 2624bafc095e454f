"""What crosses between driver, planner, workers and sink: rows, messages, the recipe, placement, pickles, errors."""
