"""Tables in a test: a driver with string topics, and what comes out of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock import Serdes, StreamsBuilder
from penstock.testing import TestRecord, TopologyTestDriver

STRINGS: Mapping[str, Any] = {"default.key.serde": Serdes.string(), "default.value.serde": Serdes.string()}
UNCACHED: Mapping[str, Any] = {**STRINGS, "statestore.cache.max.bytes": 0}

Row = tuple[str | None, str | None, int]
"""Key, value and timestamp (ms)."""


def updates(
    builder: StreamsBuilder, rows: Iterable[Row], config: Mapping[str, Any] = UNCACHED, value_serde: Any = None
) -> list[Any]:
    """Return key, value and timestamp of all records of topic `out` after `rows` went into topic `in`."""
    serde = Serdes.string()
    with TopologyTestDriver(builder.build(config), {"application.id": "app", **config}) as driver:
        source = driver.create_input_topic("in", serde, serde)
        for key, value, timestamp in rows:
            source.pipe_input(TestRecord(key, value, timestamp=timestamp))
        output = driver.create_output_topic("out", serde, value_serde or serde)
        return [(record.key, record.value, record.timestamp) for record in output.read_records_to_list()]
