"""Resets an application, so that its next start is a first start (Kafka tool: kafka-streams-application-reset).

It deletes the group with its committed offsets, the repartition and changelog topics, and the state on this machine.
State on other machines does not match the new changelogs, and is cleared when it is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.client.api import Admin
from penstock.client.confluent import ConfluentAdmin
from penstock.config import StreamsConfig
from penstock.errors import KafkaError, counted
from penstock.host.api import ApplicationReset
from penstock.host.deployment.layout import own_topics
from penstock.host.deployment.topics import resolve_patterns
from penstock.host.threads.directories import StateDirectory
from penstock.host.threads.group_protocol import session_timeout_ms
from penstock.host.threads.keys import uses_streams_protocol
from penstock.host.threads.streams_member import SESSION_MS
from penstock.host.threads.takeover import clients_of
from penstock.plan.subtopology import BuiltTopology
from penstock.plan.topology import Topology, built_topology
from penstock.record import TopicPartition


def reset(topology: Topology, config: StreamsConfig | Mapping[str, Any]) -> ApplicationReset:
    """Delete an application's committed offsets, internal topics and local state; return the deleted items.

    Args:
        topology: of the application.
        config: its configuration.

    Raises:
        LockError: an instance runs on this machine. Nothing is deleted.
        KafkaError: an instance runs elsewhere, and nothing is deleted; or the brokers do not answer or do not allow it.
    """
    checked, built = _checked(topology, config)
    return reset_built(built, checked)


def reset_built(built: BuiltTopology, config: StreamsConfig) -> ApplicationReset:
    """Reset an application with a built topology; see `reset`."""
    directory, admin = StateDirectory(config), ConfluentAdmin(config)
    try:
        plan = _planned(built, config, directory, admin)
        directory.acquire()
        try:
            _check_has_no_members(admin, config)
            admin.delete_groups([plan.application_id])  # which brokers refuse if an instance has joined meanwhile
            admin.delete_topics(plan.topics)
            directory.delete_state()  # last: state without its changelogs is cleared when it is opened
        finally:
            directory.release()
    finally:
        admin.close()
    return plan


def _check_has_no_members(admin: ConfluentAdmin, config: StreamsConfig) -> None:
    """Raise KafkaError if the group has members, which need the topics."""
    group = admin.describe_group(str(config["application.id"]))
    if group.members:
        session = (
            f"streams.session.timeout.ms of the group ({SESSION_MS} ms by default)"
            if uses_streams_protocol(config)
            else f"session.timeout.ms ({session_timeout_ms(config)} ms)"
        )
        raise KafkaError(
            f"The group {group.group_id} has {counted(len(group.members), 'member')}: {clients_of(group.members)}. "
            "Instances of the application run, or have ended without leaving the group. Stop them; a member that did "
            f"not leave stays in the group until its {session} has passed. Nothing was deleted."
        )


def plan_reset(topology: Topology, config: StreamsConfig | Mapping[str, Any]) -> ApplicationReset:
    """Return the items that `reset` would delete.

    Deletes nothing. Raises KafkaError if the brokers do not answer.
    """
    checked, built = _checked(topology, config)
    admin = ConfluentAdmin(checked)
    try:
        return _planned(built, checked, StateDirectory(checked), admin)
    finally:
        admin.close()


def _checked(topology: Topology, config: StreamsConfig | Mapping[str, Any]) -> tuple[StreamsConfig, BuiltTopology]:
    checked = config if isinstance(config, StreamsConfig) else StreamsConfig(config)
    return checked, built_topology(topology, str(checked.required("application.id")))


def _planned(built: BuiltTopology, config: StreamsConfig, directory: StateDirectory, admin: Admin) -> ApplicationReset:
    group, topics = str(config["application.id"]), admin.topics()
    internal = own_topics(built)
    resolved = resolve_patterns(built, topics, internal, config)
    sources = {topic for spec in resolved.subtopologies for topic in spec.source_topics}
    read = [TopicPartition(topic, n) for topic in sorted(sources & topics.keys()) for n in range(topics[topic])]
    has_group = bool(admin.committed_offsets(group, read, stable=False))
    return ApplicationReset(
        group,
        None,
        None,
        str(directory.path) if directory.has_state() else None,
        (group,) if has_group else (),
        tuple(sorted(internal & topics.keys())),
    )
