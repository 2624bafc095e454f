"""The uncommitted input of an application's group, according to the brokers."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.client.api import Admin
from penstock.host.deployment.layout import Layout
from penstock.host.deployment.offset_resets import offset_resets, reset_offsets
from penstock.host.threads.vocabulary import Unread
from penstock.record import TopicPartition

_MOST_NAMED = 5


def planned_ends(layout: Layout, admin: Admin, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the planned ends of the topics of others: their last committed records now.

    Ends in `before`, and those of the topology, were planned earlier and remain, unless a topic was recreated and is
    shorter now.
    """
    planned = {**layout.topology.planned_ends, **before}
    own = _own_topics(layout)
    ends = admin.end_offsets([partition for partition in layout.readers if partition.topic not in own], True)
    return {partition: min(end, planned.get(partition, end)) for partition, end in ends.items()}


def unread(
    layout: Layout, admin: Admin, ends: Mapping[TopicPartition, int], now_ms: int
) -> dict[TopicPartition, Unread]:
    """Return the partitions with uncommitted input.

    Partitions with planned ends count up to those, repartition and task topics up to their last record. Raises
    KafkaError if brokers do not answer, StreamsError for a partition without a position whose offset reset is `none`.
    """
    group = str(layout.config.required("application.id"))
    committed = admin.committed_offsets(group, list(layout.readers), stable=False)
    own = _own_topics(layout)
    # Requested after the commits, so that the results of committed input are before these ends. Ends of all records,
    # because records of an open transaction may still be committed.
    last = {**ends, **admin.end_offsets([p for p in layout.readers if p.topic in own])}
    positions = {p: committed[p].offset for p in last if p in committed}
    behind = {p: end for p, end in last.items() if positions.get(p, 0) < end}
    resets = offset_resets(layout.topology, layout.config)
    unknown = {p: "earliest" if p.topic in own else resets[p.topic] for p in behind if p not in positions}
    if unknown:
        positions.update(reset_offsets(admin, unknown, behind, now_ms))
    found = {p: end for p, end in behind.items() if positions[p] < end}
    stable = admin.end_offsets(sorted(found), read_committed=True) if found else {}
    return {p: Unread(positions[p], end, stable[p]) for p, end in found.items()}


def _own_topics(layout: Layout) -> frozenset[str]:
    """Return the topics whose records follow from other input."""
    return frozenset([*layout.topology.repartition_topics, *layout.topology.task_topics])


def described(found: Mapping[TopicPartition, Unread]) -> str:
    """Return the missing input as text for an error, most missing records first."""
    most = sorted(found.items(), key=lambda item: (item[1].position - item[1].end, item[0]))
    parts = [
        f"{partition.topic}, partition {partition.partition}: committed up to offset {each.position} of {each.end}"
        + (f" (a transaction is open from offset {each.stable} on)" if each.stable < each.end else "")
        for partition, each in most[:_MOST_NAMED]
    ]
    more = len(most) - len(parts)
    return "; ".join(parts) + (f"; and {more} more partitions" if more > 0 else "")
