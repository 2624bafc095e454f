"""Kafka clients of the hosts and the command line.

`api` has the protocols, `settings` the settings, and `confluent` the only implementation.
"""
