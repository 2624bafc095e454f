"""State stores: buffers of uncommitted writes over a committed base, record caches and durable segments."""
