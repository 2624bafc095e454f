"""State read from outside the tasks: interactive queries and DataFrames, in the driver and in other processes."""
