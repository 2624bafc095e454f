"""The unit of work, free of I/O: from record batches to output, changes of state and offsets."""
