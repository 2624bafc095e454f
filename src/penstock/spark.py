"""Penstock for Spark programs: topics as DataFrames, and the reset of applications.

    spark.dataSource.register(TopicDataSource)
    options = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}
    orders = spark.readStream.format("penstock").options(**options).load()

`StreamsBuilder.stream_from` reads rows of DataFrames in an application, and `KStream.to_spark` passes its records to
Spark.
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
    """Delete positions, state, markers and internal topics of an application.

    Its next start is like the first (Kafka tool: kafka-streams-application-reset). Its source and sink topics stay
    unchanged.

    Args:
        topology: of the application.
        config: its configuration.

    Returns:
        The deleted objects.

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
    """Return the plan of `reset` without deleting anything; arguments and errors are those of `reset`."""
    checked = _checked(config)
    admin = ConfluentAdmin(checked)
    try:
        return planned_reset(built_topology(topology, str(checked.required("application.id"))), checked, admin.topics())
    finally:
        admin.close()


def _checked(config: StreamsConfig | Mapping[str, Any]) -> StreamsConfig:
    return config if isinstance(config, StreamsConfig) else StreamsConfig(config)
