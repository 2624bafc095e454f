"""Settings of the embedded broker and the checks on them.

Contains the dataclass of settings with their defaults. Not here: the configuration of topics (topic_config.py).
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock_broker.errors import BrokerError
from penstock_broker.topic_config import MIN_SEGMENT_BYTES, NEVER

_AT_LEAST_ONE: Final = (
    "num_partitions",
    "log_retention_check_interval_ms",
    "log_initial_task_delay_ms",
    "log_flush_interval_messages",
    "log_flush_scheduler_interval_ms",
    "log_cleaner_backoff_ms",
    "log_cleaner_dedupe_buffer_size",
    "producer_id_expiration_ms",
    "producer_id_expiration_check_interval_ms",
    "max_request_bytes",
    "max_other_request_bytes",
    "max_partial_request_bytes",
    "max_partitions",
    "max_connections",
    "max_unread_bytes",
    "max_waiting_fetch_bytes",
    "connections_max_idle_ms",
    "group_min_session_timeout_ms",
    "group_max_session_timeout_ms",
    "group_max_size",
    "group_max_bytes",
    "group_consumer_heartbeat_interval_ms",
    "group_consumer_session_timeout_ms",
    "group_streams_heartbeat_interval_ms",
    "group_streams_session_timeout_ms",
    "max_groups",
    "offsets_retention_minutes",
    "offsets_retention_check_interval_ms",
    "transaction_max_timeout_ms",
    "transactional_id_expiration_ms",
    "max_transactional_ids",
    "quota_window_num",
    "quota_window_size_seconds",
    "max_quota_clients",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Settings of one broker.

    Args:
        data_dir: directory of the log and of the metadata; created if missing; used by one broker at a time.
        host: address to listen on; must be a loopback address, because the broker has no access control.
        port: TCP port; 0 for any free port.
        schema_registry_port: TCP port of a schema registry on the same address; 0 for any free port, None for no
            registry.
        num_partitions: partitions of a topic that is created without a number.
        auto_create_topics: whether a Metadata request may create a missing topic, if it allows that.
        segment_bytes: size at which a segment of the log is closed, unless the topic sets it.
        log_retention_ms: age (ms) at which segments are deleted, unless the topic sets it; -1 for never (Kafka's
            log.retention.ms, a week there: data of trials and tests often has old timestamps).
        log_retention_check_interval_ms: interval (ms) of that check.
        log_initial_task_delay_ms: longest delay (ms) of the first check after the start (Kafka's
            log.initial.task.delay.ms).
        log_flush_interval_messages: records after which a log is forced to disk, unless the topic sets it; 1 also
            applies to the offsets of groups and the states of transactions (Kafka's log.flush.interval.messages).
        log_flush_scheduler_interval_ms: interval (ms) of the check for `flush.ms`.
        log_cleaner_backoff_ms: interval (ms) of the check for logs that need compaction.
        log_cleaner_dedupe_buffer_size: memory for the keys of one compaction, in bytes.
        producer_id_expiration_ms: time (ms) after which a partition forgets a silent producer (Kafka's
            producer.id.expiration.ms).
        producer_id_expiration_check_interval_ms: interval (ms) of that check.
        max_request_bytes: largest accepted request; a larger one closes its connection (Kafka's
            socket.request.max.bytes).
        max_other_request_bytes: largest request of all APIs but Produce, whose records are never parsed.
        max_partial_request_bytes: maximum memory for incomplete requests, over all connections, in bytes; above it, the
            connection whose request has not grown for longest is closed.
        max_partitions: maximum number of partitions, over all topics.
        max_connections: maximum number of connected clients; one more closes the connection that has been idle longest.
        max_unread_bytes: maximum bytes of unread answers, over all connections; above it, the connection that has not
            read for longest is closed.
        max_waiting_fetch_bytes: maximum bytes of records held by a waiting Fetch, which then stops waiting.
        connections_max_idle_ms: time (ms) without a request after which a connection is closed (Kafka's
            connections.max.idle.ms).
        group_initial_rebalance_delay_ms: time (ms) that the first rebalance of a group waits for more members (Kafka's
            group.initial.rebalance.delay.ms, 3,000 there).
        group_min_session_timeout_ms: shortest session time-out (ms) that a member may request.
        group_max_session_timeout_ms: longest session time-out (ms) that a member may request.
        group_max_size: maximum number of members of a group.
        group_max_bytes: maximum bytes of the subscriptions of a group, and of its assignment; in a streams group, of
            the topology with the client tags of the members, of its description, and of the task offsets.
        group_consumer_heartbeat_interval_ms: interval (ms) of heartbeats of members of consumer groups (KIP-848;
            Kafka's group.consumer.heartbeat.interval.ms, 5,000 there); a rebalance takes a few of them.
        group_consumer_session_timeout_ms: time (ms) without a heartbeat after which such a member is removed.
        group_streams_heartbeat_interval_ms: interval (ms) of heartbeats of members of streams groups (KIP-1071; Kafka's
            group.streams.heartbeat.interval.ms, 5,000 there); tasks move with a few of them.
        group_streams_session_timeout_ms: time (ms) without a heartbeat after which such a member is removed.
        group_streams_initial_rebalance_delay_ms: time (ms) that the first assignment of a streams group waits for more
            members (Kafka's group.streams.initial.rebalance.delay.ms, 3,000 there).
        max_groups: maximum number of groups.
        offsets_retention_minutes: retention time (minutes) of the offsets of a group without members (Kafka's
            offsets.retention.minutes).
        offsets_retention_check_interval_ms: interval (ms) of that check.
        transaction_max_timeout_ms: longest time-out (ms) that a transactional producer may request (Kafka's
            transaction.max.timeout.ms).
        transactional_id_expiration_ms: time (ms) after which an unused transactional id is forgotten (Kafka's
            transactional.id.expiration.ms).
        max_transactional_ids: maximum number of transactional ids; one more replaces the one that has been unused for
            longest.
        quota_window_num: number of windows over which the usage of a quota is averaged (Kafka's quota.window.num).
        quota_window_size_seconds: length (s) of each window (Kafka's quota.window.size.seconds).
        max_quota_clients: maximum number of client ids with a quota of their own, and of client ids with measured
            usage.
        min_free_bytes: free disk space in bytes below which the broker does not start.

    Raises:
        BrokerError: a value is out of range, or the host is not a loopback address.
    """

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 0
    schema_registry_port: int | None = None
    num_partitions: int = 1
    auto_create_topics: bool = True
    segment_bytes: int = 256 * 1024 * 1024
    log_retention_ms: int = -1
    log_retention_check_interval_ms: int = 300_000
    log_initial_task_delay_ms: int = 30_000
    log_flush_interval_messages: int = NEVER
    log_flush_scheduler_interval_ms: int = 1_000
    log_cleaner_backoff_ms: int = 15_000
    log_cleaner_dedupe_buffer_size: int = 64 * 1024 * 1024
    producer_id_expiration_ms: int = 86_400_000
    producer_id_expiration_check_interval_ms: int = 600_000
    max_request_bytes: int = 100 * 1024 * 1024
    max_other_request_bytes: int = 20 * 1024 * 1024
    max_partial_request_bytes: int = 200 * 1024 * 1024
    max_partitions: int = 10_000
    max_connections: int = 1_000
    max_unread_bytes: int = 1024 * 1024 * 1024
    max_waiting_fetch_bytes: int = 1024 * 1024
    connections_max_idle_ms: int = 600_000
    group_initial_rebalance_delay_ms: int = 0
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 1_000
    group_max_bytes: int = 16 * 1024 * 1024
    group_consumer_heartbeat_interval_ms: int = 1_000
    group_consumer_session_timeout_ms: int = 45_000
    group_streams_heartbeat_interval_ms: int = 1_000
    group_streams_session_timeout_ms: int = 45_000
    group_streams_initial_rebalance_delay_ms: int = 0
    max_groups: int = 10_000
    offsets_retention_minutes: int = 7 * 24 * 60
    offsets_retention_check_interval_ms: int = 600_000
    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    max_transactional_ids: int = 100_000
    quota_window_num: int = 11
    quota_window_size_seconds: int = 1
    max_quota_clients: int = 10_000
    min_free_bytes: int = 32 * 1024 * 1024

    @property
    def topic_defaults(self) -> dict[str, str]:
        """Default topic configuration, as far as it differs from Kafka's."""
        defaults = {"segment.bytes": self.segment_bytes, "retention.ms": self.log_retention_ms}
        if self.log_flush_interval_messages != NEVER:
            defaults["flush.messages"] = self.log_flush_interval_messages
        return {name: str(value) for name, value in defaults.items()}

    def __post_init__(self) -> None:
        if not _is_loopback(self.host):
            raise BrokerError(
                f"cannot listen on {self.host!r}: the embedded broker has no access control and serves this machine "
                "only; use 127.0.0.1, ::1 or localhost, or run an Apache Kafka for other machines"
            )
        for port in (self.port, self.schema_registry_port or 0):
            if not 0 <= port <= 65535:
                raise BrokerError(f"port {port} is not between 0 (any free port) and 65535")
        for name in _AT_LEAST_ONE:
            value: int = getattr(self, name)
            if value < 1:
                raise BrokerError(f"{name} is {value}; it must be at least 1")
        if self.segment_bytes < MIN_SEGMENT_BYTES:
            raise BrokerError(f"segment_bytes is {self.segment_bytes}; it must be at least {MIN_SEGMENT_BYTES}")
        if self.log_retention_ms < -1:
            raise BrokerError(f"log_retention_ms is {self.log_retention_ms}; it must be at least 0, or -1 for never")
        for name in ("group_initial_rebalance_delay_ms", "group_streams_initial_rebalance_delay_ms"):
            delay_ms: int = getattr(self, name)
            if delay_ms < 0:
                raise BrokerError(f"{name} is {delay_ms}; it must be at least 0")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
