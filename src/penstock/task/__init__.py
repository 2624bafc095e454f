"""The unit of work, free of I/O: record batches go in; output, changes of state and offsets come out."""
