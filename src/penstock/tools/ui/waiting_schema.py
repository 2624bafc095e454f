"""The types of the JSON answers about records that wait; a part of `schema`."""

from __future__ import annotations

from typing import Annotated, Final, TypedDict

from msgspec import Meta

TOPOLOGY: Final = "name of the topology, empty if the application has only one"


class CallsAnswer(TypedDict):
    """An operator with calls, over all processes that this one sees."""

    topology: Annotated[str, Meta(description=TOPOLOGY)]
    node: Annotated[str, Meta(description="name of the operator")]
    capacity: Annotated[int, Meta(description="maximum number of attempts in flight, for each process")]
    in_flight: Annotated[int | None, Meta(description="attempts that run now")]
    waiting: Annotated[int | None, Meta(description="records that wait for the answers of their calls")]
    answered: Annotated[int | None, Meta(description="calls that were answered since the start, failures included")]
    answered_per_second: Annotated[float | None, Meta(description="the same a second")]
    failed: Annotated[int | None, Meta(description="calls that failed in their last attempt since the start")]
    failed_per_second: Annotated[float | None, Meta(description="the same a second")]
    retries: Annotated[int | None, Meta(description="attempts that followed a failed one, since the start")]
    latency_avg_ms: Annotated[float | None, Meta(description="the average duration of an attempt")]
    latency_p50_ms: Annotated[
        float | None, Meta(description="the time that 50 % of the last 1,000 attempts took at most")
    ]
    latency_p99_ms: Annotated[float | None, Meta(description="the same for 99 %")]
    latency_max_ms: Annotated[float | None, Meta(description="the longest duration of an attempt")]


class ParkedAnswer(TypedDict):
    """An operator that parks records."""

    topology: Annotated[str, Meta(description=TOPOLOGY)]
    node: Annotated[str, Meta(description="name of the operator")]
    store: Annotated[str, Meta(description="the store of its parked records")]
    records: Annotated[int | None, Meta(description="records that wait for another attempt, at the last commit")]


class WaitingAnswer(TypedDict):
    """The operators in which records wait."""

    seen_at_ms: Annotated[int, Meta(description="when the figures were read")]
    calls: Annotated[list[CallsAnswer], Meta(description="the operators with [calls](calling-services.md)")]
    parked: Annotated[list[ParkedAnswer], Meta(description="the operators that [park records](retry-and-park.md)")]


class ParkedKeyAnswer(TypedDict):
    """A key whose records are parked, with the first of them."""

    partition: Annotated[int | None, Meta(description="the partition of the store")]
    key: Annotated[str, Meta(description="the key, as a short text")]
    records: Annotated[int, Meta(description="its records that wait")]
    attempts: Annotated[int, Meta(description="failed attempts of the first record")]
    next_attempt_at_ms: Annotated[int, Meta(description="when the first record is tried again; 0 for at once")]
    failure: Annotated[str, Meta(description="the first error of the first record")]
    timestamp: Annotated[int, Meta(description="the timestamp of the first record, in ms since the epoch")]
    topic: Annotated[str | None, Meta(description="the topic of its input record; null if unknown")]
    source_partition: Annotated[int, Meta(description="the partition of its input record; -1 if unknown")]
    offset: Annotated[int, Meta(description="the offset of its input record; -1 if unknown")]


class ParkedKeysAnswer(TypedDict):
    """The keys whose records are parked in a store, as of the newest commit."""

    topology: Annotated[str, Meta(description=TOPOLOGY)]
    store: Annotated[str, Meta(description="the store")]
    keys: Annotated[int, Meta(description="how many keys wait; each record without a key counts as one")]
    records: Annotated[int, Meta(description="their records that wait")]
    bytes: Annotated[int, Meta(description="the size of these records in the store")]
    oldest_at_ms: Annotated[
        int | None, Meta(description="the smallest timestamp of the first records; null if no record waits")
    ]
    next_attempt_at_ms: Annotated[
        int | None, Meta(description="when the next record is tried again; null if no record waits")
    ]
    first: Annotated[list[ParkedKeyAnswer], Meta(description="up to 100 of the keys")]
