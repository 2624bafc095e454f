"""Penstock's own connections to brokers, for what librdkafka has no function for: membership of groups, transactions as
an administrator sees them.

A connection is made from the same configuration keys as the clients of librdkafka; which of them it has no counterpart
for, it refuses (tls.py, sasl.py).
"""
