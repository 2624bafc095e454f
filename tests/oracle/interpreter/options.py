"""The option objects of the DSL (Consumed, Produced ...) as a case describes them (FORMAT.md section 4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from penstock import (
    AutoOffsetReset,
    BufferConfig,
    Consumed,
    Grouped,
    Materialized,
    Produced,
    Repartitioned,
    Serde,
    StrictBufferConfig,
    Suppressed,
)
from tests.oracle.interpreter.functions import PARTITIONERS, TIMESTAMP_EXTRACTORS
from tests.oracle.interpreter.serdes import SERDES
from tests.oracle.interpreter.stores import STORE_SUPPLIER
from tests.oracle.interpreter.vocabulary import PLAIN, Choice, Fields

_SERDES = {"key_serde": SERDES, "value_serde": SERDES}


def _materialized(
    name: str | None = None,
    store: Any = None,
    key_serde: Serde | None = None,
    value_serde: Serde | None = None,
    retention: int | None = None,
    store_type: str | None = None,
    logging: bool | None = None,
    caching: bool | None = None,
) -> Materialized:
    named = store if store is not None else name
    result = Materialized.with_() if named is None else Materialized.as_(named)
    if key_serde is not None:
        result = result.with_key_serde(key_serde)
    if value_serde is not None:
        result = result.with_value_serde(value_serde)
    if retention is not None:
        result = result.with_retention(retention)
    if store_type is not None:
        result = result.with_store_type(store_type)
    if logging is not None:
        result = result.with_logging_enabled({}) if logging else result.with_logging_disabled()
    if caching is not None:
        result = result.with_caching_enabled() if caching else result.with_caching_disabled()
    return result


@dataclass(frozen=True)
class OffsetReset:
    """Where to begin: earliest, latest, none, or milliseconds as text."""

    def missing(self, value: str) -> Iterator[str]:
        """Yield nothing: all of them are built."""
        yield from ()

    def read(self, value: str) -> str:
        """Return the value of AutoOffsetReset."""
        return AutoOffsetReset.by_duration(int(value)) if value.isdecimal() else value


CONSUMED = Fields(
    "consumed",
    {**_SERDES, "timestamp_extractor": TIMESTAMP_EXTRACTORS, "offset_reset": OffsetReset(), "name": PLAIN},
    Consumed.with_,
)
PRODUCED = Fields("produced", {**_SERDES, "partitioner": PARTITIONERS, "name": PLAIN}, Produced.with_)
REPARTITIONED = Fields(
    "repartitioned",
    {**_SERDES, "name": PLAIN, "partitions": PLAIN, "partitioner": PARTITIONERS},
    lambda partitions=None, **options: Repartitioned.with_(number_of_partitions=partitions, **options),
)
GROUPED = Fields("grouped", {**_SERDES, "name": PLAIN}, Grouped.with_)
MATERIALIZED = Fields(
    "materialized",
    {
        **_SERDES,
        "name": PLAIN,
        "store": STORE_SUPPLIER,
        "retention": PLAIN,
        "store_type": Choice("store type", ("in_memory", "rocksdb")),
        "logging": PLAIN,
        "caching": PLAIN,
    },
    _materialized,
)


def _buffer(
    max_records: int | None = None,
    max_bytes: int | None = None,
    when_full: str | None = None,
    logging: bool | None = None,
) -> BufferConfig:
    config: BufferConfig
    if max_records is not None:
        config = BufferConfig.max_records(max_records)
        config = config if max_bytes is None else config.with_max_bytes(max_bytes)
    else:
        config = BufferConfig.unbounded() if max_bytes is None else BufferConfig.max_bytes(max_bytes)
    if when_full is not None:
        config = config.shut_down_when_full() if when_full == "shut_down" else config.emit_early_when_full()
    if logging is not None:
        config = config.with_logging_enabled({}) if logging else config.with_logging_disabled()
    return config


def _suppressed(until: str, ms: int = 0, buffer: BufferConfig | None = None, name: str | None = None) -> Suppressed:
    config = BufferConfig.unbounded() if buffer is None else buffer
    if until == "window_closes":
        result = Suppressed.until_window_closes(cast(StrictBufferConfig, config))
    else:
        result = Suppressed.until_time_limit(ms, config)
    return result if name is None else result.with_name(name)


SUPPRESSED = Fields(
    "suppressed",
    {
        "until": Choice("suppressed until", ("time_limit", "window_closes")),
        "ms": PLAIN,
        "name": PLAIN,
        "buffer": Fields(
            "buffer", {"max_records": PLAIN, "max_bytes": PLAIN, "when_full": PLAIN, "logging": PLAIN}, _buffer
        ),
    },
    _suppressed,
)
