"""Penstock for programs of Spark: topics as DataFrames, and applications that begin from nothing.

    spark.dataSource.register(TopicDataSource)
    options = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}
    orders = spark.readStream.format("penstock").options(**options).load()

How an application takes rows of DataFrames and hands its records to Spark: `StreamsBuilder.stream_from` and
`KStream.to_spark`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.client.confluent.admin import ConfluentAdmin
from penstock.config import StreamsConfig
from penstock.host.api import ApplicationReset
from penstock.host.spark.driver.resetting import planned_reset, reset_application
from penstock.host.spark.frames.topic_source import TopicDataSource
from penstock.plan.topology import Topology, built_topology

__all__ = ["ApplicationReset", "TopicDataSource", "plan_reset", "reset"]


def reset(topology: Topology, config: StreamsConfig | Mapping[str, Any]) -> ApplicationReset:
    """Delete positions, state, markers and internal topics of an application, so that its next start is a first one
    (Kafka tool: kafka-streams-application-reset). The topics that it reads and writes stay unchanged.

    Args:
        topology: that of the application.
        config: its configuration.

    Returns:
        what was deleted.

    Raises:
        LockError: the application runs on this machine.
        KafkaError: the brokers do not answer, or do not allow it.
    """
    checked = _checked(config)
    admin = ConfluentAdmin(checked)
    try:
        return reset_application(built_topology(topology, str(checked.required("application.id"))), checked, admin)
    finally:
        admin.close()


def plan_reset(topology: Topology, config: StreamsConfig | Mapping[str, Any]) -> ApplicationReset:
    """Return what `reset` would delete, and delete nothing; arguments and errors are those of `reset`."""
    checked = _checked(config)
    admin = ConfluentAdmin(checked)
    try:
        return planned_reset(built_topology(topology, str(checked.required("application.id"))), checked, admin.topics())
    finally:
        admin.close()


def _checked(config: StreamsConfig | Mapping[str, Any]) -> StreamsConfig:
    return config if isinstance(config, StreamsConfig) else StreamsConfig(config)
