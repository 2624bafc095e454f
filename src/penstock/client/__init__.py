"""What the hosts and the command line need of Kafka.

Protocols (api), settings (settings) and their only implementation (confluent).
"""
