"""The code of an epoch in workers of Spark: source, stages, sink, and task state."""
