"""Locations and lags of state (Kafka classes: HostInfo, KeyQueryMetadata, StreamsMetadata, LagInfo)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from penstock.config.endpoint import host_and_port
from penstock.errors import ConfigError
from penstock.record import TopicPartition


class HostInfo(NamedTuple):
    """The address at which a program offers its state (Kafka class: HostInfo)."""

    host: str
    port: int

    @staticmethod
    def build_from_endpoint(endpoint: str | None) -> HostInfo:
        """Return the address of "host:port", or the unavailable one for None.

        Raises ConfigError for any other text.
        """
        if endpoint is None:
            return HostInfo.unavailable()
        found = host_and_port(endpoint)
        if found is None:
            raise ConfigError(f"Invalid value {endpoint!r} for application.server: expected host:port.")
        return HostInfo(*found)

    @staticmethod
    def unavailable() -> HostInfo:
        """Return the placeholder address without a program."""
        return HostInfo("unavailable", -1)


@dataclass(frozen=True)
class KeyQueryMetadata:
    """The location of a key: its program and its partition (Kafka class: KeyQueryMetadata)."""

    active_host: HostInfo
    standby_hosts: frozenset[HostInfo]
    partition: int


@dataclass(frozen=True)
class StreamsMetadata:
    """The state of one program of an application (Kafka class: StreamsMetadata)."""

    host_info: HostInfo
    state_store_names: frozenset[str]
    topic_partitions: frozenset[TopicPartition]
    standby_state_store_names: frozenset[str] = frozenset()
    standby_topic_partitions: frozenset[TopicPartition] = frozenset()

    @property
    def host(self) -> str:
        """The host of the address."""
        return self.host_info.host

    @property
    def port(self) -> int:
        """The port of the address."""
        return self.host_info.port


@dataclass(frozen=True)
class LagInfo:
    """The lag of a store's partition, in records of its source topics (Kafka class: LagInfo).

    It consists of the number of records seen and their total number; Kafka's counts records of the changelog.
    """

    current_offset_position: int
    end_offset_position: int

    @property
    def offset_lag(self) -> int:
        """The number of records not yet seen."""
        return max(0, self.end_offset_position - self.current_offset_position)
