"""Kafka's wire format for clients and the embedded broker: the primitives, and the codec that kio's schemas drive.

Not here: sockets, and what a message means.
"""
