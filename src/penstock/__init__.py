"""Penstock: Kafka Streams for Python, run on Spark.

Here stand the public names and nothing else.
"""

__version__ = "0.1.0"
