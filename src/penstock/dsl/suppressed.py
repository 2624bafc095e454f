"""The options of `KTable.suppress`: time limits and buffer limits. Immutable: `with_...` returns a changed copy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from penstock.plan.names import check_name
from penstock.windows import LONG_MAX
from penstock_broker.common.durations import Duration, milliseconds


@dataclass(frozen=True, kw_only=True)
class BufferConfig:
    """The limits of the buffer, and its changelog topic (Kafka class: Suppressed.BufferConfig).

    Created by `max_records`, `max_bytes` and `unbounded`.

    Args:
        record_limit: number of keys.
        byte_limit: bytes of keys, values, headers and overhead, as Kafka estimates them.
        changelog_config: extra configs of the changelog topic.
    """

    record_limit: int = LONG_MAX
    byte_limit: int = LONG_MAX
    logging: bool = True
    changelog_config: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def max_records(record_limit: int) -> EagerBufferConfig:
        """Return a config that holds back `record_limit` keys; beyond, the oldest are emitted early."""
        return EagerBufferConfig(record_limit=record_limit)

    @staticmethod
    def max_bytes(byte_limit: int) -> EagerBufferConfig:
        """Return a config that holds back `byte_limit` bytes; beyond, the oldest are emitted early."""
        return EagerBufferConfig(byte_limit=byte_limit)

    @staticmethod
    def unbounded() -> StrictBufferConfig:
        """Return a config without limits."""
        return StrictBufferConfig()

    def with_max_records(self, record_limit: int) -> Self:
        """Return a copy that holds back `record_limit` keys at most."""
        return replace(self, record_limit=record_limit)

    def with_max_bytes(self, byte_limit: int) -> Self:
        """Return a copy that holds back `byte_limit` bytes at most."""
        return replace(self, byte_limit=byte_limit)

    def with_no_bound(self) -> StrictBufferConfig:
        """Return a copy without limits."""
        return StrictBufferConfig(logging=self.logging, changelog_config=self.changelog_config)

    def shut_down_when_full(self) -> StrictBufferConfig:
        """Return a copy that stops the application beyond the limit, instead of emitting early."""
        return StrictBufferConfig(
            record_limit=self.record_limit,
            byte_limit=self.byte_limit,
            logging=self.logging,
            changelog_config=self.changelog_config,
        )

    def emit_early_when_full(self) -> EagerBufferConfig:
        """Return a copy that emits the oldest early beyond the limit."""
        return EagerBufferConfig(
            record_limit=self.record_limit,
            byte_limit=self.byte_limit,
            logging=self.logging,
            changelog_config=self.changelog_config,
        )

    def with_logging_disabled(self) -> Self:
        """Return a copy without a changelog topic."""
        return replace(self, logging=False, changelog_config={})

    def with_logging_enabled(self, config: Mapping[str, str]) -> Self:
        """Return a copy with a changelog topic, created with `config` before Kafka Streams' own settings."""
        return replace(self, logging=True, changelog_config=dict(config))


@dataclass(frozen=True, kw_only=True)
class StrictBufferConfig(BufferConfig):
    """A buffer that never emits early (Kafka class: Suppressed.StrictBufferConfig).

    The application fails when the buffer is full.
    """


@dataclass(frozen=True, kw_only=True)
class EagerBufferConfig(BufferConfig):
    """A buffer that emits its oldest updates early when full (Kafka class: Suppressed.EagerBufferConfig)."""


_BufferConfig, _StrictBufferConfig, _EagerBufferConfig = BufferConfig, StrictBufferConfig, EagerBufferConfig


class _BufferConfigs:
    """The configs by Kafka Streams' names, such as `Suppressed.BufferConfig`."""

    BufferConfig = _BufferConfig
    StrictBufferConfig = _StrictBufferConfig
    EagerBufferConfig = _EagerBufferConfig


@dataclass(frozen=True, kw_only=True)
class Suppressed(_BufferConfigs):
    """The time limit for holding back a table's updates (Kafka class: Suppressed).

    Created by `until_time_limit` and `until_window_closes`.

    Args:
        time_limit_ms: None for the close of the windows.
        buffer_config: the limits of the buffer.
        name: of the node; the store's name is derived from it.
    """

    time_limit_ms: int | None
    buffer_config: BufferConfig
    name: str | None = None

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name(self.name)

    @staticmethod
    def until_time_limit(time_limit_ms: Duration, buffer_config: BufferConfig) -> Suppressed:
        """Return options that hold an update for `time_limit_ms` of stream time.

        The time starts at the first waiting update of a key; later updates of the key replace it.
        """
        return Suppressed(time_limit_ms=milliseconds(time_limit_ms, "time limit"), buffer_config=buffer_config)

    @staticmethod
    def until_window_closes(buffer_config: StrictBufferConfig) -> Suppressed:
        """Return options that emit one result per window, at its close.

        Raises TypeError for a buffer that may emit early, because its results would not be final.
        """
        if not isinstance(buffer_config, StrictBufferConfig):
            raise TypeError(
                f"Expected a buffer that never emits early, got {buffer_config!r}: call shut_down_when_full(), or use "
                "BufferConfig.unbounded()."
            )
        return Suppressed(time_limit_ms=None, buffer_config=buffer_config)

    def with_name(self, name: str) -> Suppressed:
        """Return a copy with the name of the node; raises TopologyError if it is invalid."""
        return replace(self, name=name)
