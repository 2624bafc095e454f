"""Where state is to be found and how far it is behind: plain values (Kafka classes: HostInfo, KeyQueryMetadata,
StreamsMetadata, LagInfo)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from penstock.errors import ConfigError
from penstock.record import TopicPartition


class HostInfo(NamedTuple):
    """Under which address a program offers its state (Kafka class: HostInfo)."""

    host: str
    port: int

    @staticmethod
    def build_from_endpoint(endpoint: str | None) -> HostInfo:
        """Return the address of "host:port", the unavailable one for None; raises ConfigError for another text."""
        if endpoint is None:
            return HostInfo.unavailable()
        host, _, port = endpoint.rpartition(":")
        if not host or not port.isdigit():
            raise ConfigError(f"Invalid value {endpoint!r} for application.server: expected host:port.")
        return HostInfo(host, int(port))

    @staticmethod
    def unavailable() -> HostInfo:
        """Return the address that stands for no program."""
        return HostInfo("unavailable", -1)


@dataclass(frozen=True)
class KeyQueryMetadata:
    """Where a key of a store is: the program that has the partition, and its number (Kafka class: KeyQueryMetadata)."""

    active_host: HostInfo
    standby_hosts: frozenset[HostInfo]
    partition: int


@dataclass(frozen=True)
class StreamsMetadata:
    """What one program of an application has (Kafka class: StreamsMetadata)."""

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
    """How far a partition of a store is behind: of all records of the source topics on which it depends, how many it
    has seen, and how many there are (Kafka class: LagInfo, which counts records of the changelog)."""

    current_offset_position: int
    end_offset_position: int

    @property
    def offset_lag(self) -> int:
        """How many records are to come."""
        return max(0, self.end_offset_position - self.current_offset_position)
