"""Penstock's own connections to brokers, for requests that librdkafka lacks.

They concern group membership and the administration of transactions. Connections use the same configuration keys as the
clients of librdkafka; they refuse keys without a counterpart (tls.py, sasl.py).
"""
