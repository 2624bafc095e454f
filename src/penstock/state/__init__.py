"""State: stores as buffers of uncommitted writes over a committed base, the bases, the record cache, and the segments
that make state durable."""
