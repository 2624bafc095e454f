"""The embedded Kafka broker: one node, a durable log, loopback only; a program of its own."""
