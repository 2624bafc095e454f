"""The parts of an epoch in workers of Spark: source, stages and sink, and the state of their tasks."""
