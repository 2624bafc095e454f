"""Penstock for programs of Spark: topics as DataFrames.

    spark.dataSource.register(TopicDataSource)
    options = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}
    orders = spark.readStream.format("penstock").options(**options).load()

How an application takes rows of DataFrames and hands its records to Spark: `StreamsBuilder.stream_from` and
`KStream.to_spark`.
"""

from penstock.host.spark.frames.topic_source import TopicDataSource

__all__ = ["TopicDataSource"]
