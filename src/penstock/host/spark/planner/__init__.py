"""What runs in the one long-lived process of Spark's source: how far each epoch reads, and its input partitions."""
