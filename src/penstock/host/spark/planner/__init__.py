"""Planning in the one long-lived process of Spark's source: the end of each epoch, and its input partitions."""
