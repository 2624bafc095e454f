"""A schema registry beside the embedded broker: the part of Confluent's REST API that its clients use.

The topic `_schemas` of the broker holds everything, in Confluent's record format; what is in memory is what the topic
says. One process, without access control, for this machine only. Not here: the serdes that use a registry
(penstock.serdes).
"""
