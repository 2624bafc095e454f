"""What the broker and the library both need of Python and the operating system: clocks, durations, private files.

Not here: anything that knows Kafka.
"""
