"""Kafka's wire format for clients and the embedded broker: the primitives, the schemas and the codec that they drive.

Not here: sockets, and what a message means.
"""
