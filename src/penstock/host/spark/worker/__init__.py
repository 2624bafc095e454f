"""What runs in workers of Spark for one epoch: source, stages and sink, and the state of their tasks."""
