"""Utilities around Python and the operating system for broker and library: clocks, durations, private files.

Not here: anything specific to Kafka.
"""
