"""A schema registry in the embedded broker: the part of Confluent's REST API used by clients.

The topic `_schemas` of the broker is the only storage, in Confluent's record format; memory has a copy. One process,
without access control, for this machine only. The serdes for a registry are in penstock.serdes.
"""
