"""Cases in which Penstock differs from Kafka Streams on purpose; DIVERGENCES.md gives the reasons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.oracle.interpreter import kafka_faults

# The start of `kafka_fault`, where a case shows a fault that Penstock does not have.
_FAULTS = (
    "merging repartition topics fails when the key change and a group are apart by a split or a process()",
    "no global table can be built with a Materialized that has no name",
    "the table of a windowed cogroup has the versions of the tables above its streams",
    "a cached store of sliding windows fails at a window that was taken away since the last flush",
    "a dead letter has neither key nor value where a sink has sent the record before",
    "the table of a windowed cogroup cannot be read by another node",
    "a cached session store fails if the gap reaches back before the first segment",
    "a range whose first key or time is after its last fails",
    "a store with headers writes a key with the headers of the value, and looks for it with those of the record",
    *kafka_faults.SIMULATED,
)

# What Kafka says where a random case meets one of these faults.
_MESSAGES = (
    "Found a null keyChangingChild node for ",
    'Cannot invoke "org.apache.kafka.streams.state.ValueAndTimestamp.value()" because "next.value" is null',
)

# What Penstock does otherwise though it is no fault of Kafka's.
_OTHERWISE = frozenset(
    (
        "errors-topic_name-wrong",
        "headers-lookup-stream-join-headers",
        "headers-lookup-stream-join-default",
        "headers-lookup-stream-join-default-memory",
        "stateless-multicast-several",
    )
)


def diverges(case: Mapping[str, Any]) -> bool:
    """Return whether Penstock's answer to `case` is known to be another one than that of Kafka Streams."""
    fault: str = case.get("kafka_fault", "")
    messages = _messages(case.get("expected", {}).get("error"))
    return fault.startswith(_FAULTS) or case["id"] in _OTHERWISE or any(m.startswith(_MESSAGES) for m in messages)


def _messages(error: Mapping[str, Any] | None) -> Iterator[str]:
    while error is not None:
        yield error.get("message", "")
        error = error.get("cause")
